/*
 * Where the pass is, in the tier's file `scrub`:
 *
 *	started 1790000000			wall seconds
 *	cursor VOLUME LINEAGE CHUNK		hex, hex, decimal; while it is under way
 */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "cacheworker/scrub_internal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define STATE_BYTES 512u

/* False: there is no tier to keep it on. */
static bool state_path(const struct scrub *s, char out[PATH_MAX])
{
	return tier_set_count(s->worker->tiers) > 0 &&
	       snprintf(out, PATH_MAX, "%s/scrub", s->worker->config->tier) < PATH_MAX;
}

static bool parse(struct scrub *s, const char *text)
{
	char volume[2 * VOLUME_ID_LEN + 1];
	uint64_t started;
	struct chunk_id id;
	int n = sscanf(text, "started %" SCNu64 "\ncursor %32[0-9a-f] %" SCNx64 " %" SCNu64,
		&started, volume, &id.lineage, &id.chunk);

	if (n != 1 && n != 4)
		return false;
	if (n == 4 && (strlen(volume) != 2 * VOLUME_ID_LEN ||
			      hash_unhex(volume, id.volume.bytes, VOLUME_ID_LEN) < 0))
		return false;
	s->pass_started = started;
	s->in_pass = n == 4;
	s->has_cursor = n == 4;
	if (n == 4)
		s->cursor = id;
	return true;
}

void scrub_load_state(struct scrub *s)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(STATE_BYTES);
	char path[PATH_MAX];
	bool known;

	pthread_mutex_lock(&s->lock);
	known = state_path(s, path) && file_read_all(path, &text) == 0 && parse(s, buf_str(&text));
	if (!known) /* a new tier, or the file is lost: what is there was written just now */
		s->pass_started = clock_wall_ns() / CLOCK_SECOND;
	pthread_mutex_unlock(&s->lock);
	if (!known)
		scrub_save_state(s);
}

void scrub_save_state(struct scrub *s)
{
	char path[PATH_MAX];
	char text[STATE_BYTES];
	char volume[2 * VOLUME_ID_LEN + 1];
	int n;
	int r;

	if (!state_path(s, path))
		return;
	pthread_mutex_lock(&s->lock);
	n = snprintf(text, sizeof(text), "started %" PRIu64 "\n", s->pass_started);
	if (s->in_pass && s->has_cursor) {
		hash_hex(&s->cursor.volume, VOLUME_ID_LEN, volume);
		n += snprintf(text + n, sizeof(text) - (size_t)n,
			"cursor %s %016" PRIx64 " %" PRIu64 "\n", volume, s->cursor.lineage,
			s->cursor.chunk);
	}
	s->saved_ns = clock_mono_ns();
	pthread_mutex_unlock(&s->lock);
	r = file_write_atomic(path, text, (size_t)n, 0600);
	if (r < 0)
		LOG_LIMITED(LOG_WARN, "scrub's place not written",
			"path=\"%s\" cause=%s next=\"after a restart the pass begins anew\"", path,
			err_name(r));
}
