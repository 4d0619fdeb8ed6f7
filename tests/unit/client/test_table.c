/* Tables from a master on another node: pulled once, kept, looked at before they are trusted. */
#include "tests/unit/client/fixture.h"

#include <dirent.h>
#include <stdatomic.h>
#include "client/client_internal.h"
#include "client/client_op.h"
#include "client/client_pieces.h"
#include "client/client_table.h"
#include "tests/unit/net/cluster_key.h"

#define LAST_BYTES 512

/* A master that hands out one file. */
struct far {
	struct fix *f;
	struct rpc_server *server;
	struct rpc_client *client;
	char path[128];
	char dir[128];
	_Atomic uint32_t asked;
};

static void on_request(struct rpc_request *request, void *arg)
{
	struct far *far = arg;
	struct frame reply = { .offset = request->frame.offset };
	struct net_payload payload = NET_PAYLOAD_NONE;
	int fd = open(far->path, O_RDONLY | O_CLOEXEC);
	struct stat st = { 0 };
	size_t n;
	char *data;

	atomic_fetch_add(&far->asked, 1);
	assert_int_equal(request->frame.op, FRAME_TABLE);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	assert_true(request->frame.offset < (uint64_t)st.st_size);
	n = min((uint64_t)st.st_size - request->frame.offset, (uint64_t)MiB);
	data = malloc(n);
	assert_non_null(data);
	assert_int_equal(file_pread_exact(fd, data, n, request->frame.offset), 0);
	(void)close(fd);
	reply.extent = (uint64_t)st.st_size;
	payload.parts[0].data = data;
	payload.parts[0].len = n;
	payload.n = 1;
	payload.release = free;
	payload.arg = data;
	rpc_reply(request, 0, &reply, payload);
}

static const struct rpc_server_ops ops = { .on_request = on_request };

static void far_open(struct far *far, struct fix *f)
{
	struct err e = ERR_INIT;

	*far = (struct far){ .f = f };
	snprintf(far->path, sizeof(far->path), "%s", f->table_path);
	snprintf(far->dir, sizeof(far->dir), "%s/far", f->dir);
	assert_int_equal(file_mkdirs(far->dir, 0700), 0);
	assert_int_equal(cluster_key_load(false), 0);
	assert_int_equal(
		rpc_server_new(f->loop, "tcp:127.0.0.1:0", &ops, far, &far->server, &e), 0);
	assert_int_equal(
		rpc_client_new(f->loop, rpc_server_address(far->server), &far->client, &e), 0);
}

static void far_close(struct far *far)
{
	rpc_client_free(far->client);
	rpc_server_free(far->server);
	assert_int_equal(cluster_key_forget(), 0);
}

static int take_named(
	struct far *far, const struct client_table_named *named, const char *dir, struct err *e)
{
	struct table *table = NULL;
	int r = client_table_take(far->client, named, -1, dir, &table, e);

	if (r == 0) {
		assert_memory_equal(
			table_info(table)->id.hash, named->id.hash, sizeof(named->id.hash));
		assert_true(table_info(table)->part == named->part);
	}
	table_unref(table);
	return r;
}

static int take(struct far *far, const struct generation_id *id, const char *dir, struct err *e)
{
	const struct client_table_named named = { .id = *id };

	return take_named(far, &named, dir, e);
}

/* Names that end so, in the directory. */
static uint32_t count(const char *dir, const char *suffix, char *ret_last)
{
	const struct dirent *entry;
	uint32_t n = 0;
	DIR *d = opendir(dir);

	assert_non_null(d);
	while ((entry = readdir(d)) != NULL)
		if (strlen(entry->d_name) > strlen(suffix) &&
			strcmp(entry->d_name + strlen(entry->d_name) - strlen(suffix), suffix) ==
				0) {
			n++;
			snprintf(ret_last, LAST_BYTES, "%s/%s", dir, entry->d_name);
		}
	(void)closedir(d);
	return n;
}

static void damage(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(file_pwrite_exact(fd, "damaged", 7, 200), 0); /* in the first block */
	(void)close(fd);
}

static void test_pulled_and_kept(void **state)
{
	struct fix *f = *state;
	struct generation_id id = table_info(client_volume_table(f->volume))->id;
	struct far far;
	struct err e = ERR_INIT;
	char last[LAST_BYTES];
	uint32_t asked;

	far_open(&far, f);
	assert_int_equal(take(&far, &id, NULL, &e), 0); /* in memory */
	assert_int_equal(count(far.dir, ".table", last), 0);
	assert_int_equal(take(&far, &id, far.dir, &e), 0);
	assert_int_equal(count(far.dir, "", last), 3); /* and "." and ".." */
	assert_int_equal(count(far.dir, ".table", last), 1);
	asked = atomic_load(&far.asked);
	assert_int_equal(take(&far, &id, far.dir, &e), 0);
	assert_int_equal(atomic_load(&far.asked), asked); /* the one that is there */
	damage(last);
	assert_int_equal(take(&far, &id, far.dir, &e), 0);
	assert_true(atomic_load(&far.asked) > asked); /* again */
	assert_int_equal(truncate(last, 100), 0);
	assert_int_equal(take(&far, &id, far.dir, &e), 0);
	assert_int_equal(count(far.dir, ".table", last), 1);
	asked = atomic_load(&far.asked);
	assert_int_equal(take(&far, &id, far.dir, &e), 0);
	assert_int_equal(atomic_load(&far.asked), asked);
	far_close(&far);
}

static void test_another_than_announced(void **state)
{
	struct fix *f = *state;
	struct generation_id id = table_info(client_volume_table(f->volume))->id;
	struct far far;
	struct err e = ERR_INIT;
	char last[LAST_BYTES];

	far_open(&far, f);
	id.hash[3] ^= 1;
	assert_int_equal(take(&far, &id, far.dir, &e), -EBADMSG);
	assert_non_null(strstr(e.text, "another object table"));
	id.hash[3] ^= 1;
	id.generation++;
	assert_int_equal(take(&far, &id, far.dir, &e), -EBADMSG);
	assert_int_equal(count(far.dir, ".table", last), 0);
	id.generation--;
	snprintf(far.path, sizeof(far.path), "%s/no-table", f->dir);
	assert_int_equal(file_write_atomic(far.path, "no table at all", 15, 0600), 0);
	e = ERR_INIT;
	assert_true(take(&far, &id, far.dir, &e) < 0);
	assert_true(e.text[0] != '\0');
	assert_int_equal(count(far.dir, ".table", last), 0);
	far_close(&far);
}

/* Of a volume the last two stay, for who goes back. */
static void test_old_ones_go(void **state)
{
	struct fix *f = *state;
	struct table *prev = table_ref(client_volume_table(f->volume));
	struct generation_id id = table_info(prev)->id;
	struct far far;
	struct err e = ERR_INIT;
	char last[LAST_BYTES];

	far_open(&far, f);
	assert_int_equal(take(&far, &id, far.dir, &e), 0);
	for (unsigned int i = 0; i < 3; i++) {
		struct listing *l = listing_new(64 * MiB);
		struct table *next;
		char key[32];

		fix_listing(l);
		for (unsigned int k = 0; k <= i; k++) {
			snprintf(key, sizeof(key), "d/more-%u", k);
			fix_add(l, key, 4096);
		}
		snprintf(far.path, sizeof(far.path), "%s/next-%u", f->dir, i);
		next = fix_build(f, prev, l, far.path);
		table_unref(prev);
		prev = next;
		id = table_info(next)->id;
		assert_int_equal(take(&far, &id, far.dir, &e), 0);
		assert_int_equal(count(far.dir, ".table", last), 2);
	}
	table_unref(prev);
	far_close(&far);
}

/* Tokens for several parts of a volume, and for all of it, on one node: each has its own table. */
static void test_parts(void **state)
{
	static const struct key_prefixes parts[] = { { 1, { { "b/", 2 } } },
		{ 1, { { "c/", 2 } } } };
	struct fix *f = *state;
	struct table *whole = client_volume_table(f->volume);
	struct client_table_named named[3] = { { .id = table_info(whole)->id } };
	char paths[3][200];
	struct far far;
	struct err e = ERR_INIT;
	char last[LAST_BYTES];

	far_open(&far, f);
	snprintf(paths[0], sizeof(paths[0]), "%s", far.path);
	for (unsigned int i = 1; i < 3; i++) {
		named[i] = (struct client_table_named){ .id = named[0].id,
			.part = key_prefixes_hash(&parts[i - 1]) };
		snprintf(paths[i], sizeof(paths[i]), "%s/part-%u", f->dir, i);
		assert_int_equal(
			table_cut(whole, &parts[i - 1], paths[i], named[i].cut_hash, &e), 0);
	}
	for (unsigned int round = 0; round < 2; round++) {
		uint32_t asked = atomic_load(&far.asked);

		for (unsigned int i = 0; i < 3; i++) {
			snprintf(far.path, sizeof(far.path), "%.*s", 127, paths[i]);
			assert_int_equal(take_named(&far, &named[i], far.dir, &e), 0);
		}
		assert_int_equal(count(far.dir, ".table", last), 3);
		assert_int_equal(atomic_load(&far.asked) > asked, round == 0);
	}
	/* The whole one in the place of a part, and one part in the place of the other. */
	snprintf(far.path, sizeof(far.path), "%.*s", 127, paths[0]);
	assert_int_equal(take_named(&far, &named[1], NULL, &e), -EBADMSG);
	snprintf(far.path, sizeof(far.path), "%.*s", 127, paths[2]);
	assert_int_equal(take_named(&far, &named[1], NULL, &e), -EBADMSG);
	assert_int_equal(take_named(&far, &named[0], NULL, &e), -EBADMSG);
	far_close(&far);
}

/* What is planned to be fetched has an object in each part: of gaps, which objects of others leave, nothing is asked for. */
static void test_no_gap_is_fetched(void **state)
{
	static const struct key_prefixes part = { 2, { { "a/", 2 }, { "c/", 2 } } };
	struct fix *f = *state;
	struct table *whole = client_volume_table(f->volume);
	struct client_volume volume = { 0 };
	uint8_t hash[SHA256_BYTES];
	unsigned int gaps = 0;
	char path[100];
	struct err e = ERR_INIT;

	snprintf(path, sizeof(path), "%.80s/cut", f->dir);
	assert_int_equal(table_cut(whole, &part, path, hash, &e), 0);
	assert_int_equal(table_open(open(path, O_RDONLY | O_CLOEXEC), &volume.table, &e), 0);
	for (uint32_t i = 0; i < f->n_objects; i++)
		for (uint64_t at = f->objects[i].offset;
			at < f->objects[i].offset + min(f->objects[i].size, 2 * MiB); at += 5000) {
			struct client_op op = {
				.volume = &volume, .offset = at, .length = CLIENT_READ_MAX
			};

			assert_int_equal(client_plan(&op), 0);
			for (uint32_t k = 0; k < op.n_parts; k++) {
				uint64_t from = op.parts[k].offset;
				uint64_t to = from + op.parts[k].length;
				bool any;

				assert_int_equal(
					piece_range_widen(volume.table, &from, &to, &any), 0);
				assert_int_equal(op.parts[k].gap, !any);
				gaps += !any && op.n_parts > 1;
			}
		}
	assert_true(gaps > 0);
	table_unref(volume.table);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_pulled_and_kept),
		CASE(test_another_than_announced),
		CASE(test_old_ones_go),
		CASE(test_parts),
		CASE(test_no_gap_is_fetched),
	};

	return cmocka_run_group_tests_name("client_table", tests, NULL, NULL);
}
