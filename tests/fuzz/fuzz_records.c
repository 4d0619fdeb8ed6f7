/*
 * Fuzzer of what the master's state consists of: the first byte picks a record of its store (a source, a generation, the
 * cluster, a preload, a dataset, a worker, the slot table) or a backup's file.
 *
 * A record that decodes is written in one way only, and reads the same; what is refused has its line and leaves no memory
 * behind. A backup's foot is put right first, so that damage gets past it; one that passes has as many parts and bytes as
 * the check says.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/hash.h"
#include "master/backup.h"
#include "master/dataset.h"
#include "master/members.h"
#include "master/preload.h"
#include "master/slots.h"
#include "tests/fuzz/seeds.h"

#define TEXT_BYTES (1u << 20)

enum parser {
	PARSER_SOURCE,
	PARSER_GENERATION,
	PARSER_CLUSTER,
	PARSER_PRELOAD,
	PARSER_DATASET,
	PARSER_MEMBER,
	PARSER_SLOTS,
	PARSER_BACKUP,
	PARSERS,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- a store of few values ------------------------------------------------------------------- */

#define ENTRIES_MAX 4u

struct entry {
	const char *key;
	struct buf value;
};

struct values {
	struct store store;
	struct entry all[ENTRIES_MAX]; /* by key */
	uint32_t n;
};

static int get(struct store *store, const char *key, struct buf *out)
{
	struct values *v = container_of(store, struct values, store);

	for (uint32_t i = 0; i < v->n; i++)
		if (strcmp(v->all[i].key, key) == 0)
			return buf_append(out, v->all[i].value.data, v->all[i].value.len);
	return -ENOENT;
}

static int scan(struct store *store, const char *prefix, store_visit visit, void *arg)
{
	struct values *v = container_of(store, struct values, store);
	int r = 0;

	for (uint32_t i = 0; i < v->n && r == 0; i++)
		if (strncmp(v->all[i].key, prefix, strlen(prefix)) == 0)
			r = visit(
				arg, v->all[i].key, buf_str(&v->all[i].value), v->all[i].value.len);
	return r;
}

static const struct store_ops ops = { .get = get, .scan = scan };

static struct buf *add(struct values *v, const char *key)
{
	struct entry *entry = &v->all[v->n++];

	ensure(v->n <= ENTRIES_MAX);
	v->store.ops = &ops;
	*entry = (struct entry){ .key = key, .value = BUF_INIT(STORE_VALUE_BYTES) };
	return &entry->value;
}

static void values_release(struct values *v)
{
	for (uint32_t i = 0; i < v->n; i++)
		buf_release(&v->all[i].value);
}

/* ---- records --------------------------------------------------------------------------------- */

static int again_source(const void *data, size_t len, struct buf *out)
{
	struct record_source record;
	int r = record_source_decode(data, len, &record);

	if (r < 0)
		return r;
	ensure(record.text && record.config.prefix && record.drop.n <= RECORD_DROP_MAX);
	ensure(copies_valid(record.policy.copies));
	r = record_source_encode(&record, out);
	record_source_release(&record);
	ensure(r == 0);
	return 0;
}

static int again_generation(const void *data, size_t len, struct buf *out)
{
	struct record_generation record;
	int r = record_generation_decode(data, len, &record);

	if (r == 0)
		ensure(record_generation_encode(&record, out) == 0);
	return r;
}

static int again_cluster(const void *data, size_t len, struct buf *out)
{
	struct record_cluster record;
	int r = record_cluster_decode(data, len, &record);

	if (r < 0)
		return r;
	ensure(memchr(record.uuid, '\0', sizeof(record.uuid)));
	ensure(record_cluster_encode(&record, out) == 0);
	return 0;
}

static int again_preload(const void *data, size_t len, struct buf *out)
{
	struct preload_record record;
	int r = preload_record_decode(data, len, &record);

	if (r < 0)
		return r;
	ensure(record.id && record.target && record.n_paths <= PRELOAD_PATHS_MAX);
	ensure(record.n_parts <= PRELOAD_PARTS_KEPT &&
		memchr(record.reason, '\0', sizeof(record.reason)));
	r = preload_record_encode(&record, out);
	preload_record_release(&record);
	ensure(r == 0);
	return 0;
}

static int again_dataset(const void *data, size_t len, struct buf *out)
{
	struct dataset d;
	int r = dataset_decode(data, len, &d);

	if (r < 0)
		return r;
	ensure(d.n_mounts >= 1 && d.n_mounts <= DATASET_MOUNTS_MAX);
	ensure(d.n_pins <= DATASET_PINS_MAX && d.n_shown <= DATASET_MOUNTS_MAX);
	ensure(dataset_check_name(d.name, NULL) == 0);
	r = dataset_encode(&d, out);
	dataset_release(&d);
	ensure(r == 0);
	return 0;
}

static int again_member(const void *data, size_t len, struct buf *out)
{
	const struct members_config config = { .out_after_ns = MEMBER_OUT_NS };
	struct values v = { .n = 0 };
	static struct members members;
	struct err e = ERR_INIT;
	int r;

	ensure(buf_append(add(&v, "member/00001"), data, len) == 0);
	ensure(members_init(&members, &config, 1) == 0);
	r = members_load(&members, &v.store, 1, &e);
	if (r < 0)
		fuzz_check_line(&e);
	for (uint32_t i = 0; i < PLACEMENT_MAX && r == 0; i++)
		if (members.all[i]) {
			ensure(members.all[i]->number == i &&
				members.all[i]->n_addresses <= CLUSTER_ADDRESSES);
			ensure(member_encode(members.all[i], out) == 0);
		}
	members_release(&members);
	values_release(&v);
	return r;
}

/* The slots follow what the input has of the head, and some of its bytes are the first of them. */
static int again_slots(const void *data, size_t len, struct buf *out)
{
	static uint8_t zeros[SLOTS_BYTES];
	struct values v = { .n = 0 };
	struct buf *value = add(&v, "slots");
	size_t head = len < 24 ? len : 16;
	static struct slots slots;
	struct err e = ERR_INIT;
	int r;

	ensure(buf_append(value, data, len) == 0);
	if (len < head + SLOTS_BYTES)
		ensure(buf_append(value, zeros, head + SLOTS_BYTES - len) == 0);
	r = slots_open(&v.store, 7, &slots, &e);
	if (r < 0) {
		fuzz_check_line(&e);
	} else {
		ensure(slots_encode(&slots.table->table, slots.sequence, out) == 0);
		ensure(memcmp(out->data + out->len - SLOTS_BYTES,
			       value->data + value->len - SLOTS_BYTES, SLOTS_BYTES) == 0);
		slots_release(&slots);
	}
	values_release(&v);
	return r;
}

static int (*const again[])(const void *data, size_t len, struct buf *out) = {
	[PARSER_SOURCE] = again_source,
	[PARSER_GENERATION] = again_generation,
	[PARSER_CLUSTER] = again_cluster,
	[PARSER_PRELOAD] = again_preload,
	[PARSER_DATASET] = again_dataset,
	[PARSER_MEMBER] = again_member,
	[PARSER_SLOTS] = again_slots,
};

static void check_record(enum parser parser, const uint8_t *data, size_t size)
{
	struct buf first = BUF_INIT(TEXT_BYTES);
	struct buf second = BUF_INIT(TEXT_BYTES);
	struct err e = ERR_INIT;
	int r = again[parser](data, size, &first);

	if (r < 0) {
		ensure(r == -EBADMSG || r == -EPROTONOSUPPORT || r == -EINVAL);
		ensure(record_refuse(&e, r, "a record") == r);
		fuzz_check_line(&e);
	} else {
		ensure(again[parser](first.data, first.len, &second) == 0);
		ensure(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
	}
	buf_release(&first);
	buf_release(&second);
}

/* ---- backups --------------------------------------------------------------------------------- */

/* The sum of all that is before the last line. */
static void put_sum_right(struct buf *file)
{
	static const char name[] = "\"sha256\":\"";
	char *last = file->len > 1 ? memrchr(file->data, '\n', file->len - 1) : NULL;
	char *sum =
		last ? memmem(last, file->len - (size_t)(last - file->data), name, sizeof(name) - 1)
		     : NULL;
	struct hash_sha256 *sha;
	uint8_t bytes[SHA256_BYTES];
	char hex[2 * SHA256_BYTES + 1];

	if (!sum || (size_t)(file->data + file->len - sum) < sizeof(name) + 2 * SHA256_BYTES)
		return;
	sha = hash_sha256_new();
	ensure(sha);
	hash_sha256_update(sha, file->data, (size_t)(last + 1 - file->data));
	hash_sha256_final(sha, bytes);
	hash_hex(bytes, sizeof(bytes), hex);
	memcpy(sum + sizeof(name) - 1, hex, 2 * SHA256_BYTES);
}

static void check_backup(const uint8_t *data, size_t size)
{
	struct buf file = BUF_INIT(TEXT_BYTES);
	struct backup_stats stats;
	struct err e = ERR_INIT;

	ensure(buf_append(&file, data, size) == 0);
	put_sum_right(&file);
	if (backup_check(fuzz_file(buf_str(&file), file.len), &stats, &e) < 0) {
		fuzz_check_line(&e);
	} else {
		ensure(stats.bytes == file.len && stats.records + stats.tables <= file.len / 2);
		ensure(strlen(stats.cluster.uuid) == sizeof(stats.cluster.uuid) - 1);
		ensure(memchr(stats.time, '\0', sizeof(stats.time)));
	}
	buf_release(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum parser parser = size ? (enum parser)(data[0] % PARSERS) : PARSERS;

	if (size == 0 || size > TEXT_BYTES / 4)
		return 0;
	if (parser == PARSER_BACKUP)
		check_backup(data + 1, size - 1);
	else
		check_record(parser, data + 1, size - 1);
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static void seed(enum parser parser, const char *name, struct buf *text)
{
	fuzz_seed_for((uint8_t)parser, name, text->data, text->len);
	buf_release(text);
}

static struct ufs_config a_config(void)
{
	struct ufs_config config;

	ensure(ufs_config_parse("s3://bucket/prefix/", &config, NULL) == 0);
	return config;
}

static void encode_generation(struct buf *out)
{
	const struct record_generation record = {
		.id = { .volume = { { 1 } }, .lineage = 2, .generation = 3 },
		.serial = 4,
		.rows = 5,
		.kept = true
	};

	ensure(record_generation_encode(&record, out) == 0);
}

static void encode_cluster(struct buf *out)
{
	const struct record_cluster record = { .uuid = "00112233445566778899aabbccddeeff",
		.epoch = 7 };

	ensure(record_cluster_encode(&record, out) == 0);
}

static void seed_source(void)
{
	static const char *const paths[] = { "*.jpg", "a/**" };
	struct record_source record = {
		.volume = { { 1 } }, .config = a_config(), .used = 5, .policy.quota = 6
	};
	struct buf out = BUF_INIT(TEXT_BYTES);

	record.policy.copies = COPIES_AUTO;
	record.text = strdup("s3://bucket/prefix/");
	ensure(record_drop_init(&record.drop, paths, ARRAY_SIZE(paths), "a/", "b/") == 0);
	record.drop.serial = 8;
	ensure(record_source_encode(&record, &out) == 0);
	record_source_release(&record);
	seed(PARSER_SOURCE, "source", &out);
}

static void seed_preload(enum preload_state state, const char *name)
{
	struct preload_record record = {
		.id = 1, .volume = { { 1 } }, .lineage = 2, .state = state, .config = a_config()
	};
	struct buf out = BUF_INIT(TEXT_BYTES);

	record.target = strdup("dataset");
	record.paths[record.n_paths++] = strdup("*.jpg");
	record.parts = calloc(1, sizeof(*record.parts));
	ensure(record.parts);
	record.n_parts = 1;
	record.parts[0].worker = 3;
	ensure(preload_record_encode(&record, &out) == 0);
	preload_record_release(&record);
	seed(PARSER_PRELOAD, name, &out);
}

static void seed_dataset(void)
{
	struct dataset d = {
		.name = "data", .uuid = "00112233445566778899aabbccddeeff", .n_mounts = 2
	};
	struct buf out = BUF_INIT(TEXT_BYTES);

	for (uint32_t i = 0; i < d.n_mounts; i++) {
		d.mounts[i].volume.bytes[0] = (uint8_t)(i + 1);
		d.mounts[i].config = a_config();
		d.mounts[i].path = strdup(i ? "/b" : "/a");
		d.mounts[i].url = strdup("s3://bucket/prefix/");
		d.pins[i] = (struct dataset_generation){
			.volume = d.mounts[i].volume, .lineage = 1, .generation = 2
		};
	}
	d.n_pins = 2;
	d.shown[0] = d.pins[0];
	d.n_shown = 1;
	ensure(dataset_encode(&d, &out) == 0);
	dataset_release(&d);
	seed(PARSER_DATASET, "dataset", &out);
}

static void seed_member(void)
{
	static struct member m;
	struct buf out = BUF_INIT(TEXT_BYTES);

	m.number = 1;
	m.id = 2;
	m.weight = 3;
	(void)snprintf(m.name, sizeof(m.name), "w1");
	(void)snprintf(m.domain_name, sizeof(m.domain_name), "rack");
	m.addresses[m.n_addresses++] = strdup("tcp:10.0.0.1:7000");
	ensure(member_encode(&m, &out) == 0);
	free(m.addresses[0]);
	seed(PARSER_MEMBER, "member", &out);
}

/* Its head, and the first slots. */
static void seed_slots(void)
{
	struct slots_table *table = slots_table_copy(NULL);
	struct buf out = BUF_INIT(TEXT_BYTES);

	ensure(table && slots_encode(&table->table, 9, &out) == 0);
	slots_table_unref(table);
	out.len -= SLOTS_BYTES - 16;
	seed(PARSER_SLOTS, "slots", &out);
}

/* Of a store of two records, one of which has a table. */
static void seed_backup(void)
{
	static const char table[] = "01000000000000000000000000000000.0000000000000002.3";
	char dir[] = "/dev/shm/granary-fuzz-XXXXXX";
	struct buf out = BUF_INIT(TEXT_BYTES);
	struct values v = { .n = 0 };
	struct backup_stats stats;
	struct err e = ERR_INIT;
	char in_dir[128];
	char file[128];

	encode_cluster(add(&v, "cluster"));
	encode_generation(
		add(&v, "generation/01000000000000000000000000000000/00000000000000000004"));
	ensure(mkdtemp(dir));
	(void)snprintf(in_dir, sizeof(in_dir), "%s/%s", dir, table); /* fits */
	(void)snprintf(file, sizeof(file), "%s.backup", dir);        /* likewise */
	ensure(file_write_atomic(in_dir, "a table", 7, 0600) == 0);
	ensure(backup_write(&v.store, dir, file, &stats, &e) == 0);
	ensure(file_read_all(file, &out) == 0);
	(void)unlink(in_dir);
	(void)unlink(file);
	(void)rmdir(dir);
	values_release(&v);
	seed(PARSER_BACKUP, "backup", &out);
}

void fuzz_seeds(void)
{
	struct buf out = BUF_INIT(TEXT_BYTES);

	encode_generation(&out);
	seed(PARSER_GENERATION, "generation", &out);
	out = BUF_INIT(TEXT_BYTES);
	encode_cluster(&out);
	seed(PARSER_CLUSTER, "cluster", &out);
	seed_source();
	seed_preload(PRELOAD_LISTING, "preload-listing");
	seed_preload(PRELOAD_RUNNING, "preload-running");
	seed_dataset();
	seed_member();
	seed_slots();
	seed_backup();
}
