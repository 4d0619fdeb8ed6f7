/* Bytes that came from another worker become those of flights. See pull.h. */
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/piece.h"
#include "cacheworker/pull_internal.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

static uint32_t pieces_of(const struct flight *f)
{
	return (f->length + PIECE_BYTES - 1) / PIECE_BYTES;
}

int pull_check_shape(const struct pull *p)
{
	const struct frame *reply = &p->call.reply;
	uint32_t pieces = 0;

	for (uint32_t i = 0; i < p->asked; i++)
		pieces += pieces_of(p->flights[i]);
	if (p->call.reply_fd >= 0 || reply->flags & FRAME_LOCAL ||
		reply->length != p->asked_length || reply->checksums != pieces ||
		reply->payload != (uint64_t)p->asked_length + pieces * sizeof(uint64_t))
		return -EBADMSG;
	return 0;
}

static bool matches(struct flight *f, const char *data, const uint8_t *sums)
{
	for (uint32_t i = 0; i < pieces_of(f); i++) {
		uint32_t at = i * PIECE_BYTES;
		uint64_t sum;

		memcpy(&sum, sums + i * sizeof(sum), sizeof(sum));
		f->sums[i] = le64toh(sum);
		if (hash_xxh3(data + at, min(f->length - at, PIECE_BYTES),
			    piece_seed(f->object_seed, (f->object_offset >> PIECE_BITS) + i)) !=
			f->sums[i])
			return false;
	}
	return true;
}

/* The unit's bytes, in memory of its own; an answer of one unit becomes that. */
static bool take_bytes(struct pull *p, struct flight *f, char *data)
{
	if (p->asked == 1 && data == p->call.reply_payload) {
		flight_data_free(f);
		f->recycled = false;
		f->data = TAKE(p->call.reply_payload);
		return true;
	}
	if (!flight_data_new(f))
		return false;
	memcpy(f->data, data, f->length);
	return true;
}

bool pull_land(struct pull *p)
{
	struct worker *w = p->worker;
	char *payload = p->call.reply_payload;
	const uint8_t *sums = (const uint8_t *)payload + p->asked_length;
	uint64_t first = p->flights[0]->start;
	uint32_t bad = 0;

	for (uint32_t i = 0; i < p->asked; i++) {
		struct flight *f = p->flights[i];
		bool good = matches(f, payload + (f->start - first), sums);

		sums += pieces_of(f) * sizeof(uint64_t);
		if (!good) {
			counter_add(&w->counters.peer_bad, 1);
			LOG_LIMITED(LOG_WARN, "damaged bytes from a peer",
				"peer=%s key=\"%.*s\" offset=%llu next=\"the peer checks its copy; "
				"the bytes are read elsewhere\"",
				p->peer->name, (int)f->get.key_len, f->get.key,
				(unsigned long long)f->object_offset);
		} else if (take_bytes(p, f, payload + (f->start - first))) {
			counter_add(&w->counters.peer_units, 1);
			counter_add(&w->counters.peer_bytes, f->length);
			pthread_mutex_lock(&w->flights.lock);
			f->pull = NULL;
			pthread_mutex_unlock(&w->flights.lock);
			f->pulled = true;
			f->summed = pieces_of(f);
			flight_all_landed(f);
			continue;
		}
		f->bad++; /* also one that found no memory: it is not to go on for ever */
		p->flights[bad++] = f;
	}
	memmove(p->flights + bad, p->flights + p->asked, (p->n - p->asked) * sizeof(*p->flights));
	p->n -= p->asked - bad;
	p->asked = bad;
	return bad > 0;
}
