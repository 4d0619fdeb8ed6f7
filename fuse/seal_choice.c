/* When devices of a mount are worth a switch. See seal.h. */
#include "base/hash.h"
#include "fuse/seal.h"

#define PATIENCE 10u /* pauses after which one extent more is enough */
#define USEFUL   8u  /* part of the extents that is enough before */

static bool is_shown(const uint8_t *shown, uint32_t extent)
{
	return shown[extent / 8] & 1u << (extent % 8);
}

enum seal_choice seal_choose(const struct seal_view *view)
{
	uint32_t sealed = 0;
	uint32_t more = 0;

	for (uint32_t i = 0; i < view->n; i++) {
		bool shown = is_shown(view->shown, i);

		if (shown && !client_seal_holds(&view->then[i], &view->now[i]))
			return SEAL_DROP;
		if (view->now[i].status.state != SEAL_SEALED)
			continue;
		sealed++;
		more += !shown;
	}
	if (more == 0 || view->old >= SEAL_OLD_MAX || view->since_ns < view->pause_ns)
		return SEAL_STAY;
	if (sealed == view->n || more >= max(view->n / USEFUL, 1u) ||
		view->since_ns / PATIENCE >= view->pause_ns)
		return SEAL_GROW;
	return SEAL_STAY;
}

uint64_t seal_mark(uint32_t n, const uint8_t *shown, const struct client_seal *seals)
{
	uint64_t mark = 0;

	for (uint32_t i = 0; i < n; i++) {
		const uint64_t words[] = { i, seals[i].epoch, seals[i].status.findings };

		if (is_shown(shown, i))
			mark ^= hash_xxh3(words, sizeof(words), 0);
	}
	return mark;
}
