/* Questions about sealed extents, and answers. See seal.h. */
#include "proto/seal.h"
#include "base/layout.h"
#include "proto/granary.pb-c.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RUN_NUMBERS 6u

static_assert(SEAL_PAGE % 8 == 0 && SEAL_PAGE <= LIMIT_DEVICES, "pages are whole bytes of bits");

/* ---- the question ---------------------------------------------------------------------------- */

size_t seal_ask_pack(const struct seal_ask *ask, uint32_t n, uint8_t out[SEAL_ASK_BYTES])
{
	Granary__SealAsk m = GRANARY__SEAL_ASK__INIT;
	uint8_t held[SEAL_HELD_BYTES];

	ensure(n <= SEAL_PAGE);
	memcpy(held, ask->held, sizeof(held));
	m.has_held = 1;
	m.held = (ProtobufCBinaryData){ .data = held, .len = (n + 7) / 8 };
	m.has_take = m.has_end = 1;
	m.take = ask->take;
	m.end = ask->end;
	ensure(granary__seal_ask__get_packed_size(&m) <= SEAL_ASK_BYTES);
	return granary__seal_ask__pack(&m, out);
}

int seal_ask_unpack(const void *data, size_t len, uint32_t n, struct seal_ask *ret_ask)
{
	Granary__SealAsk *m = granary__seal_ask__unpack(NULL, len, data);
	struct seal_ask ask = { .end = UINT64_MAX };
	int r = 0;

	if (!m)
		return -EBADMSG;
	ask.take = m->take;
	if (m->has_end)
		ask.end = m->end;
	if (n > SEAL_PAGE || m->held.len > (n + 7) / 8)
		r = -EBADMSG;
	else if (m->held.len)
		memcpy(ask.held, m->held.data, m->held.len);
	if (r == 0 && n % 8 && ask.held[n / 8] >> n % 8)
		r = -EBADMSG;
	granary__seal_ask__free_unpacked(m, NULL);
	if (r == 0)
		*ret_ask = ask;
	return r;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static bool same(const struct seal_status *a, const struct seal_status *b)
{
	return a->state == b->state && a->why == b->why && a->percent == b->percent &&
	       a->findings == b->findings && a->missing == b->missing;
}

uint8_t *seal_states_pack(
	uint64_t epoch, const struct seal_status *states, uint32_t n, size_t *ret_len)
{
	Granary__SealStates m = GRANARY__SEAL_STATES__INIT;
	uint64_t *runs = calloc((size_t)n * RUN_NUMBERS + 1, sizeof(*runs));
	uint8_t *packed = NULL;
	uint32_t length;

	ensure(n <= SEAL_PAGE);
	if (!runs)
		return NULL;
	m.has_epoch = 1;
	m.epoch = epoch;
	m.runs = runs;
	for (uint32_t i = 0; i < n; i += length) {
		const uint64_t run[RUN_NUMBERS] = { 0, states[i].state, states[i].why,
			states[i].percent, states[i].findings, states[i].missing };

		for (length = 1; i + length < n && same(&states[i], &states[i + length]);)
			length++;
		memcpy(runs + m.n_runs, run, sizeof(run));
		runs[m.n_runs] = length;
		m.n_runs += RUN_NUMBERS;
	}
	ensure(granary__seal_states__get_packed_size(&m) <= SEAL_STATES_BYTES);
	packed = malloc(granary__seal_states__get_packed_size(&m) + 1);
	if (packed)
		*ret_len = granary__seal_states__pack(&m, packed);
	free(runs);
	return packed;
}

static bool decode_run(const uint64_t run[RUN_NUMBERS], struct seal_status *ret)
{
	if (run[1] >= SEAL_STATES || run[2] >= SEAL_WHYS || run[3] > 100 || run[4] > UINT32_MAX)
		return false;
	*ret = (struct seal_status){ .state = (enum seal_state)run[1],
		.why = (enum seal_why)run[2],
		.percent = (uint8_t)run[3],
		.findings = (uint32_t)run[4],
		.missing = run[5] };
	return true;
}

static int decode_runs(const Granary__SealStates *m, uint32_t n, struct seal_status *ret_states)
{
	uint32_t at = 0;

	if (m->n_runs % RUN_NUMBERS)
		return -EBADMSG;
	for (size_t i = 0; i < m->n_runs; i += RUN_NUMBERS) {
		struct seal_status state;

		if (m->runs[i] == 0 || m->runs[i] > n - at || !decode_run(m->runs + i, &state))
			return -EBADMSG;
		for (uint64_t k = 0; k < m->runs[i]; k++)
			ret_states[at++] = state;
	}
	return at == n ? 0 : -EBADMSG;
}

int seal_states_unpack(const void *data, size_t len, uint32_t n, uint64_t *ret_epoch,
	struct seal_status *ret_states)
{
	Granary__SealStates *m;
	int r;

	if (len > SEAL_STATES_BYTES)
		return -EBADMSG;
	m = granary__seal_states__unpack(NULL, len, data);
	if (!m)
		return -EBADMSG;
	r = decode_runs(m, n, ret_states);
	if (r == 0)
		*ret_epoch = m->epoch;
	granary__seal_states__free_unpacked(m, NULL);
	return r;
}

/* ---- for people ------------------------------------------------------------------------------ */

const char *seal_state_name(enum seal_state state)
{
	static const char *const names[] = {
		[SEAL_UNKNOWN] = "not checked yet",
		[SEAL_ABSENT] = "absent",
		[SEAL_INCOMPLETE] = "incomplete",
		[SEAL_VERIFYING] = "verifying",
		[SEAL_SEALED] = "sealed",
		[SEAL_REFUSED] = "refused",
	};

	return (unsigned int)state < SEAL_STATES ? names[state] : "unknown";
}

const char *seal_why_text(enum seal_why why)
{
	static const char *const texts[] = {
		[SEAL_WHY_NONE] = "",
		[SEAL_WHY_FINDING] = "damage was found; it is repaired and verified again",
		[SEAL_WHY_MOVING] = "its chunks are being moved into the extent",
		[SEAL_WHY_QUIET] = "its last bytes were written a moment ago; it is verified next",
		[SEAL_WHY_NOT_HELD] =
			"this node keeps only part of the volume: no room, or copies elsewhere",
		[SEAL_WHY_SIZE] = "the worker's extents have another size than the image's",
		[SEAL_WHY_TIER] = "the tier's disk is not in service",
		[SEAL_WHY_TABLE] = "the worker does not have this generation's table",
		[SEAL_WHY_OFF] = "sealing is turned off on this worker",
		[SEAL_WHY_MEMORY] = "its tier is in memory, of which the kernel makes no devices",
	};

	return (unsigned int)why < SEAL_WHYS ? texts[why] : "unknown";
}
