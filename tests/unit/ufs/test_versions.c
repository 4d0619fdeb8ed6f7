/* Whether a listing has ids of versions, when the bucket says so, says no, or says nothing. */
#include "tests/unit/ufs/server.h"
#include "ufs/ufs.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#define ALWAYS UINT32_MAX

enum answer {
	OF_KEPT,
	OF_NONE,
	OF_403,
	OF_404,
	OF_501,
	OF_500,
	OF_503,
	OF_PAGE, /* a proxy's */
	OF_NOTHING,
	OF_SILENCE,
};

/* As it comes on the wire. */
struct raw {
	int status;
	const char *code; /* NULL: no error; the body is `body` */
	const char *body;
};

static struct {
	const struct raw *raw; /* in place of `versioning` */
	enum answer versioning;
	uint32_t odd; /* that many times; then it is kept */
	bool refused; /* versions may not be listed */
	uint32_t refusals;
	uint32_t asked, listed, told;
	enum ufs_before before;
} script;
static struct server server;

static void put_body(int fd, const char *body)
{
	char head[200];

	(void)snprintf(
		head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", strlen(body));
	server_puts(fd, head);
	server_puts(fd, body);
}

static bool answer_versioning(int fd)
{
	if (script.raw) {
		script.asked++;
		if (script.raw->code)
			server_error(fd, script.raw->status, script.raw->code, "");
		else
			put_body(fd, script.raw->body);
		return true;
	}
	switch (script.asked++ < script.odd ? script.versioning : OF_KEPT) {
	case OF_KEPT:
		put_body(fd, "<VersioningConfiguration><Status>Enabled</Status>"
			     "</VersioningConfiguration>");
		return true;
	case OF_NONE:
		put_body(fd, "<VersioningConfiguration/>");
		return true;
	case OF_403:
		server_error(fd, 403, "AccessDenied", "");
		return true;
	case OF_404:
		server_error(fd, 404, "NoSuchKey", "");
		return true;
	case OF_501:
		server_error(fd, 501, "NotImplemented", "");
		return true;
	case OF_500:
		server_error(fd, 500, "InternalError", "");
		return true;
	case OF_503:
		server_error(fd, 503, "SlowDown", "");
		return true;
	case OF_PAGE:
		put_body(fd, "<html><body>Sorry</body></html>");
		return true;
	case OF_NOTHING:
		put_body(fd, "");
		return true;
	case OF_SILENCE:
		return false;
	}
	return false;
}

static bool answer(struct server *s, int fd, const char *head)
{
	bool good = true;

	(void)s;
	pthread_mutex_lock(&server.lock);
	if (strstr(head, "?versioning")) {
		good = answer_versioning(fd);
	} else if (!strstr(head, "&versions")) {
		put_body(fd, "<ListBucketResult><IsTruncated>false</IsTruncated><Contents>"
			     "<Key>x</Key><Size>1</Size><ETag>e</ETag></Contents>"
			     "</ListBucketResult>");
	} else if (script.refused && script.listed++ < script.refusals) {
		server_error(fd, 403, "AccessDenied", "");
	} else {
		put_body(fd, "<ListVersionsResult><IsTruncated>false</IsTruncated><Version>"
			     "<Key>x</Key><VersionId>id1</VersionId><IsLatest>true</IsLatest>"
			     "<Size>1</Size><ETag>e</ETag></Version></ListVersionsResult>");
	}
	pthread_mutex_unlock(&server.lock);
	return good;
}

static enum ufs_before tell_before(void *arg)
{
	assert_ptr_equal(arg, &script);
	script.told++;
	return script.before;
}

static int take_tag(void *arg, const struct ufs_object *objects, uint32_t n)
{
	assert_int_equal(n, 1);
	(void)snprintf(arg, 64, "%.*s", (int)objects->tag_len, objects->tag);
	return 0;
}

/* The tag that the one object has; or the status of a listing that fails. */
static int list(char *tag, struct err *e)
{
	struct ufs_limits limits = { .max_requests = 4,
		.list_requests = 4,
		.request_timeout_ns = 5 * CLOCK_SECOND,
		.deadline_ns = 60 * CLOCK_SECOND };
	struct ufs_config config;
	struct ufs *ufs;
	char endpoint[64];
	int r;

	setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "SECRET", 1);
	(void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", server.port);
	assert_int_equal(ufs_config_parse("s3://bucket/", &config, NULL), 0);
	config.endpoint = strdup(endpoint);
	assert_int_equal(ufs_open(&config, &limits, &ufs, NULL), 0);
	ufs_config_release(&config);
	if (script.before != UFS_BEFORE_NOTHING)
		ufs_list_after(ufs, &(struct ufs_listed){ .before = tell_before, .arg = &script });
	r = ufs_list(ufs, take_tag, tag, e);
	ufs_free(ufs);
	return r;
}

#define PLAIN   "e"
#define VERSION "v:id1:e"

static const struct {
	enum answer versioning;
	uint32_t odd;
	enum ufs_before before;
	const char *tag;
} cases[] = {
	/* The bucket says it: whatever was before. */
	{ OF_KEPT, ALWAYS, UFS_BEFORE_NOTHING, VERSION },
	{ OF_KEPT, ALWAYS, UFS_BEFORE_PLAIN, VERSION },
	{ OF_NONE, ALWAYS, UFS_BEFORE_NOTHING, PLAIN },
	{ OF_NONE, ALWAYS, UFS_BEFORE_VERSIONS, PLAIN },
	/* A moment in which it does not: the next answer counts. */
	{ OF_403, 1, UFS_BEFORE_NOTHING, VERSION },
	{ OF_404, 2, UFS_BEFORE_NOTHING, VERSION },
	{ OF_PAGE, 2, UFS_BEFORE_NOTHING, VERSION },
	{ OF_NOTHING, 1, UFS_BEFORE_NOTHING, VERSION },
	{ OF_SILENCE, 1, UFS_BEFORE_NOTHING, VERSION },
	/* Of an overload nothing is learnt however long it takes. */
	{ OF_503, 5, UFS_BEFORE_NOTHING, VERSION },
	{ OF_500, 4, UFS_BEFORE_NOTHING, VERSION },
	/* It never does: as before, and refused from the start without. */
	{ OF_403, ALWAYS, UFS_BEFORE_NOTHING, PLAIN },
	{ OF_501, ALWAYS, UFS_BEFORE_PLAIN, PLAIN },
	{ OF_403, ALWAYS, UFS_BEFORE_PLAIN, PLAIN },
	{ OF_500, ALWAYS, UFS_BEFORE_PLAIN, PLAIN },
	{ OF_403, ALWAYS, UFS_BEFORE_VERSIONS, VERSION },
	{ OF_500, ALWAYS, UFS_BEFORE_VERSIONS, VERSION },
	{ OF_PAGE, ALWAYS, UFS_BEFORE_VERSIONS, VERSION },
	{ OF_SILENCE, ALWAYS, UFS_BEFORE_VERSIONS, VERSION },
};

static void answers(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = ERR_INIT;
		char tag[64] = "";

		memset(&script, 0, sizeof(script));
		script.versioning = cases[i].versioning;
		script.odd = cases[i].odd;
		script.before = cases[i].before;
		if (list(tag, &e) < 0 || strcmp(tag, cases[i].tag) != 0)
			fail_msg("case %zu: \"%s\" %s", i, tag, e.text);
		assert_in_range(script.told, 0, 1);
		if (script.versioning == OF_NONE)
			assert_int_equal(script.told, 0);
	}
}

#define LISTING                                                              \
	"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>x" \
	"</Key><Size>1</Size><ETag>e</ETag></Contents></ListBucketResult>"

/* Answers that mean: no versions here. Those that can mean nothing else are believed at once, unless versions were
 * listed before: then this service supports them. */
static void not_supported(void **state)
{
	static const struct {
		struct raw raw;
		uint32_t asked;
	} answers_of[] = {
		{ { 501, "NotImplemented", NULL }, 1 },
		{ { 501, "", NULL }, 1 },
		{ { 501, "InternalError", NULL }, 1 },
		{ { 405, "MethodNotAllowed", NULL }, 1 },
		{ { 405, "", NULL }, 1 },
		{ { 400, "NotImplemented", NULL }, 1 },
		{ { 400, "InvalidRequest", NULL }, 1 },
		{ { 400, "InvalidArgument", NULL }, 1 },
		{ { 404, "NotImplemented", NULL }, 1 },
		{ { 200, NULL, LISTING }, 1 },
		/* Not quite: a policy, a proxy, a bucket that was just made. */
		{ { 400, "Strange", NULL }, 3 },
		{ { 400, "", NULL }, 3 },
		{ { 403, "AccessDenied", NULL }, 3 },
		{ { 404, "NoSuchKey", NULL }, 3 },
		{ { 404, "NoSuchBucket", NULL }, 3 },
		{ { 404, "", NULL }, 3 },
		{ { 200, NULL, "" }, 3 },
		{ { 200, NULL, "<html/>" }, 3 },
	};
	static const enum ufs_before before[] = { UFS_BEFORE_NOTHING, UFS_BEFORE_PLAIN,
		UFS_BEFORE_VERSIONS };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(answers_of) * ARRAY_SIZE(before); i++) {
		const struct raw *raw = &answers_of[i / ARRAY_SIZE(before)].raw;
		uint32_t asked = answers_of[i / ARRAY_SIZE(before)].asked;
		struct err e = ERR_INIT;
		char tag[64] = "";

		memset(&script, 0, sizeof(script));
		script.raw = raw;
		script.before = before[i % ARRAY_SIZE(before)];
		if (script.before == UFS_BEFORE_VERSIONS)
			asked = 3;
		if (list(tag, &e) < 0 || script.asked != asked ||
			strcmp(tag, script.before == UFS_BEFORE_VERSIONS ? VERSION : PLAIN) != 0)
			fail_msg("%d %s, before %d: asked %u times, \"%s\" %s", raw->status,
				raw->code ? raw->code : raw->body, script.before, script.asked, tag,
				e.text);
		assert_in_range(script.told, 0, 1);
	}
}

/* Versions that may not be listed: a moment of it, and for ever, of a bucket that was listed with
 * them and of one that was not. */
static void refused(void **state)
{
	struct err e = ERR_INIT;
	char tag[64] = "";

	(void)state;
	memset(&script, 0, sizeof(script));
	script.refused = true;
	script.refusals = 2;
	assert_int_equal(list(tag, &e), 0);
	assert_string_equal(tag, VERSION);
	script.refusals = ALWAYS;
	assert_int_equal(list(tag, &e), 0);
	assert_string_equal(tag, PLAIN);
	script.before = UFS_BEFORE_VERSIONS;
	script.listed = 0;
	script.refusals = 5;
	assert_int_equal(list(tag, &e), 0);
	assert_string_equal(tag, VERSION);
	script.refusals = ALWAYS;
	assert_int_equal(list(tag, &e), -EACCES);
	assert_non_null(strstr(e.text, "--versions off"));
	assert_non_null(strstr(e.text, "s3:ListBucketVersions"));
}

static void tags(void **state)
{
	(void)state;
	assert_true(ufs_tag_has_version("v:id:e", 6));
	assert_false(ufs_tag_has_version("v::v:e", 6));
	assert_false(ufs_tag_has_version("e", 1));
	assert_false(ufs_tag_has_version("", 0));
}

static int setup(void **state)
{
	(void)state;
	server_start(&server, answer, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	server_stop(&server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(answers, setup, teardown),
		cmocka_unit_test_setup_teardown(not_supported, setup, teardown),
		cmocka_unit_test_setup_teardown(refused, setup, teardown),
		cmocka_unit_test(tags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
