/*
 * Fuzzer of RUN/keeper.json, by which a keeper recovers the mounts of an earlier one. Of the input's JSON the numbers of
 * processes are taken away, so that no process of this host is looked into, and mount points are put below a directory.
 *
 * Whatever it says, what is recovered is counted, names its mount, leaves no descriptor open, and is recovered by the
 * next keeper unchanged.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "admin/state_file.h"
#include "base/file.h"
#include "keeper/keeper.h"
#include "keeper/points/mounter_internal.h"
#include "tests/fuzz/seeds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/dev/shm/granary-fuzz-XXXXXX";

static const char *state_path(void)
{
	static char path[64];

	(void)snprintf(path, sizeof(path), "%s/keeper.json", dir); /* fits */
	return path;
}

static void remove_directory(void)
{
	(void)unlink(state_path());
	(void)rmdir(dir);
}

static void make_directory(void)
{
	static bool made;

	if (!made)
		ensure(mkdtemp(dir) && atexit(remove_directory) == 0);
	made = true;
}

/* ---- keepers --------------------------------------------------------------------------------- */

static struct keeper_config config = {
	.cache = dir, .run = dir, .memory = 1 << 30, .log_level = "info"
};

static void keeper_begin(struct keeper *k)
{
	*k = (struct keeper){
		.config = &config, .lock_fd = -1, .alive_fd = -1, .alive_read_fd = -1, .wake_fd = -1
	};
	pthread_mutex_init(&k->lock, NULL);
	list_init(&k->mounts);
	ensure(mounter_host_new(-1, &k->host) == 0);
}

static void keeper_end(struct keeper *k)
{
	struct list *node;

	while ((node = list_pop_front(&k->mounts)) != NULL)
		mount_free(list_entry(node, struct mount, link));
	mounter_host_free(k->host);
	pthread_mutex_destroy(&k->lock);
}

static void check_mounts(struct keeper *k)
{
	unsigned int n = 0;

	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);
		const struct superblock *s;

		for (struct list *next = node->next; next != &k->mounts; next = next->next)
			ensure(list_entry(next, struct mount, link)->id != mount->id);
		ensure(mount->peer && mount->source && mount->mountpoint &&
			mount->child.n_args > 0);
		ensure(mount->child.n_args <= CHILD_ARGS_MAX);
		ensure(mount->fds.fuse < 0 && mount->fds.slots < 0);
		ensure(mount->state == MOUNT_FAILED || mount_is_shared(mount));
		s = superblock_of_server(&k->host->superblocks, mount->id);
		ensure(!s || (s->key[0] && s->n_points <= SUPERBLOCK_POINTS_MAX));
		n++;
	}
	ensure(n == k->n_mounts && k->host->superblocks.n <= SUPERBLOCKS_MAX);
}

/* What the keeper wrote, but for what is shown to people: the name and socket of the daemon behind a mount, which may be another mount's. */
static json_t *recover(void)
{
	static const char *const changes[] = { "name", "socket", "pid", "restarts" };
	static struct keeper k;
	struct err e = ERR_INIT;
	json_t *state = NULL;
	json_t *record;
	size_t i;
	int r;

	keeper_begin(&k);
	r = keeper_recover(&k, &e);
	if (r == -EPROTONOSUPPORT) { /* left as it is */
		ensure(k.n_mounts == 0);
		keeper_end(&k);
		return json_null();
	}
	ensure(r == 0);
	check_mounts(&k);
	ensure(keeper_save(&k) == 0 && state_file_read(state_path(), 0, &state) == 0);
	keeper_end(&k);
	json_array_foreach (json_object_get(state, "mounts"), i, record)
		for (unsigned int c = 0; c < ARRAY_SIZE(changes); c++)
			(void)json_object_del(record, changes[c]); /* it is there */
	return state;
}

static void recover_twice(void)
{
	int free_fd = fuzz_free_fd();
	json_t *first = recover();
	json_t *second = recover();

	ensure(json_equal(first, second));
	json_decref(first);
	json_decref(second);
	ensure(fuzz_free_fd() == free_fd);
}

/* ---- the state ------------------------------------------------------------------------------- */

static void put_below(json_t *record, const char *name)
{
	const char *text = json_string_value(json_object_get(record, name));
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/", dir);

	if (!text)
		return;
	(void)snprintf(path + n, sizeof(path) - (size_t)n, "%s", text); /* cut */
	for (char *c = path + n; *c; c++)
		if (*c == '/' || *c == '.')
			*c = '_';
	(void)json_object_set_new(
		record, name, json_string(path)); /* else the old one is there no more */
}

static void make_harmless(json_t *state)
{
	json_t *record;
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, record) {
		(void)json_object_set_new(record, "daemon", json_integer(0)); /* likewise */
		put_below(record, "mountpoint");
	}
}

static void put_state(const char *text, size_t len)
{
	FILE *file = fopen(state_path(), "w");

	ensure(file && fwrite(text, 1, len, file) == len && fclose(file) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *state = NULL;
	char *text;

	make_directory();
	if (admin_json_parse((const char *)data, size, 0, &state, NULL) == 0) {
		make_harmless(state);
		text = json_dumps(state, JSON_ENCODE_ANY);
		ensure(text);
		put_state(text, strlen(text));
		free(text);
		json_decref(state);
	} else {
		put_state((const char *)data, size);
	}
	recover_twice();
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static void add_mount(struct keeper *k, unsigned int id, unsigned int server, uint32_t op)
{
	struct mount *mount = mount_new(k, id, "s3://bucket/prefix", "data");
	struct superblock *s;

	ensure(mount && child_arg(&mount->child, "%s", "/usr/bin/cachefuse") == 0);
	ensure(child_arg(&mount->child, "%s", "--native") == 0 && mount_add_peer(k, mount) == 0);
	mount->peer->point = server == id ? MOUNTER_OWN : MOUNTER_SHARED;
	mount->peer->server = server;
	mount->peer->mount_id = 7;
	mount->peer->intent =
		(struct mounter_intent){ .op = op, .serial = 3, .server = server, .to = 5 };
	if (server == id)
		ensure(superblock_add(&k->host->superblocks, id, "key", 5, 6, &s) == 0 &&
			superblock_point_add(s, id, "data") == 0);
	list_push_back(&k->mounts, &mount->link);
	k->n_mounts++;
}

/* Two mounts of one superblock, with something begun. */
void fuzz_seeds(void)
{
	static const uint32_t begun[] = { 0, MOUNTER_ATTACH, MOUNTER_SHARE, MOUNTER_SWITCH };

	make_directory();
	for (unsigned int i = 0; i < ARRAY_SIZE(begun); i++) {
		struct buf text = BUF_INIT(1 << 20);
		struct keeper k;
		char name[32];

		keeper_begin(&k);
		add_mount(&k, 1, 1, begun[i]);
		add_mount(&k, 2, 1, begun[i]);
		add_mount(&k, 2, 1, begun[i]); /* of the same id: it is left out */
		ensure(keeper_save(&k) == 0 && file_read_all(state_path(), &text) == 0);
		(void)snprintf(name, sizeof(name), "begun-%u", i); /* fits */
		fuzz_seed(name, text.data, text.len);
		keeper_end(&k);
		buf_release(&text);
	}
}
