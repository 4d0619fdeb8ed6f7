/* Former owners of slots. See former.h. */
#include "cacheworker/former.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "cacheworker/kept.h"
#include "cacheworker/worker.h"
#include "cluster/view.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME  "former"
#define MAGIC_LEN  8u
#define SLOT_BYTES ((1u + FORMER_EACH) * 2u)
#define BODY_BYTES (MAGIC_LEN + PLACEMENT_SLOTS * SLOT_BYTES)
#define FILE_BYTES (BODY_BYTES + 8u)

static const uint8_t file_magic[MAGIC_LEN] = { 'G', 'R', 'N', 'F', 'O', 'R', 'M', '1' };

static int file_path(const struct worker *w, char out[PATH_MAX])
{
	char dir[PATH_MAX];
	int r = kept_dir(w, dir);

	if (r < 0)
		return r;
	return snprintf(out, PATH_MAX, "%s/" FILE_NAME, dir) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static void encode(const struct former_slot *slots, uint8_t *out)
{
	uint64_t sum;

	memcpy(out, file_magic, MAGIC_LEN);
	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++) {
		uint16_t numbers[1 + FORMER_EACH] = { htole16(slots[i].owner) };

		for (uint32_t k = 0; k < FORMER_EACH; k++)
			numbers[1 + k] = htole16(slots[i].former[k]);
		memcpy(out + MAGIC_LEN + (size_t)i * SLOT_BYTES, numbers, SLOT_BYTES);
	}
	sum = htole64(hash_xxh3(out, BODY_BYTES, 0));
	memcpy(out + BODY_BYTES, &sum, sizeof(sum));
}

static bool decode(const uint8_t *in, size_t len, struct former_slot *slots)
{
	uint64_t sum;

	if (len != FILE_BYTES || memcmp(in, file_magic, MAGIC_LEN) != 0)
		return false;
	memcpy(&sum, in + BODY_BYTES, sizeof(sum));
	if (le64toh(sum) != hash_xxh3(in, BODY_BYTES, 0))
		return false;
	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++) {
		uint16_t numbers[1 + FORMER_EACH];

		memcpy(numbers, in + MAGIC_LEN + (size_t)i * SLOT_BYTES, SLOT_BYTES);
		slots[i].owner = le16toh(numbers[0]);
		for (uint32_t k = 0; k < FORMER_EACH; k++)
			slots[i].former[k] = le16toh(numbers[1 + k]);
	}
	return true;
}

static void load(struct worker *w)
{
	_cleanup_(buf_release) struct buf data = BUF_INIT(FILE_BYTES + 1);
	char path[PATH_MAX];

	memset(w->former.slots, 0xff, PLACEMENT_SLOTS * sizeof(*w->former.slots)); /* none */
	if (file_path(w, path) < 0 || file_read_all(path, &data) < 0)
		return;
	if (!decode((const uint8_t *)data.data, data.len, w->former.slots)) {
		memset(w->former.slots, 0xff, PLACEMENT_SLOTS * sizeof(*w->former.slots));
		log_warn("previous owners of slots unknown",
			"file=%s why=damaged next=\"data that only these have is fetched again\"",
			path);
	}
}

static void save(struct worker *w)
{
	_cleanup_free_ uint8_t *data = malloc(FILE_BYTES);
	char path[PATH_MAX];
	int r = file_path(w, path);

	if (r == -ENODEV)
		return;
	if (r == 0 && !data)
		r = -ENOMEM;
	if (r == 0) {
		pthread_mutex_lock(&w->former.lock);
		encode(w->former.slots, data);
		pthread_mutex_unlock(&w->former.lock);
		r = file_write_atomic(path, data, FILE_BYTES, 0600);
	}
	if (r < 0)
		LOG_LIMITED(LOG_WARN, "previous owners of slots not stored",
			"error=%s next=\"stored with the next table\"", err_name(r));
}

/* `number` owned it and does so no more. */
static void push(struct former_slot *slot, uint16_t number)
{
	uint32_t at = 0;

	if (number == PLACEMENT_NONE || slot->former[0] == number)
		return;
	while (at < FORMER_EACH - 1 && slot->former[at] != number)
		at++;
	memmove(&slot->former[1], &slot->former[0], at * sizeof(slot->former[0]));
	slot->former[0] = number;
}

/* True when something of it changed. */
static bool follow(struct former_slot *slot, const struct placement_slot *now)
{
	struct former_slot before = *slot;

	if (slot->owner != now->owner)
		push(slot, slot->owner);
	push(slot, now->previous);
	slot->owner = now->owner;
	return memcmp(&before, slot, sizeof(before)) != 0;
}

static void run_save(struct pool_job *job)
{
	struct worker *w = container_of(job, struct worker, former.job);

	pthread_mutex_lock(&w->former.lock);
	w->former.queued = false;
	pthread_mutex_unlock(&w->former.lock);
	save(w);
}

void former_note_table(struct worker *w)
{
	struct former *former = &w->former;
	bool changed = false;

	pthread_mutex_lock(&former->lock);
	for (uint32_t i = 0; former->slots && i < PLACEMENT_SLOTS; i++) {
		struct placement_slot now;

		view_slot(w->view, i, &now);
		if (now.owner != PLACEMENT_NONE)
			changed |= follow(&former->slots[i], &now);
	}
	if (changed && !former->queued)
		former->queued = pool_submit(w->control, &former->job) == 0;
	pthread_mutex_unlock(&former->lock);
}

uint32_t former_of(struct worker *w, uint32_t slot, uint16_t out[FORMER_EACH])
{
	uint32_t n = 0;

	pthread_mutex_lock(&w->former.lock);
	for (uint32_t i = 0; w->former.slots && i < FORMER_EACH; i++) {
		uint16_t number = w->former.slots[slot % PLACEMENT_SLOTS].former[i];

		if (number != PLACEMENT_NONE)
			out[n++] = number;
	}
	pthread_mutex_unlock(&w->former.lock);
	return n;
}

int former_open(struct worker *w)
{
	pthread_mutex_init(&w->former.lock, NULL);
	w->former.job.run = run_save;
	w->former.slots = calloc(PLACEMENT_SLOTS, sizeof(*w->former.slots));
	if (!w->former.slots)
		return -ENOMEM;
	load(w);
	return 0;
}

void former_close(struct worker *w)
{
	if (!w->former.slots)
		return;
	free(TAKE(w->former.slots));
	pthread_mutex_destroy(&w->former.lock);
}
