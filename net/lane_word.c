/* Words of lanes. See lane_word.h. */
#include "net/lane_word.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/little.h"

#include <string.h>

void lane_word_pack(const struct lane_word *word, uint8_t out[LANE_WORD_BYTES])
{
	memset(out, 0, LANE_WORD_BYTES);
	out[0] = word->kind;
	out[1] = word->lane;
	out[2] = word->end.mtu;
	out[3] = word->cause;
	little_put32(out + 4, word->end.qpn);
	little_put32(out + 8, word->end.psn);
	little_put32(out + 12, word->writes);
	memcpy(out + 16, word->end.gid, LANE_GID_BYTES);
}

int lane_word_unpack(const uint8_t *in, size_t len, struct lane_word *ret_word)
{
	struct lane_word word;

	if (len != LANE_WORD_BYTES)
		return -EBADMSG;
	word = (struct lane_word){
		.kind = in[0], .lane = in[1], .cause = in[3], .writes = little_get32(in + 12)
	};
	word.end.mtu = in[2];
	word.end.qpn = little_get32(in + 4);
	word.end.psn = little_get32(in + 8);
	memcpy(word.end.gid, in + 16, LANE_GID_BYTES);
	if (word.lane == 0 || word.kind < LANE_WORD_OPEN || word.kind > LANE_WORD_CLOSE)
		return -EBADMSG;
	if (word.kind == LANE_WORD_OPEN &&
		(!lane_end_valid(&word.end) || word.writes == 0 || word.writes > LANE_WRITES_MAX))
		return -EBADMSG;
	*ret_word = word;
	return 0;
}

void lane_destination_pack(const struct lane_destination *d, uint8_t out[LANE_DESTINATION_BYTES])
{
	little_put64(out, d->address);
	little_put32(out + 8, d->key);
	little_put32(out + 12, d->bytes);
	little_put32(out + 16, d->cookie);
	little_put32(out + 20, 0);
}

int lane_destination_unpack(const uint8_t *in, size_t len, struct lane_destination *ret_d)
{
	struct lane_destination d;

	if (len != LANE_DESTINATION_BYTES || little_get32(in + 20) != 0)
		return -EBADMSG;
	d = (struct lane_destination){ .address = little_get64(in),
		.key = little_get32(in + 8),
		.bytes = little_get32(in + 12),
		.cookie = little_get32(in + 16) };
	if (d.bytes == 0 || d.bytes > LIMIT_PAYLOAD_BYTES)
		return -EBADMSG;
	*ret_d = d;
	return 0;
}
