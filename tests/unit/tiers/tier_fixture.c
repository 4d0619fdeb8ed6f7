#include "tests/unit/tiers/tier_fixture.h"

#include <pthread.h>
#include "base/crash_point.h"
#include "tiers/tier_set_internal.h"

void fixture_open(struct fixture *f)
{
	struct tier_config config = { .path = f->path, .capacity = f->capacity, .create = true };
	struct err e = ERR_INIT;
	int r = tier_set_open(&config, 1, &f->set, &e);

	if (r < 0)
		print_error("%s\n", e.text);
	assert_int_equal(r, 0);
}

void fixture_close(struct fixture *f)
{
	tier_set_free(f->set);
	f->set = NULL;
}

void fixture_reopen(struct fixture *f)
{
	fixture_close(f);
	fixture_open(f);
}

static int fixture_setup_in(void **state, const char *parent)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	(void)snprintf(f->root, sizeof(f->root), "%s/granary-test-XXXXXX", parent);
	assert_non_null(mkdtemp(f->root));
	(void)snprintf(f->path, sizeof(f->path), "%s/tier", f->root);
	f->capacity = GiB;
	*state = f;
	return 0;
}

int fixture_setup(void **state)
{
	const char *parent = getenv("TMPDIR");

	return fixture_setup_in(state, parent ? parent : "/var/tmp"); /* a disk, not tmpfs */
}

static int fixture_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void fixture_remove_tree(const char *path)
{
	(void)nftw(path, fixture_remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

int fixture_teardown(void **state)
{
	struct fixture *f = *state;

	tier_set_free(f->set);
	fixture_remove_tree(f->root);
	free(f);
	return 0;
}

struct chunk_id chunk_number(uint64_t n)
{
	struct chunk_id id = { .lineage = 77, .chunk = n };

	memset(id.volume.bytes, 0xa5, sizeof(id.volume.bytes));
	return id;
}

void pattern(uint64_t seed, uint8_t *out, size_t len)
{
	uint64_t x = seed * 0x9E3779B97F4A7C15ull + 1;

	for (size_t i = 0; i < len; i += sizeof(x)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(out + i, &x, len - i < sizeof(x) ? len - i : sizeof(x));
	}
}

struct piece_run run_of(uint32_t offset, uint32_t length, uint64_t seed)
{
	return (struct piece_run){ .offset = offset, .length = length, .object_seed = seed };
}

int write_run(struct fixture *f, uint64_t n, const struct piece_run *run)
{
	uint8_t *data = malloc(run->length + 1); /* also of runs that are refused */
	struct chunk_id id = chunk_number(n);
	struct chunk *chunk;
	int r;

	assert_non_null(data);
	do { /* -EAGAIN: it was moved meanwhile */
		chunk = NULL;
		r = tier_chunk_admit(f->set, &id, &chunk);
		if (r == 0) {
			pattern(run->object_seed, data, run->length);
			r = chunk_write(chunk, run, data);
		}
		chunk_unref(chunk);
	} while (r == -EAGAIN);
	free(data);
	return r;
}

int read_run(struct fixture *f, uint64_t n, const struct piece_run *run)
{
	uint8_t *want = malloc(run->length);
	uint8_t *data = malloc(run->length + 1); /* also of runs that are refused */
	struct chunk_id id = chunk_number(n);
	struct chunk *chunk = tier_chunk_find(f->set, &id);
	int r = -ENODATA;

	assert_non_null(want);
	assert_non_null(data);
	if (chunk)
		r = chunk_read(chunk, run, data);
	if (r == 0) {
		pattern(run->object_seed, want, run->length);
		if (memcmp(want, data, run->length) != 0)
			r = -EILSEQ;
	}
	chunk_unref(chunk);
	free(want);
	free(data);
	return r;
}

uint32_t each_chunk_file(struct fixture *f, void (*fn)(const char *path, void *arg), void *arg)
{
	uint32_t n = 0;

	for (unsigned int i = 0; i < 256; i++) {
		char dir[400];
		struct dirent *entry;
		DIR *d;

		(void)snprintf(dir, sizeof(dir), "%s/chk/%02x", f->path, i);
		d = opendir(dir);
		while (d && (entry = readdir(d))) {
			char path[800];

			if (entry->d_name[0] == '.')
				continue;
			(void)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
			if (fn)
				fn(path, arg);
			n++;
		}
		if (d)
			closedir(d);
	}
	return n;
}

void keep_path(const char *path, void *arg)
{
	(void)snprintf(arg, 800, "%s", path);
}

void only_file(struct fixture *f, char out[800])
{
	assert_int_equal(each_chunk_file(f, keep_path, out), 1);
}

void flip_byte(const char *path, off_t offset)
{
	int fd;
	uint8_t b;

	assert_int_equal(chmod(path, 0600), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &b, 1, offset), 1);
	b ^= 0x10;
	assert_int_equal(pwrite(fd, &b, 1, offset), 1);
	close(fd);
}

static struct {
	struct fixture *f;
	const char *point;
	uint64_t n;
	struct piece_run run;
	pthread_t here;
	pthread_t next;
	bool dropped;
	bool taken; /* the name was not free after the drop */
} dropping;

static bool keep_others(void *arg, uint64_t chunk)
{
	(void)arg;
	return chunk != dropping.n;
}

static void *write_next_life(void *arg)
{
	return write_run(dropping.f, dropping.n, &dropping.run) == 0 ? arg : NULL;
}

static void on_dropping(const char *point)
{
	struct chunk_id id = chunk_number(dropping.n);
	struct tier_set *set = dropping.f->set;
	uint64_t hash = set_hash(&id);
	struct shard *shard = set_shard(set, hash);

	if (!pthread_equal(pthread_self(), dropping.here) || dropping.dropped ||
		strcmp(point, dropping.point) != 0)
		return;
	dropping.dropped = true;
	(void)tier_set_drop(set, &id.volume, id.lineage, keep_others, NULL);
	assert_null(tier_chunk_find(set, &id));
	pthread_mutex_lock(&shard->lock);
	dropping.taken = set_find_locked(shard, &id, hash) != NULL;
	pthread_mutex_unlock(&shard->lock);
	assert_int_equal(pthread_create(&dropping.next, NULL, write_next_life, &dropping), 0);
}

void drop_at(struct fixture *f, const char *point, uint64_t n, const struct piece_run *run)
{
	dropping = (typeof(dropping)){
		.f = f, .point = point, .n = n, .run = *run, .here = pthread_self()
	};
	crash_point_hook = on_dropping;
}

void drop_at_end(void)
{
	void *written = NULL;

	assert_true(dropping.dropped);
	assert_int_equal(pthread_join(dropping.next, &written), 0);
	crash_point_hook = NULL;
	assert_true(dropping.taken);
	assert_non_null(written);
}

void another_boot(struct fixture *f)
{
	struct identity identity;

	assert_int_equal(identity_load(f->path, &identity, NULL), 0);
	strcpy(identity.boot_id, "11111111-2222-3333-4444-555555555555");
	assert_int_equal(identity_store(f->path, &identity), 0);
}

struct tier_status status_of(struct fixture *f)
{
	struct tier_status status;

	tier_set_status(f->set, 0, &status);
	return status;
}

bool tier_is(struct fixture *f, const char *state)
{
	return strcmp(status_of(f).state, state) == 0;
}
