/*
 * Keys from services and by reference: a token service (STS), a container's agent and a machine's
 * metadata service, as small servers that say what is wrong with a request; and what files and
 * variables are named.
 */
#include "tests/unit/ufs/server.h"
#include "base/clock.h"
#include "ufs/credentials.h"
#include "ufs/ufs.h"
#include "tests/clock/test_clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static struct server server;
static char dir[] = "/tmp/granary-identity-XXXXXX";
static char token_file[64], keys_file[64], keys_dir[64];
/* What a server says next, and what it was asked. */
static struct {
	pthread_mutex_t lock;
	int status;
	char body[2048];
	char token[64]; /* of the metadata service; "": none is given */
	char roles[64];
	uint32_t requests;
	uint32_t fails_from, fails_n; /* these of them are answered 503 */
	char head[SERVER_HEAD];
} script = { .lock = PTHREAD_MUTEX_INITIALIZER };

#define KEYS                                                                              \
	"{\n  \"Code\" : \"Success\", \"Extra\": {\"a\": [1, \"}\"]}, \"Number\": 1.5,\n" \
	"  \"AccessKeyId\" : \"ASIAMACHINE\", \"SecretAccessKey\" : \"a\\/b+c\",\n"       \
	"  \"Token\" : \"t\\u0041\", \"Expiration\" : \"2033-05-18T03:33:20Z\"\n}"

#define STS_KEYS                                                                                  \
	"<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">" \
	"<AssumeRoleWithWebIdentityResult><AssumedRoleUser><Arn>arn:x</Arn></AssumedRoleUser>"    \
	"<Credentials><AccessKeyId>ASIAROLE</AccessKeyId>"                                        \
	"<SecretAccessKey>s/e+c</SecretAccessKey><SessionToken>tok&amp;en</SessionToken>"         \
	"<Expiration>2033-05-18T03:33:20.000Z</Expiration></Credentials>"                         \
	"</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"

static void put(int fd, int status, const char *body)
{
	char head[200];
	int n = snprintf(head, sizeof(head), "HTTP/1.1 %d x\r\nContent-Length: %zu\r\n\r\n", status,
		strlen(body));

	server_put(fd, head, (size_t)n);
	server_puts(fd, body);
}

/* For what comes next. */
static void say(int status, const char *body)
{
	pthread_mutex_lock(&script.lock);
	script.status = status;
	(void)snprintf(script.body, sizeof(script.body), "%s", body);
	pthread_mutex_unlock(&script.lock);
}

static void say_metadata(const char *token, const char *roles)
{
	pthread_mutex_lock(&script.lock);
	(void)snprintf(script.token, sizeof(script.token), "%s", token);
	(void)snprintf(script.roles, sizeof(script.roles), "%s", roles);
	pthread_mutex_unlock(&script.lock);
}

static bool begins(const char *head, const char *with)
{
	return strncmp(head, with, strlen(with)) == 0;
}

static bool answer(struct server *s, int fd, const char *head)
{
	char want[128];

	(void)s;
	pthread_mutex_lock(&script.lock);
	script.requests++;
	(void)snprintf(script.head, sizeof(script.head), "%s", head);
	(void)snprintf(want, sizeof(want), "X-aws-ec2-metadata-token: %s\r\n", script.token);
	if (script.requests >= script.fails_from &&
		script.requests < script.fails_from + script.fails_n)
		put(fd, 503, "");
	else if (begins(head, "PUT /latest/api/token "))
		put(fd, strstr(head, "X-aws-ec2-metadata-token-ttl-seconds: 21600") ? 200 : 400,
			script.token);
	else if (begins(head, "GET /latest/") && !strstr(head, want))
		put(fd, 401, "");
	else if (begins(head, "GET /latest/meta-data/iam/security-credentials/ "))
		put(fd, *script.roles ? 200 : 404, script.roles);
	else
		put(fd, script.status, script.body);
	pthread_mutex_unlock(&script.lock);
	return false; /* a body that follows is not read */
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void set_url(const char *name, const char *path)
{
	char url[100];

	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", server.port, path);
	setenv(name, url, 1);
}

static int setup(void **state)
{
	static const char *const names[] = { "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_CA_BUNDLE", "OBS_ACCESS_KEY_ID",
		"OBS_SECRET_ACCESS_KEY", "OBS_SECURITY_TOKEN", "TEAM_ACCESS_KEY_ID",
		"TEAM_SECRET_ACCESS_KEY", "http_proxy", "all_proxy" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials", 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent/config", 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	say(200, STS_KEYS);
	say_metadata("metadata-token", "the-role\n");
	script.requests = 0;
	write_file(token_file, "  the.web.token\n");
	server_start(&server, answer, NULL);
	set_url("AWS_ENDPOINT_URL_STS", "");
	set_url("AWS_EC2_METADATA_SERVICE_ENDPOINT", "/");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	server_stop(&server);
	return 0;
}

static int find(const char *reference, struct credentials *c, struct err *e)
{
	*e = ERR_INIT;
	return credentials_find(&(struct credentials_query){ .reference = reference }, c, e);
}

/* Ends with a line that says `text`, and no secret. */
static void refused(const char *reference, int status, const char *text)
{
	struct credentials c;
	struct err e;

	assert_int_equal(find(reference, &c, &e), status);
	if (!strstr(e.text, text))
		fail_msg("\"%s\" is not in \"%s\"", text, e.text);
	assert_null(strstr(e.text, "the.web.token"));
	assert_null(strstr(e.text, "metadata-token"));
	assert_null(strstr(e.text, "mount ed"));
	assert_null(strstr(e.text, "/v1/credentials")); /* a task's is as good as its keys */
	assert_null(strstr(e.text, "team-secret"));
}

/* ---- the token service ----------------------------------------------------------------------- */

static void web_identity(void **state)
{
	struct credentials c;
	struct err e;

	(void)state;
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token_file, 1);
	setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r", 1);
	if (find(NULL, &c, &e) != 0) /* by the usual search */
		fail_msg("%s", e.text);
	assert_string_equal(c.access_key, "ASIAROLE");
	assert_string_equal(c.secret_key, "s/e+c");
	assert_string_equal(c.session_token, "tok&en");
	assert_int_equal(c.expires, 2000000000);
	assert_non_null(strstr(c.place, "arn:aws:iam::1:role/r"));
	assert_true(begins(script.head, "POST / HTTP/1.1\r\n"));
	credentials_release(&c);
	/* A new token is read, and asked with. */
	assert_int_equal(find("web-identity", &c, &e), 0);
	assert_int_equal(script.requests, 2);
	credentials_release(&c);
	/* Keys of the environment go before. */
	setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "es", 1);
	assert_int_equal(find(NULL, &c, &e), 0);
	assert_string_equal(c.access_key, "ENV");
	assert_int_equal(script.requests, 2);
	credentials_release(&c);
}

static void profile_identity(void **state)
{
	struct credentials c;
	struct err e;
	char text[256];

	(void)state;
	(void)snprintf(text, sizeof(text),
		"[profile pod]\nrole_arn = arn:pod\nweb_identity_token_file = %s\n", token_file);
	write_file(keys_file, text);
	setenv("AWS_CONFIG_FILE", keys_file, 1);
	if (find("profile:pod", &c, &e) != 0)
		fail_msg("%s", e.text);
	assert_string_equal(c.access_key, "ASIAROLE");
	assert_non_null(strstr(c.place, "arn:pod"));
	credentials_release(&c);
}

static void web_identity_refused(void **state)
{
	(void)state;
	refused("web-identity", -ENOKEY, "AWS_WEB_IDENTITY_TOKEN_FILE is not set");
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent/token", 1);
	refused("web-identity", -ENOKEY, "AWS_ROLE_ARN is not set");
	setenv("AWS_ROLE_ARN", "arn:r", 1);
	refused("web-identity", -ENOKEY, "/nonexistent/token");
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token_file, 1);
	say(403, "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized"
		 "</Message></Error></ErrorResponse>");
	refused("web-identity", -ENOKEY, "403 AccessDenied: Not authorized");
	say(200, "<html>hello</html>");
	refused("web-identity", -ENOKEY, "did not return keys");
	say(200, "<!DOCTYPE a [<!ENTITY b \"c\">]>" STS_KEYS);
	refused("web-identity", -ENOKEY, "did not return keys");
	write_file(token_file, "two\nlines\n");
	refused("web-identity", -ENOKEY, "one value");
	write_file(token_file, " \n");
	refused("web-identity", -ENOKEY, ": empty");
	setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1", 1);
	write_file(token_file, "x");
	refused("web-identity", -ENOKEY, "127.0.0.1:1");
}

/* What passes is asked again. */
static bool busy_once(struct server *s, int fd, const char *head)
{
	bool first;

	pthread_mutex_lock(&script.lock);
	first = script.requests++ == 0;
	pthread_mutex_unlock(&script.lock);
	if (first) {
		put(fd, 503, "");
		return false;
	}
	return answer(s, fd, head);
}

static void web_identity_again(void **state)
{
	struct credentials c;
	struct err e;

	(void)state;
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token_file, 1);
	setenv("AWS_ROLE_ARN", "arn:r", 1);
	server.answer = busy_once;
	assert_int_equal(find("web-identity", &c, &e), 0);
	credentials_release(&c);
}

/* ---- the metadata service -------------------------------------------------------------------- */

static void imds(void **state)
{
	struct credentials c;
	struct err e;

	(void)state;
	say(200, KEYS);
	refused("imds", -ENOKEY, "AWS_EC2_METADATA_DISABLED");
	refused(NULL, -ENOKEY, "AWS_ACCESS_KEY_ID");
	assert_int_equal(script.requests, 0);
	unsetenv("AWS_EC2_METADATA_DISABLED");
	if (find(NULL, &c, &e) != 0)
		fail_msg("%s", e.text);
	assert_string_equal(c.access_key, "ASIAMACHINE");
	assert_string_equal(c.secret_key, "a/b+c");
	assert_string_equal(c.session_token, "tA");
	assert_int_equal(c.expires, 2000000000);
	assert_non_null(strstr(c.place, "the-role"));
	assert_int_equal(script.requests, 3); /* token, role, keys */
	assert_true(
		begins(script.head, "GET /latest/meta-data/iam/security-credentials/the-role "));
	credentials_release(&c);
}

/* A service that fails for a moment, at any of the three questions. */
static void imds_again(void **state)
{
	struct credentials c;
	struct err e;

	(void)state;
	say(200, KEYS);
	unsetenv("AWS_EC2_METADATA_DISABLED");
	for (uint32_t at = 1; at <= 3; at++) {
		script.requests = 0;
		script.fails_from = at;
		script.fails_n = 2;
		if (find("imds", &c, &e) != 0)
			fail_msg("%s", e.text);
		assert_string_equal(c.access_key, "ASIAMACHINE");
		assert_int_equal(script.requests, 5);
		credentials_release(&c);
	}
	script.fails_n = 0;
}

static void imds_refused(void **state)
{
	static const char no_success[] = "{\"Code\":\"Failed\",\"AccessKeyId\":\"a\","
					 "\"SecretAccessKey\":\"s\",\"Token\":\"t\","
					 "\"Expiration\":\"2033-05-18T03:33:20Z\"}";
	static const char no_time[] =
		"{\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"s\",\"Token\":\"t\",\"Expiration\":"
		"\"soon\"}";
	const char *const broken[] = { "", "{", "[]", "{\"AccessKeyId\":\"a\"}", no_success,
		no_time, "{\"AccessKeyId\":\"a", "{\"a\":\"\\q\"}", "{\"a\":}", "{\"a\":]}",
		"{\"a\" 1}" };

	(void)state;
	unsetenv("AWS_EC2_METADATA_DISABLED");
	for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
		say(200, broken[i]);
		refused("imds", -ENOKEY, "did not return keys");
	}
	script.requests = 0;
	say(500, "");
	refused("imds", -ENOKEY, "500");
	assert_int_equal(script.requests, 5); /* token, role, and three times keys */
	say_metadata("metadata-token", "");
	refused("imds", -ENOKEY, "the machine has no role");
	say_metadata("", "");
	refused("imds", -ENOKEY, "returned no token");
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1", 1);
	refused("imds", -ENOKEY, "no metadata service");
	refused(NULL, -ENOKEY, "AWS_ACCESS_KEY_ID"); /* what a person can do, by the search */
}

/* ---- the container's agent ------------------------------------------------------------------- */

static void container(void **state)
{
	struct credentials c;
	struct err e;

	(void)state;
	refused("container", -ENOKEY, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	say(200, KEYS);
	set_url("AWS_CONTAINER_CREDENTIALS_FULL_URI", "/v1/credentials");
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "plain", 1);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token_file, 1);
	if (find(NULL, &c, &e) != 0)
		fail_msg("%s", e.text);
	assert_string_equal(c.access_key, "ASIAMACHINE");
	assert_null(strstr(c.place, "/v1/credentials"));
	assert_true(begins(script.head, "GET /v1/credentials "));
	assert_non_null(strstr(script.head, "\r\nAuthorization: the.web.token\r\n"));
	credentials_release(&c);
	unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	assert_int_equal(find("container", &c, &e), 0);
	assert_non_null(strstr(script.head, "\r\nAuthorization: plain\r\n"));
	credentials_release(&c);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "a\r\nHost: b", 1);
	refused("container", -ENOKEY, "newline");
	unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	say(404, "");
	refused("container", -ENOKEY, "404");
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/keys", 1);
	refused("container", -ENOKEY, "plain http://");
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "nonsense", 1);
	refused("container", -ENOKEY, "not a URL");
}

/* ---- references ------------------------------------------------------------------------------ */

static void of_variables(void **state)
{
	struct credentials c;
	struct err e;

	(void)state;
	refused("env:TEAM_", -ENOKEY, "TEAM_ACCESS_KEY_ID is not set");
	setenv("TEAM_ACCESS_KEY_ID", "TEAMKEY", 1);
	refused("env:TEAM_", -ENOKEY, "TEAM_SECRET_ACCESS_KEY is not set");
	setenv("TEAM_SECRET_ACCESS_KEY", "team-secret", 1);
	setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "es", 1);
	assert_int_equal(find("env:TEAM_", &c, &e), 0);
	assert_string_equal(c.access_key, "TEAMKEY");
	assert_null(c.session_token);
	credentials_release(&c);
	assert_int_equal(find("env:AWS_", &c, &e), 0);
	assert_string_equal(c.access_key, "ENV");
	credentials_release(&c);
}

static void reference_to(const char *word, const char *path, const char *more, char out[128])
{
	(void)snprintf(out, 128, "%s%s%s", word, path, more);
}

static void of_files(void **state)
{
	char reference[128];
	char path[128];
	struct credentials c;
	struct err e;

	(void)state;
	write_file(keys_file, "[default]\naws_access_key_id=ONE\naws_secret_access_key=s\n"
			      "[half]\naws_access_key_id=TWO\n");
	reference_to("file:", keys_file, "", reference);
	assert_int_equal(find(reference, &c, &e), 0);
	assert_string_equal(c.access_key, "ONE");
	assert_non_null(strstr(c.place, keys_file));
	credentials_release(&c);
	reference_to("file:", keys_file, "#half", reference);
	refused(reference, -ENOKEY, "aws_secret_access_key is missing in section [half]");
	reference_to("file:", keys_file, "#nobody", reference);
	refused(reference, -ENOKEY, "no section [nobody]");
	refused("file:/nonexistent/keys", -ENOKEY, "not found");
	/* As a Kubernetes Secret. */
	reference_to("file:", keys_dir, "", reference);
	refused(reference, -ENOKEY, "access-key-id");
	(void)snprintf(path, sizeof(path), "%s/AWS_ACCESS_KEY_ID", keys_dir);
	write_file(path, "SECRETKEY\n");
	refused(reference, -ENOKEY, "secret-access-key");
	(void)snprintf(path, sizeof(path), "%s/secret-access-key", keys_dir);
	write_file(path, "mounted\n");
	assert_int_equal(find(reference, &c, &e), 0);
	assert_string_equal(c.access_key, "SECRETKEY");
	assert_string_equal(c.secret_key, "mounted");
	assert_null(c.session_token);
	credentials_release(&c);
	write_file(path, "mount ed\n");
	refused(reference, -ENOKEY, path);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/AWS_ACCESS_KEY_ID", keys_dir);
	(void)unlink(path);
}

/* Which source it is does not depend on who asks: the endpoint that the file says counts in any
 * case. */
static void endpoint_of_file(void **state)
{
	struct ufs_config config;
	struct buf source = BUF_INIT(1024);
	char reference[128];
	struct credentials c;
	struct err e;

	(void)state;
	write_file(keys_file, "[a]\naws_access_key_id=ONE\naws_secret_access_key=s\n"
			      "endpoint_url=http://a.example\nregion=eu-south-1\n");
	reference_to("file:", keys_file, "#a", reference);
	assert_int_equal(find(reference, &c, &e), 0);
	assert_string_equal(c.endpoint, "http://a.example");
	assert_string_equal(c.region, "eu-south-1");
	credentials_release(&c);
	assert_int_equal(ufs_config_parse("s3://bucket/p", &config, NULL), 0);
	config.credentials = strdup(reference);
	assert_int_equal(ufs_config_source(&config, &source, &e), 0);
	assert_string_equal(buf_str(&source), "s3|http://a.example|bucket|p/");
	buf_release(&source);
	ufs_config_release(&config);
}

/* As a kubelet puts them there: all values lie in one directory, which a link leads to. */
static void moved_values(void **state)
{
	char inside[100], link[100], key[128], secret[128];
	char reference[128];
	struct credentials c;
	struct err e;

	(void)state;
	(void)snprintf(inside, sizeof(inside), "%s/..1", keys_dir);
	(void)snprintf(link, sizeof(link), "%s/..data", keys_dir);
	(void)snprintf(key, sizeof(key), "%s/access-key-id", inside);
	(void)snprintf(secret, sizeof(secret), "%s/secret-access-key", inside);
	assert_int_equal(mkdir(inside, 0700), 0);
	write_file(key, "NEW");
	write_file(secret, "new");
	assert_int_equal(symlink("..1", link), 0);
	reference_to("file:", keys_dir, "", reference);
	if (find(reference, &c, &e) != 0)
		fail_msg("%s", e.text);
	assert_string_equal(c.access_key, "NEW");
	assert_string_equal(c.secret_key, "new");
	credentials_release(&c);
	assert_int_equal(unlink(secret), 0);
	refused(reference, -ENOKEY, "secret-access-key");
	assert_int_equal(unlink(key), 0);
	assert_int_equal(rmdir(inside), 0);
	assert_int_equal(unlink(link), 0);
}

static void written(void **state)
{
	static const char *const good[] = { "env:A_", "env:_a1", "file:/a", "file:/a#b",
		"profile:x y", "web-identity", "container", "imds", "anonymous" };
	static const char *const bad[] = { "", "env:", "env:1A", "env:A-B", "file:", "file:a",
		"profile:", "imds:", "AKIAEXAMPLE:secretword", "webidentity" };
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(ufs_credentials_check(good[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		e = ERR_INIT;
		assert_int_equal(ufs_credentials_check(bad[i], &e), -EINVAL);
		assert_true(e.text[0]);
		assert_null(strstr(e.text, "secretword"));
	}
}

static void of_obs(void **state)
{
	struct credentials_query query_obs = { .obs = true };
	struct credentials c;
	struct err e = ERR_INIT;

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "ENV", 1); /* of somebody else */
	setenv("AWS_SECRET_ACCESS_KEY", "es", 1);
	assert_int_equal(credentials_find(&query_obs, &c, &e), -ENOKEY);
	assert_non_null(strstr(e.text, "OBS_ACCESS_KEY_ID"));
	setenv("OBS_ACCESS_KEY_ID", "HUAWEI", 1);
	setenv("OBS_SECRET_ACCESS_KEY", "obs-secret", 1);
	setenv("OBS_SECURITY_TOKEN", "obs-token", 1);
	setenv("OBS_ENDPOINT", "https://obs.example.com", 1);
	assert_int_equal(credentials_find(&query_obs, &c, &e), 0);
	assert_string_equal(c.access_key, "HUAWEI");
	assert_string_equal(c.session_token, "obs-token");
	assert_string_equal(c.endpoint, "https://obs.example.com");
	credentials_release(&c);
	unsetenv("OBS_ENDPOINT");
	query_obs.reference = "imds";
	assert_int_equal(credentials_find(&query_obs, &c, &e), -EINVAL);
}

/* ---- giving up ------------------------------------------------------------------------------- */

static bool silent(struct server *s, int fd, const char *head)
{
	_Atomic bool *flags = s->arg;

	(void)fd;
	(void)head;
	atomic_store(&flags[0], true);
	test_wait(atomic_load(&flags[1]));
	test_advance(2 * CLOCK_SECOND); /* its end is not what is noticed */
	return false;
}

static void *give_up(void *arg)
{
	_Atomic bool *flags = arg; /* asked, given up */

	test_wait(atomic_load(&flags[0]));
	atomic_store(&flags[1], true);
	return NULL;
}

static void given_up(void **state)
{
	static _Atomic bool flags[2]; /* the server may look at them still */
	const struct credentials_query query_imds = { .reference = "imds", .given_up = &flags[1] };
	struct credentials c;
	struct err e = ERR_INIT;
	pthread_t thread;

	(void)state;
	unsetenv("AWS_EC2_METADATA_DISABLED");
	server.answer = silent;
	server.arg = flags;
	assert_int_equal(pthread_create(&thread, NULL, give_up, flags), 0);
	assert_int_equal(credentials_find(&query_imds, &c, &e), -ECANCELED);
	pthread_join(thread, NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(web_identity),
		TEST(profile_identity),
		TEST(web_identity_refused),
		TEST(web_identity_again),
		TEST(imds),
		TEST(imds_again),
		TEST(imds_refused),
		TEST(container),
		TEST(of_variables),
		TEST(of_files),
		TEST(endpoint_of_file),
		TEST(moved_values),
		TEST(written),
		TEST(of_obs),
		TEST(given_up),
	};
	int failed;

	if (!mkdtemp(dir))
		return 1;
	(void)snprintf(token_file, sizeof(token_file), "%s/token", dir);
	(void)snprintf(keys_file, sizeof(keys_file), "%s/keys", dir);
	(void)snprintf(keys_dir, sizeof(keys_dir), "%s/secret", dir);
	if (mkdir(keys_dir, 0700) != 0)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	(void)unlink(token_file);
	(void)unlink(keys_file);
	(void)rmdir(keys_dir);
	(void)rmdir(dir);
	return failed;
}
