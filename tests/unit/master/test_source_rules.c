/* What callers that are not local may name in a source. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include "tests/clock/test_clock.h"
#include "tests/unit/master/dataset_fixture.h"
#include "tests/unit/master/fixture.h"

static struct source_rules rules;
static void (*on_lookup)(void); /* NULL: nothing */

/* As libc's. */
int getaddrinfo(
	const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
	int (*call)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = 0;

	*(void **)&call = dlsym(RTLD_NEXT, "getaddrinfo");
	if (on_lookup)
		on_lookup();
	return call(node, service, hints, ret);
}

static void (*on_realpath)(void); /* NULL: nothing */

/* As libc's. */
char *realpath(const char *path, char *out)
{
	char *(*call)(const char *, char *) = NULL;
	char *real;

	*(void **)&call = dlsym(RTLD_NEXT, "realpath");
	real = call(path, out);
	if (on_realpath)
		on_realpath();
	return real;
}

static void put_dir(const char *name)
{
	assert_int_equal(mkdir(fixture_in("%s", name), 0755), 0);
}

static void put_file(const char *name)
{
	assert_int_equal(file_write_atomic(fixture_in("%s", name), "x", 1, 0600), 0);
}

static void put_link(const char *to, const char *name)
{
	_cleanup_free_ char *target = strdup(fixture_in("%s", to));

	assert_int_equal(symlink(target, fixture_in("%s", name)), 0);
}

static int create(const char *text)
{
	json_t *json = df_body(text);
	struct dataset d = { 0 };
	int r = dataset_create(df.set, json, false, &rules, &d, &df.e);

	json_decref(json);
	dataset_release(&d);
	return r;
}

static int update_by(const struct source_rules *of, const char *name, const char *text)
{
	json_t *json = df_body(text);
	struct dataset d = { 0 };
	int r = dataset_update(df.set, name, json, false, of, &d, &df.e);

	json_decref(json);
	dataset_release(&d);
	return r;
}

static int update(const char *name, const char *text)
{
	return update_by(&rules, name, text);
}

static int set_up(void **state)
{
	static char root[256];
	static char credentials[256];
	int r = df_setup(state);

	put_dir("data");
	put_dir("data/a");
	put_dir("data2");
	put_dir("keys");
	put_file("keys/team");
	put_file("secret");
	put_link("data2", "data/out");
	put_link("data/a", "in");
	put_link("secret", "keys/link");
	(void)snprintf(root, sizeof(root), "%s", fixture_in("data"));
	(void)snprintf(credentials, sizeof(credentials), "%s", fixture_in("keys"));
	rules = (struct source_rules){ .file_roots = { { root }, 1 },
		.credential_dirs = { { credentials }, 1 } };
	return r;
}

#define FILE_OF(path) "{'name':'x','mounts':[{'url':'file://@" path "'}]}"

static void file_roots(void **state)
{
	static const char *const outside[] = { FILE_OF("/data2"), FILE_OF("/data/out"),
		FILE_OF("/data/../data2"), FILE_OF(""), FILE_OF("/data/missing"),
		FILE_OF("/missing") };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(outside); i++)
		df_expect(create(outside[i]), -EPERM, "file-roots"); /* alike, there or not */
	assert_int_equal(create(FILE_OF("/data")), 0);
	assert_int_equal(create("{'name':'y','mounts':[{'url':'file://@/data/a'}]}"), 0);
	assert_int_equal(create("{'name':'z','mounts':[{'url':'file://@/in'}]}"), 0);
	assert_int_equal(update("z", "{'quota':7}"), 0);
	/* One source of several is enough. */
	df_expect(create("{'name':'v','mounts':[{'path':'/a','url':'file://@/data/a'},"
			 "{'path':'/b','url':'file://@/data2'}]}"),
		-EPERM, "file-roots");
	/* By default there is no root; for local callers there is no bound. */
	rules.file_roots.n = 0;
	df_expect(
		create("{'name':'w','mounts':[{'url':'file://@/data/a'}]}"), -EPERM, "file-roots");
	assert_int_equal(df_create("{'name':'w','mounts':[{'url':'file://@/origin'}]}"), 0);
	assert_int_equal(update("w", "{'priority':3}"), 0); /* the source is as it was */
}

static void swap(const char *directory, const char *other)
{
	_cleanup_free_ char *first = strdup(fixture_in("%s", directory));

	assert_int_equal(
		renameat2(AT_FDCWD, first, AT_FDCWD, fixture_in("%s", other), RENAME_EXCHANGE), 0);
}

static unsigned int calls_left;

static void swap_a(void)
{
	if (calls_left > 0 && --calls_left == 0)
		swap("data/a", "data/out");
}

static void listed(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *e)
{
	(void)answer;
	(void)e;
	atomic_store((_Atomic int *)wait->arg, status);
}

static int list(const struct dataset *d)
{
	_Atomic int status = 1;
	struct source_wait wait = {
		.config = &d->mounts[0].config, .refresh = true, .on_done = listed, .arg = &status
	};

	source_open(df.sources, &wait);
	test_wait(atomic_load(&status) <= 0); /* a flight that was in progress goes on with it */
	return status;
}

/* Whenever a directory is exchanged for a link that leads out of the roots, nothing is shown of where it leads. */
static void links_that_come_later(void **state)
{
	struct volume_id volume;
	struct dataset d;

	(void)state;
	put_file("data/a/x");
	put_file("data2/secret");
	assert_int_equal(create(FILE_OF("/data/a")), 0);
	d = df_find("x");
	volume = d.mounts[0].volume;
	assert_int_equal(list(&d), 0);
	swap("data/a", "data/out");
	assert_int_equal(list(&d), -ELOOP);
	dataset_release(&d);
	df_reopen(); /* nor by the next master */
	d = df_find("x");
	assert_int_equal(list(&d), -ELOOP);
	swap("data/a", "data/out");
	assert_int_equal(list(&d), 0);
	dataset_release(&d);
	on_realpath = swap_a;
	for (unsigned int i = 1; i < 10; i++) {
		int r;

		assert_int_equal(dataset_delete(df.set, "x", true, &df.e), 0);
		calls_left = i;
		r = create(FILE_OF("/data/a"));
		if (calls_left == 0)
			swap("data/a", "data/out");
		calls_left = 0;
		if (r == -EPERM)
			r = create(FILE_OF("/data/a"));
		assert_int_equal(r, 0);
		d = df_find("x");
		assert_memory_equal(&d.mounts[0].volume, &volume, sizeof(volume));
		dataset_release(&d);
	}
	on_realpath = NULL;
	/* The same holds without rules. */
	assert_int_equal(df_create("{'name':'y','mounts':[{'url':'file://@/in'}]}"), 0);
	swap("in", "keys/link");
	d = df_find("y");
	assert_memory_equal(&d.mounts[0].volume, &volume, sizeof(volume));
	assert_int_equal(list(&d), 0);
	dataset_release(&d);
}

/* An older master stored paths as they were named. */
static void links_in_an_older_record(void **state)
{
	struct source_view view;
	struct dataset d;
	char *path;

	(void)state;
	put_file("data/a/x");
	put_file("data2/secret");
	assert_int_equal(create(FILE_OF("/in")), 0);
	d = df_find("x");
	path = strdup(fixture_in("in/"));
	free(d.mounts[0].config.prefix);
	d.mounts[0].config.prefix = path;
	d.mounts[0].config.resolved = false;
	assert_int_equal(list(&d), 0);
	on_realpath = swap_a;
	for (unsigned int i = 1; i < 5; i++) {
		calls_left = i;
		(void)list(&d); /* of this source, of another one, or refused */
		if (calls_left == 0)
			swap("data/a", "data/out");
		calls_left = 0;
		assert_int_equal(source_set_view(df.sources, &d.mounts[0].volume, &view), 0);
		assert_int_equal(view.newest.id.generation, 1); /* and nothing from outside */
	}
	on_realpath = NULL;
	assert_int_equal(list(&d), 0);
	dataset_release(&d);
}

#define S3(more) "{'name':'x','mounts':[{'url':'s3://b/'," more "}]}"

static void credentials(void **state)
{
	static const char *const outside[] = { S3("'credentials':'file:@/secret'"),
		S3("'credentials':'file:@/secret#team'"), S3("'credentials':'file:@/keys/link'"),
		S3("'credentials':'file:@/keys/../secret'"), S3("'credentials':'file:@/missing'"),
		S3("'credentials':'file:/etc/granary/cluster.key'"), S3("'ca_file':'@/secret'"),
		S3("'ca_file':'@/keys/link'"), S3("'ca_file':'@/missing'") };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(outside); i++)
		df_expect(create(outside[i]), -EPERM, "credential-dirs");
	assert_int_equal(
		create(S3("'credentials':'file:@/keys/team#a','ca_file':'@/keys/team'")), 0);
	df_expect(update("x", "{'cache_scope':null,'mounts':[{'credentials':'file:@/secret'}]}"),
		-EPERM, "credential-dirs");
	df_expect(update("x", "{'mounts':[{'ca_file':'@/secret'}]}"), -EPERM, "credential-dirs");
	assert_int_equal(update("x", "{'mounts':[{'ca_file':'@/keys'}]}"), 0);
	/* What was named before goes on, and is not the caller's. */
	rules.credential_dirs.n = 0;
	assert_int_equal(update("x", "{'mounts':[{'requester_pays':true}]}"), 0);
	df_expect(update("x", "{'mounts':[{'ca_file':'@/keys/team'}]}"), -EPERM, "credential-dirs");
	/* References that name no path are what the operator gave to the daemons. */
	assert_int_equal(
		create("{'name':'y','mounts':[{'url':'s3://b/','credentials':'env:TEAM_'}]}"), 0);
}

static void endpoints(void **state)
{
	static const char *const local[] = { "http://127.0.0.1:9000", "http://127.1",
		"http://2130706433", "http://0x7f.1", "http://localhost", "https://LOCALHOST:1",
		"http://0.0.0.0", "http://0", "http://169.254.169.254", "http://[::1]:80",
		"http://[::]", "http://[fe80::1]", "http://[::ffff:127.0.0.1]",
		"http://[::ffff:169.254.169.254]", "http://[::127.0.0.1]", "http://[fd00:ec2::254]",
		"http://localhost.", "http://b.localhost.:1", "http://[64:ff9b::127.0.0.1]",
		"http://[64:ff9b::a9fe:a9fe]" };
	static const char *const others[] = { "http://192.0.2.1:9000", "http://[2001:db8::1]",
		"http://[::ffff:192.0.2.1]", "http://[64:ff9b::192.0.2.1]" };
	char text[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(local); i++) {
		(void)snprintf(text, sizeof(text),
			"{'name':'x','mounts':[{'url':'s3://b/"
			"','endpoint':'%s','path_style':true}]}",
			local[i]);
		df_expect(create(text), -EPERM, "local-endpoints");
	}
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		(void)snprintf(text, sizeof(text),
			"{'name':'x%zu','mounts':[{'url':'s3://b/"
			"','endpoint':'%s','path_style':true}]}",
			i, others[i]);
		assert_int_equal(create(text), 0);
	}
	/* Requests are sent to the bucket's host, not to the endpoint's. */
	df_expect(create("{'name':'x','mounts':[{'url':'s3://bucket/','endpoint':'http://"
			 "a.localhost'}]}"),
		-EPERM, "local-endpoints");
	df_expect(create("{'name':'x','mounts':[{'url':'s3://b/','endpoint':'http://"
			 "a..b','path_style':true}]}"),
		-ENXIO, "looked up");
	rules.local_endpoints = true;
	assert_int_equal(
		create("{'name':'x','mounts':[{'url':'s3://b/','endpoint':'http://127.0.0.1:1'}]}"),
		0);
	rules.local_endpoints = false;
	assert_int_equal(update("x", "{'mounts':[{'region':'r'}]}"), 0);
	df_expect(update("x", "{'mounts':[{'path_style':true}]}"), -EPERM, "local-endpoints");
}

static bool no_local(const char *name)
{
	struct dataset d = df_find(name);
	bool set = d.mounts[0].config.no_local;

	dataset_release(&d);
	return set;
}

/* An endpoint that a local caller did not name is checked at each connection, also after a restart. */
static void each_connection(void **state)
{
	static const char named[] =
		"{'name':'x','mounts':[{'url':'s3://b/','endpoint':'http://192.0.2.1'}]}";
	static const char again[] = "{'mounts':[{'endpoint':'http://192.0.2.1','region':'r'}]}";

	(void)state;
	assert_int_equal(create(named), 0);
	assert_true(no_local("x"));
	df_reopen();
	assert_true(no_local("x"));
	assert_int_equal(update("x", again), 0);
	assert_true(no_local("x"));
	assert_int_equal(update_by(NULL, "x", "{'mounts':[{'region':'s'}]}"), 0);
	assert_true(no_local("x"));
	assert_int_equal(update_by(NULL, "x", again), 0); /* by a local caller */
	assert_false(no_local("x"));
	assert_int_equal(update("x", again), 0);
	assert_false(no_local("x"));
	rules.local_endpoints = true;
	assert_int_equal(
		create("{'name':'y','mounts':[{'url':'s3://c/','endpoint':'http://192.0.2.1'}]}"),
		0);
	assert_false(no_local("y"));
	/* The operator named where the daemons' own endpoint is. */
	rules.local_endpoints = false;
	assert_int_equal(create("{'name':'z','mounts':[{'url':'s3://d/'}]}"), 0);
	assert_false(no_local("z"));
}

static void rename_both(void)
{
	on_lookup = NULL;
	assert_int_equal(df_update("x", "{'name':'y'}"), 0);
	assert_int_equal(df_update("mine", "{'name':'x'}"), 0);
}

/* A dataset that takes the name of another one while an endpoint is looked up does not get what that one had. */
static void another_of_its_name(void **state)
{
	static const char change[] =
		"{'mounts':[{'path_style':false,'credentials':'file:@/keys/team'}]}";
	struct dataset d;

	(void)state;
	assert_int_equal(create("{'name':'x','mounts':[{'url':'s3://b/','endpoint':'http://"
				"192.0.2.1','path_style':true,'credentials':'file:@/keys/team'}]}"),
		0);
	rules.credential_dirs.n = 0;
	assert_int_equal(create("{'name':'mine','cache_scope':'file:@/keys/team','mounts':[{'url':"
				"'s3://b/','endpoint':'http://192.0.2.9','path_style':true}]}"),
		0);
	on_lookup = rename_both;
	df_expect(update("x", change), -EBUSY, "changed by another request");
	assert_null(on_lookup);
	d = df_find("x");
	assert_null(d.mounts[0].config.credentials);
	assert_true(d.mounts[0].config.path_style);
	dataset_release(&d);
	df_expect(update("x", change), -EPERM, "credential-dirs");
	assert_int_equal(update("y", change), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(file_roots, set_up, df_teardown),
		cmocka_unit_test_setup_teardown(links_that_come_later, set_up, df_teardown),
		cmocka_unit_test_setup_teardown(links_in_an_older_record, set_up, df_teardown),
		cmocka_unit_test_setup_teardown(credentials, set_up, df_teardown),
		cmocka_unit_test_setup_teardown(endpoints, set_up, df_teardown),
		cmocka_unit_test_setup_teardown(each_connection, set_up, df_teardown),
		cmocka_unit_test_setup_teardown(another_of_its_name, set_up, df_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
