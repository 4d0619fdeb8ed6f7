/* Which directories become a tier, and the line for each that does not. */
#include "tests/unit/tiers/tier_fixture.h"
#include "tiers/tier_set_internal.h"

#include <pwd.h>
#include <sys/mount.h>
#include <sys/wait.h>

static int try_open(struct fixture *f, bool create, uint64_t capacity, struct err *e)
{
	struct tier_config config = { .path = f->path, .capacity = capacity, .create = create };
	struct tier_set *set = NULL;
	int r;

	*e = ERR_INIT;
	r = tier_set_open(&config, 1, &set, e);
	tier_set_free(set);
	return r;
}

static void put_file(struct fixture *f, const char *name, const char *text)
{
	char path[400];
	FILE *file;

	(void)mkdir(f->path, 0700);
	(void)snprintf(path, sizeof(path), "%s/%s", f->path, name);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static bool has_file(struct fixture *f, const char *name)
{
	char path[400];

	(void)snprintf(path, sizeof(path), "%s/%s", f->path, name);
	return access(path, F_OK) == 0;
}

static void test_create(void **state)
{
	struct fixture *f = *state;
	struct err e;

	assert_int_equal(try_open(f, false, GiB, &e), -ENOENT);
	assert_non_null(strstr(e.text, "not a Granary cache"));
	assert_false(has_file(f, "."));
	assert_int_equal(try_open(f, true, GiB, &e), 0);
	assert_true(has_file(f, IDENTITY_NAME));
	assert_int_equal(try_open(f, false, GiB, &e), 0);
}

static void test_create_in_empty(void **state)
{
	struct fixture *f = *state;
	char lost[400];
	struct err e;

	assert_int_equal(mkdir(f->path, 0700), 0);
	(void)snprintf(lost, sizeof(lost), "%s/lost+found", f->path);
	assert_int_equal(mkdir(lost, 0700), 0);
	assert_int_equal(
		try_open(f, false, GiB, &e), -ENOENT); /* an unmounted disk looks like this */
	assert_int_equal(try_open(f, true, GiB, &e), 0);
}

static void test_foreign(void **state)
{
	struct fixture *f = *state;
	struct err e;

	put_file(f, "thesis.tex", "precious");
	assert_int_equal(try_open(f, true, GiB, &e), -ENOTEMPTY);
	assert_non_null(strstr(e.text, "thesis.tex"));
	assert_true(has_file(f, "thesis.tex"));
	assert_false(has_file(f, IDENTITY_NAME));
}

static void test_foreign_identity(void **state)
{
	struct fixture *f = *state;
	struct err e;

	put_file(f, IDENTITY_NAME, "something else\n");
	assert_int_equal(try_open(f, true, GiB, &e), -ENOTEMPTY);
}

static void test_damaged_identity(void **state)
{
	struct fixture *f = *state;
	char path[400];
	struct err e;

	assert_int_equal(try_open(f, true, GiB, &e), 0);
	(void)snprintf(path, sizeof(path), "%s/" IDENTITY_NAME, f->path);
	flip_byte(path, 60);
	assert_int_equal(try_open(f, true, GiB, &e), -EBADMSG);
	assert_non_null(strstr(e.text, "damaged"));
	put_file(f, IDENTITY_NAME, "granary tier\nformat 1\n");
	assert_int_equal(try_open(f, true, GiB, &e), -EBADMSG);
}

static void test_newer(void **state)
{
	struct fixture *f = *state;
	struct identity identity;
	struct err e;

	assert_int_equal(try_open(f, true, GiB, &e), 0);
	assert_int_equal(identity_load(f->path, &identity, NULL), 0);
	identity.format = IDENTITY_FORMAT + 1;
	assert_int_equal(identity_store(f->path, &identity), 0);
	assert_int_equal(try_open(f, true, GiB, &e), -EPROTONOSUPPORT);
	identity.format = IDENTITY_FORMAT;
	identity.features = 1;
	assert_int_equal(identity_store(f->path, &identity), 0);
	assert_int_equal(try_open(f, true, GiB, &e), -EPROTONOSUPPORT);
	assert_non_null(strstr(e.text, "features 1"));
}

static void test_busy(void **state)
{
	struct fixture *f = *state;
	struct err e;

	fixture_open(f);
	assert_int_equal(try_open(f, true, GiB, &e), -EBUSY);
	assert_non_null(strstr(e.text, "another Granary"));
	fixture_close(f);
	assert_int_equal(try_open(f, true, GiB, &e), 0);
}

static void test_too_small(void **state)
{
	struct fixture *f = *state;
	struct err e;

	assert_int_equal(try_open(f, true, MiB, &e), -ENOSPC);
	assert_non_null(strstr(e.text, "too small"));
	assert_false(has_file(f, IDENTITY_NAME)); /* nothing of the attempt stays */
	assert_int_equal(try_open(f, true, GiB, &e), 0);
}

static void test_not_a_directory(void **state)
{
	struct fixture *f = *state;
	struct err e;
	FILE *file = fopen(f->path, "w");

	assert_non_null(file);
	fclose(file);
	assert_int_equal(try_open(f, true, GiB, &e), -ENOTDIR);
	assert_non_null(strstr(e.text, f->path));
}

static void test_default_capacity(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(tier_default_capacity(100 * GiB), 90 * GiB);
	assert_int_equal(tier_default_capacity(20 * GiB), 18 * GiB);
	assert_int_equal(tier_default_capacity(10 * GiB), 8 * GiB);
	assert_int_equal(tier_default_capacity(4 * GiB), 3 * GiB);
	assert_int_equal(tier_default_capacity(400 * MiB), 300 * MiB);
	assert_int_equal(tier_default_capacity(0), 0);

	f->capacity = 0;
	fixture_open(f);
	assert_true(status_of(f).capacity > TiB / 1024);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->capacity), status_of(f).capacity);
}

/* Identity of the tier, with the test's change written back. */
static struct identity load_identity(struct fixture *f)
{
	struct identity identity;

	assert_int_equal(identity_load(f->path, &identity, NULL), 0);
	return identity;
}

static void exchange_disk(struct fixture *f)
{
	struct identity identity = load_identity(f);

	strcpy(identity.device, "uuid:11111111-2222-3333-4444-555555555555");
	assert_int_equal(identity_store(f->path, &identity), 0);
}

static void test_init(void **state)
{
	struct fixture *f = *state;
	struct tier_config config = { .path = f->path, .capacity = 80 * MiB };
	struct err e = ERR_INIT;

	assert_int_equal(tier_init(&config, false, &e), 0);
	assert_int_equal(load_identity(f).capacity, 80 * MiB);
	assert_int_equal(tier_init(&config, false, &e), -EEXIST);
	f->capacity = 0;
	fixture_open(f);
	assert_int_equal(status_of(f).capacity, 80 * MiB); /* as init said */
	assert_int_equal(tier_init(&config, true, &e), -EBUSY);
	fixture_close(f);
	f->capacity = 100 * MiB;
	fixture_open(f);
	assert_int_equal(status_of(f).capacity, 100 * MiB);
}

static void test_init_refuses(void **state)
{
	struct fixture *f = *state;
	struct tier_config config = { .path = f->path, .capacity = MiB };
	struct err e = ERR_INIT;

	assert_int_equal(tier_init(&config, true, &e), -ENOENT);
	assert_int_equal(tier_init(&config, false, &e), -ENOSPC);
	assert_false(has_file(f, IDENTITY_NAME));
	config.capacity = UINT64_MAX / 2; /* no filesystem has so much */
	assert_int_equal(tier_init(&config, false, &e), -EFBIG);
	assert_non_null(strstr(e.text, "more than the filesystem has"));
	assert_false(has_file(f, IDENTITY_NAME));
	put_file(f, "thesis.tex", "precious");
	config.capacity = 0;
	assert_int_equal(tier_init(&config, false, &e), -ENOTEMPTY);
}

/* The files of another disk's tier are refused until somebody takes them over; then no byte is
 * trusted. */
static void test_another_device(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, PIECE_BYTES, 1);
	struct tier_config config = { .path = f->path };
	struct identity before;
	char file[800];
	struct err e;

	fixture_open(f);
	assert_int_equal(write_run(f, 0, &run), 0);
	fixture_close(f);
	only_file(f, file);
	flip_byte(file, 100);
	exchange_disk(f);
	before = load_identity(f);
	assert_int_equal(try_open(f, true, GiB, &e), -EXDEV);
	assert_non_null(strstr(e.text, "tier init --adopt"));
	assert_string_equal(load_identity(f).device, before.device);
	assert_int_equal(tier_init(&config, true, &e), 0);
	assert_string_not_equal(load_identity(f).uuid, before.uuid);
	fixture_open(f);
	assert_int_equal(status_of(f).data_bytes, PIECE_BYTES);
	assert_int_equal(read_run(f, 0, &run), -EBADMSG); /* not served as it lay there */
}

static int try_remembered(struct fixture *f, struct err *e)
{
	char remembered[400];
	struct tier_config config = {
		.path = f->path, .capacity = GiB, .create = true, .remembered = remembered
	};
	struct tier_set *set = NULL;
	int r;

	(void)snprintf(remembered, sizeof(remembered), "%s/state/tiers", f->root);
	*e = ERR_INIT;
	r = tier_set_open(&config, 1, &set, e);
	tier_set_free(set);
	return r;
}

static int damage_record(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	char text[2048] = "";
	char *device;
	FILE *file;

	(void)st;
	(void)ftw;
	if (type != FTW_F)
		return 0;
	file = fopen(path, "r+");
	assert_non_null(file);
	assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
	device = strstr(text, "\ndevice ");
	assert_non_null(device);
	(void)snprintf(device, sizeof(text) - (size_t)(device - text),
		"\ndevice uuid:11111111-2222-3333-4444-555555555555\n");
	rewind(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	return 0;
}

/* As if what is remembered had been on a device that has gone. */
static void exchange_disk_of_record(const char *remembered)
{
	assert_int_equal(nftw(remembered, damage_record, 8, FTW_PHYS), 0);
}

/* The bare mount point of a disk that is not mounted: no cache is made there, unless by `tier init`.
 */
static void test_not_mounted(void **state)
{
	struct fixture *f = *state;
	char remembered[400];
	struct tier_config config = { .path = f->path, .remembered = remembered };
	struct err e;

	(void)snprintf(remembered, sizeof(remembered), "%s/state/tiers", f->root);
	assert_int_equal(mkdir(f->path, 0700), 0);
	if (mount("granary-test", f->path, "tmpfs", 0, "size=256m") != 0) {
		print_message("SKIPPED: needs the right to mount\n");
		skip();
	}
	assert_int_equal(try_remembered(f, &e), 0);
	/* Emptied by somebody: made again, the disk is there. */
	assert_int_equal(umount(f->path), 0);
	assert_int_equal(mount("granary-test", f->path, "tmpfs", 0, "size=256m"), 0);
	exchange_disk_of_record(remembered);
	assert_int_equal(umount(f->path), 0);
	assert_int_equal(try_remembered(f, &e), -ENODEV);
	assert_non_null(strstr(e.text, "mount its disk"));
	assert_false(has_file(f, IDENTITY_NAME));
	assert_int_equal(tier_init(&config, false, &e), 0);
	assert_int_equal(try_remembered(f, &e), 0);
	/* Removed by its user, on the same device: no reason to refuse. */
	fixture_remove_tree(f->path);
	assert_int_equal(try_remembered(f, &e), 0);
}

/* No two starts give the same id, whatever the files of earlier ones. */
static void test_file_ids(void **state)
{
	struct fixture *f = *state;
	struct piece_run run = run_of(0, BLOCK_BYTES, 1);
	struct chunk_id id = chunk_number(0);
	uint64_t ids[6];

	for (uint32_t i = 0; i < ARRAY_SIZE(ids); i++) {
		char file[800];

		fixture_open(f);
		assert_int_equal(write_run(f, 0, &run), 0);
		only_file(f, file);
		ids[i] = strtoull(strrchr(file, '/') + 1, NULL, 16);
		for (uint32_t k = 0; k < i; k++)
			assert_int_not_equal(ids[i] >> 32, ids[k] >> 32);
		assert_true(tier_set_drop(f->set, &id.volume, id.lineage, NULL, NULL) > 0);
		if (i % 2)
			another_boot(f);
		fixture_close(f);
	}
	assert_int_equal(load_identity(f).starts, ARRAY_SIZE(ids));
}

static void test_boots_are_counted(void **state)
{
	struct fixture *f = *state;
	struct identity first;
	struct identity identity;
	struct err e;

	assert_int_equal(try_open(f, true, GiB, &e), 0);
	assert_int_equal(identity_load(f->path, &first, NULL), 0);
	assert_int_equal(first.boot, 1);
	assert_int_equal(try_open(f, true, GiB, &e), 0);
	assert_int_equal(identity_load(f->path, &identity, NULL), 0);
	assert_int_equal(identity.boot, 1);
	another_boot(f);
	assert_int_equal(try_open(f, true, GiB, &e), 0);
	assert_int_equal(identity_load(f->path, &identity, NULL), 0);
	assert_int_equal(identity.boot, 2);
	assert_string_equal(identity.boot_id, first.boot_id);
	assert_string_equal(identity.uuid, first.uuid);
}

/* In a process of its own, as an ordinary user. */
static void test_not_writable(void **state)
{
	struct fixture *f = *state;
	const struct passwd *nobody = getpwnam("nobody");
	uid_t uid = nobody ? nobody->pw_uid : 0;
	gid_t gid = nobody ? nobody->pw_gid : 0;
	struct err e;
	int status;
	pid_t pid;

	if (geteuid() != 0 || uid == 0) {
		print_message("SKIPPED: needs root and the user nobody\n");
		skip();
	}
	assert_int_equal(mkdir(f->path, 0755), 0);
	assert_int_equal(chmod(f->root, 0755), 0);
	pid = fork();
	if (pid == 0) {
		if (setgid(gid) != 0 || setuid(uid) != 0)
			_exit(99);
		_exit(try_open(f, true, GiB, &e) == -EACCES ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_read_only(void **state)
{
	struct fixture *f = *state;
	struct err e;

	assert_int_equal(mkdir(f->path, 0700), 0);
	if (mount("granary-test", f->path, "tmpfs", 0, "size=128m") != 0) {
		print_message("SKIPPED: needs the right to mount\n");
		skip();
	}
	assert_int_equal(try_open(f, true, 64 * MiB, &e), 0);
	assert_int_equal(mount(NULL, f->path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(try_open(f, true, 64 * MiB, &e), -EROFS);
	assert_int_equal(umount(f->path), 0);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_not_writable), /* forks: before RocksDB has threads */
		T(test_create),
		T(test_create_in_empty),
		T(test_foreign),
		T(test_foreign_identity),
		T(test_damaged_identity),
		T(test_newer),
		T(test_busy),
		T(test_too_small),
		T(test_not_a_directory),
		T(test_default_capacity),
		T(test_boots_are_counted),
		T(test_init),
		T(test_init_refuses),
		T(test_another_device),
		T(test_not_mounted),
		T(test_file_ids),
		T(test_read_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
