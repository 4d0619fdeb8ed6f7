/* Which generations a source has, which of them keep their table, and what they are called on
 * disk. */
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "master/source_internal.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

const struct record_generation *generations_newest(const struct source *source)
{
	return source->n ? &source->generations[source->n - 1] : NULL;
}

const struct record_generation *generations_find(
	const struct source *source, uint64_t lineage, uint64_t generation)
{
	const struct record_generation *newest = generations_newest(source);

	if (!newest)
		return NULL;
	if (lineage == 0)
		lineage = newest->id.lineage;
	for (uint32_t i = source->n; i-- > 0;) {
		const struct record_generation *g = &source->generations[i];

		if (g->kept && g->id.lineage == lineage &&
			(generation == 0 || g->id.generation == generation))
			return g;
	}
	return NULL;
}

void source_set_seal(const struct source_set *set, const struct volume_id *volume,
	const struct source_seen *of, uint8_t out[SHA256_BYTES])
{
	struct {
		char label[24];
		struct volume_id volume;
		uint64_t lineage;
		uint64_t generation;
		uint8_t hash[SHA256_BYTES];
	} text = { "granary generation seal", *volume, of->lineage, of->generation, { 0 } };

	static_assert(sizeof(text) == 24 + VOLUME_ID_LEN + 16 + SHA256_BYTES, "no padding");
	memcpy(text.hash, of->hash, SHA256_BYTES);
	hash_hmac_sha256(set->config.seal_key, SHA256_BYTES, &text, sizeof(text), out);
}

/* Did this master make it, or one whose state this is a copy of? */
static bool is_sealed(const struct source *source, const struct source_seen *seen)
{
	uint8_t seal[SHA256_BYTES];

	source_set_seal(source->set, &source->record.volume, seen, seal);
	return source->set->config.believe_unsealed || hash_equal(seal, seen->seal, sizeof(seal));
}

struct generation_id generations_newest_sealed(const struct source *source)
{
	struct generation_id id;
	struct source_seen of;

	ensure(source->n > 0);
	id = source->generations[source->n - 1].id;
	of = (struct source_seen){ .lineage = id.lineage, .generation = id.generation };
	memcpy(of.hash, id.hash, SHA256_BYTES);
	source_set_seal(source->set, &source->record.volume, &of, id.seal);
	return id;
}

/* Can it not be of this master's history? */
static bool differs(const struct source *source, const struct source_seen *seen)
{
	const struct record_generation *newest = generations_newest(source);

	if (seen->lineage == 0 || !newest || newest->id.lineage != seen->lineage)
		return false; /* another lineage gives no offset of this one a meaning */
	if (seen->generation > newest->id.generation)
		return true;
	for (uint32_t i = 0; i < source->n; i++) {
		const struct generation_id *id = &source->generations[i].id;

		if (id->lineage == seen->lineage && id->generation == seen->generation)
			return memcmp(id->hash, seen->hash, SHA256_BYTES) != 0;
	}
	return false; /* older than what is remembered */
}

bool generations_contradict(
	const struct source *source, const struct source_seen *seen, bool *ret_unsealed)
{
	bool contradicts = differs(source, seen);

	*ret_unsealed = contradicts && !is_sealed(source, seen);
	return contradicts && !*ret_unsealed;
}

void generations_refuse_unsealed(const struct source *source, const struct source_seen *seen)
{
	LOG_LIMITED(LOG_WARN, "conflicting state rejected",
		"source=\"%s\" seen=%" PRIu64
		" why=\"not sealed by this master\" next=\"none; if a backup of an earlier version "
		"was restored, restart the master with --believe-unsealed\"",
		source->record.text, seen->generation);
}

int generations_path(const struct source *source, const struct generation_id *id, struct buf *out)
{
	char volume[2 * VOLUME_ID_LEN + 1];

	hash_hex(id->volume.bytes, VOLUME_ID_LEN, volume);
	return buf_printf(out, "%s/%s.%016" PRIx64 ".%" PRIu64, source->set->config.tables, volume,
		id->lineage, id->generation);
}

int generations_open_table(const struct source *source, const struct generation_id *id, int *ret_fd)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_MAX);
	int r = generations_path(source, id, &path);
	int fd;

	if (r < 0)
		return r;
	fd = open(buf_str(&path), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_errno();
	*ret_fd = fd;
	return 0;
}

/* Policy and the like may be changed by others meanwhile. */
static int encode_source(struct source *source, struct buf *out)
{
	int r;

	pthread_mutex_lock(&source->set->lock);
	r = record_source_encode(&source->record, out);
	pthread_mutex_unlock(&source->set->lock);
	return r;
}

/* Under write_lock. */
static int store_generation_locked(
	struct source *source, const struct record_generation *generation)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	_cleanup_(buf_release) struct buf config = BUF_INIT(STORE_VALUE_BYTES);
	struct store *store = source->set->config.store;
	char key[RECORD_KEY_BYTES];
	char source_key[RECORD_KEY_BYTES];
	int r = record_generation_encode(generation, &value);

	if (r < 0)
		return r;
	record_generation_key(&source->record.volume, generation->serial, key);
	record_source_key(&source->record.volume, source_key);
	r = encode_source(source, &config);
	if (r == 0)
		r = store->ops->write(store,
			(struct store_change[]){ { key, value.data, value.len },
				{ source_key, config.data, config.len } },
			2);
	return r;
}

static int store_generation(struct source *source, const struct record_generation *generation)
{
	int r;

	pthread_mutex_lock(&source->set->write_lock);
	r = store_generation_locked(source, generation);
	pthread_mutex_unlock(&source->set->write_lock);
	return r;
}

/* Of a source without a generation there is no record yet: the next flight writes it. */
static bool is_stored(struct source *source)
{
	bool stored;

	pthread_mutex_lock(&source->set->lock);
	stored = source->n > 0;
	pthread_mutex_unlock(&source->set->lock);
	return stored;
}

int generations_store_source(struct source *source)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	struct store *store = source->set->config.store;
	char key[RECORD_KEY_BYTES];
	bool stored;
	int r;

	record_source_key(&source->record.volume, key);
	pthread_mutex_lock(&source->set->write_lock);
	stored = is_stored(source);
	r = stored ? encode_source(source, &value) : 0;
	if (r == 0 && stored)
		r = store->ops->write(
			store, &(struct store_change){ key, value.data, value.len }, 1);
	pthread_mutex_unlock(&source->set->write_lock);
	return r;
}

/* The oldest record that has no table, which a pinned one has; they are few. */
static uint32_t oldest_bare(const struct source *source)
{
	for (uint32_t i = 0; i < source->n; i++)
		if (!source->generations[i].kept)
			return i;
	return 0;
}

/* Forgets the oldest record. */
static void prune(struct source *source)
{
	uint32_t oldest = oldest_bare(source);
	struct store *store = source->set->config.store;
	char key[RECORD_KEY_BYTES];
	char held[RECORD_KEY_BYTES];
	int r;

	record_generation_key(&source->record.volume, source->generations[oldest].serial, key);
	record_held_key(&source->record.volume, source->generations[oldest].serial, held);
	r = store->ops->write(
		store, (struct store_change[]){ { key, NULL, 0 }, { held, NULL, 0 } }, 2);
	if (r < 0)
		log_warn("old generation not removed", "cause=%s", err_name(r));
	pthread_mutex_lock(&source->set->lock);
	source->n--;
	memmove(source->generations + oldest, source->generations + oldest + 1,
		(source->n - oldest) * sizeof(*source->generations));
	pthread_mutex_unlock(&source->set->lock);
}

/* Removes the table of generation i; its hash stays. */
static void drop_table(struct source *source, uint32_t i)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_MAX);
	struct record_generation copy;
	bool pinned;
	int r;

	/* Not found from here on, unless it was pinned since it was checked. */
	pthread_mutex_lock(&source->set->lock);
	copy = source->generations[i];
	copy.kept = false;
	pinned = holds_pinned(source, &copy.id);
	source->generations[i].kept = pinned;
	pthread_mutex_unlock(&source->set->lock);
	if (pinned)
		return;
	r = store_generation(source, &copy);
	if (r < 0) {
		pthread_mutex_lock(&source->set->lock);
		source->generations[i].kept = true;
		pthread_mutex_unlock(&source->set->lock);
		log_warn("old generation kept", "generation=%" PRIu64 " cause=%s",
			copy.id.generation, err_name(r));
		return;
	}
	CRASH_POINT("generation.unkept");
	if (generations_path(source, &copy.id, &path) == 0 && unlink(buf_str(&path)) != 0 &&
		errno != ENOENT)
		log_warn("old table not removed", "path=\"%s\" cause=%s", buf_str(&path),
			err_name(err_errno()));
}

/* It is mounted, and not retained: said once. */
static void lose_protection(struct source *source, uint32_t i)
{
	const struct generation_id *id = &source->generations[i].id;
	uint32_t mounts;

	pthread_mutex_lock(&source->set->lock);
	mounts = holds_count_locked(source, id->lineage, id->generation);
	pthread_mutex_unlock(&source->set->lock);
	if (mounts)
		log_warn("mounted generation not protected",
			"source=\"%s\" generation=%" PRIu64 " next=\"mount again\"",
			source->record.text, id->generation);
	else
		holds_forget_mark(source, i);
}

static bool is_retained(const uint32_t *which, uint32_t n, uint32_t i)
{
	for (uint32_t k = 0; k < n; k++)
		if (which[k] == i)
			return true;
	return false;
}

static void retain(struct source *source)
{
	uint32_t which[GENERATIONS_RETAINED];
	uint32_t n;

	pthread_mutex_lock(&source->set->lock);
	n = holds_retained_locked(source, which);
	pthread_mutex_unlock(&source->set->lock);
	for (uint32_t i = source->n; i-- > 0;) {
		if (!source->generations[i].kept || is_retained(which, n, i))
			continue;
		lose_protection(source, i);
		drop_table(source, i);
	}
	while (source->n > GENERATIONS_REMEMBERED)
		prune(source);
}

/* -ENOMEM: stored, and the next start finds it. */
static int store_and_count(struct source *source, const struct record_generation *generation)
{
	struct record_generation *grown = NULL;
	int r;

	/* What is set of a source without a generation is not stored. The record and the generation appear together under
	 * write_lock. */
	pthread_mutex_lock(&source->set->write_lock);
	r = store_generation_locked(source, generation);
	pthread_mutex_lock(&source->set->lock);
	if (r == 0)
		grown = reallocarray(source->generations, source->n + 1, sizeof(*grown));
	if (grown) {
		grown[source->n++] = *generation;
		source->generations = grown;
		source->next_serial = generation->serial + 1;
	}
	pthread_mutex_unlock(&source->set->lock);
	pthread_mutex_unlock(&source->set->write_lock);
	return r < 0 || grown ? r : -ENOMEM;
}

int generations_add(
	struct source *source, const struct record_generation *generation, struct err *e)
{
	int r = store_and_count(source, generation);

	if (r == -ENOMEM)
		return err_set(e, r, "out of memory");
	if (r < 0)
		return err_set(e, r,
			"the master's store cannot write the new generation of %s: %s: check the "
			"cache disk",
			source->record.text, err_str(r));
	retain(source);
	return 0;
}

/* ---- start ----------------------------------------------------------------------------------- */

static int load_generation(void *arg, const char *key, const void *value, size_t len)
{
	struct source *source = arg;
	struct record_generation g;
	struct record_generation *grown;
	int r = record_generation_decode(value, len, &g);

	if (r < 0) {
		log_error("invalid record", "key=%s cause=%s", key, err_name(r));
		return r;
	}
	grown = reallocarray(source->generations, source->n + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	grown[source->n++] = g;
	source->generations = grown;
	source->next_serial = g.serial + 1;
	return 0;
}

static int load_held(void *arg, const char *key, const void *value, size_t len)
{
	const char *number = strrchr(key, '/');

	(void)value;
	(void)len;
	holds_load_mark(arg, number ? strtoull(number + 1, NULL, 10) : 0);
	return 0;
}

int generations_load(struct source *source, struct err *e)
{
	struct store *store = source->set->config.store;
	char prefix[RECORD_KEY_BYTES];
	int r;

	source->next_serial = 1;
	record_generation_key(&source->record.volume, 0, prefix);
	*(strrchr(prefix, '/') + 1) = '\0';
	r = store->ops->scan(store, prefix, load_generation, source);
	if (r == 0) {
		record_held_key(&source->record.volume, 0, prefix);
		*(strrchr(prefix, '/') + 1) = '\0';
		r = store->ops->scan(store, prefix, load_held, source);
	}
	return r < 0 ? record_refuse(e, r, "a generation") : 0;
}

/* Also when it is not known, for want of memory: a table that goes takes its lineage with it. */
static bool table_named(struct source_set *set, const char *name)
{
	list_for_each (node, &set->sources) {
		const struct source *source = list_entry(node, struct source, link);

		for (uint32_t i = 0; i < source->n; i++) {
			_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_MAX);

			if (!source->generations[i].kept)
				continue;
			if (generations_path(source, &source->generations[i].id, &path) < 0 ||
				strcmp(strrchr(buf_str(&path), '/') + 1, name) == 0)
				return true;
		}
	}
	return false;
}

void generations_sweep(struct source_set *set)
{
	DIR *dir = opendir(set->config.tables);
	const struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || table_named(set, entry->d_name))
			continue;
		if (unlinkat(dirfd(dir), entry->d_name, 0) == 0)
			log_info("unnamed table removed", "name=%s", entry->d_name);
	}
	(void)closedir(dir); /* read only */
}
