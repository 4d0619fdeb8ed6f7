/*
 * Where the pass is, in the tier's file `scrub`:
 *
 *	started 1790000000			wall seconds
 *	cursor VOLUME LINEAGE CHUNK [held]	hex, hex, decimal; while it is under way; among the
 *						chunks of held extents, which come first
 */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "cacheworker/scrub_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_BYTES 512u

/* False: there is no tier to keep it on. */
static bool state_path(const struct scrub *s, char out[PATH_MAX])
{
	return tier_set_count(s->worker->tiers) > 0 &&
	       snprintf(out, PATH_MAX, "%s/scrub", s->worker->config->tier) < PATH_MAX;
}

static bool skip_word(const char **at, const char *word)
{
	size_t len = strlen(word);

	if (strncmp(*at, word, len) != 0)
		return false;
	*at += len;
	return true;
}

static bool take_number(const char **at, int base, uint64_t *ret_n)
{
	char *end;

	if (!isxdigit((unsigned char)**at))
		return false;
	errno = 0;
	*ret_n = strtoull(*at, &end, base);
	if (errno != 0 || end == *at)
		return false;
	*at = end;
	return true;
}

static bool take_cursor(const char *at, struct chunk_id *ret_id, bool *ret_held)
{
	char volume[2 * VOLUME_ID_LEN + 1];

	if (!skip_word(&at, "\ncursor ") || strlen(at) < sizeof(volume))
		return false;
	memcpy(volume, at, sizeof(volume) - 1);
	volume[sizeof(volume) - 1] = '\0';
	at += sizeof(volume) - 1;
	if (hash_unhex(volume, ret_id->volume.bytes, VOLUME_ID_LEN) < 0 || !skip_word(&at, " ") ||
		!take_number(&at, 16, &ret_id->lineage) || !skip_word(&at, " ") ||
		!take_number(&at, 10, &ret_id->chunk))
		return false;
	*ret_held = skip_word(&at, " held");
	return true;
}

static bool parse(struct scrub *s, const char *text)
{
	struct chunk_id id;
	bool held = false;

	if (!skip_word(&text, "started ") || !take_number(&text, 10, &s->pass_started))
		return false;
	s->in_pass = take_cursor(text, &id, &held);
	s->has_cursor = s->in_pass;
	s->held_done = !held;
	if (s->in_pass)
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
			"cursor %s %016" PRIx64 " %" PRIu64 "%s\n", volume, s->cursor.lineage,
			s->cursor.chunk, s->held_done ? "" : " held");
	}
	s->saved_ns = clock_mono_ns();
	pthread_mutex_unlock(&s->lock);
	r = file_write_atomic(path, text, (size_t)n, 0600);
	if (r < 0)
		LOG_LIMITED(LOG_WARN, "position of the scrub not stored",
			"path=\"%s\" cause=%s next=\"after a restart the pass begins again\"", path,
			err_name(r));
}
