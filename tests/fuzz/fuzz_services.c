/*
 * Fuzzer of what services say: a token service's XML, a metadata service's JSON, the errors of S3 and
 * OBS. No input may crash; keys are whole or not there; an error has a cause and a line of printable
 * text. The first byte chooses: modulo 4 the service, the rest a status.
 */
#include <string.h>
#include "ufs/credentials_internal.h"
#include "ufs/s3_error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_keys(int r, const struct credentials *c, const struct err *e)
{
	if (r == 0) {
		ensure(c->access_key && c->secret_key && c->session_token);
		ensure(*c->access_key && *c->secret_key && *c->session_token);
	} else {
		ensure(!c->access_key && !c->secret_key && !c->session_token && !c->expires);
		ensure(e->text[0]);
	}
}

static void take_keys(const struct buf *body, bool sts, int status)
{
	struct credentials c = { 0 };
	struct err e = ERR_INIT;
	int r = sts ? credentials_take_sts(status, body, "http://sts", "role", &c, &e)
		    : credentials_take_json(body, "the metadata service", &c, &e);

	check_keys(r, &c, &e);
	credentials_release(&c);
}

static void take_error(const struct buf *body, bool obs, int status)
{
	const struct s3_target target = { .scheme = obs ? "obs" : "s3",
		.url = "http://host",
		.bucket = "bucket",
		.region = "us-east-1",
		.access_key = "AKID",
		.key_place = "here" };
	struct s3_failure failure = { 0 };
	struct s3_answer answer;
	struct err e = ERR_INIT;

	s3_answer_init(&answer);
	answer.status = status;
	for (int i = 0; i < 2; i++) {
		const char *key = i ? "key" : NULL;
		int r = s3_error_status(
			&target, key, i ? 3 : 0, &answer, buf_str(body), body->len, &failure, &e);

		ensure(r < 0 && e.text[0]);
		ensure(failure.cause != UFS_CAUSE_NONE && failure.cause < UFS_CAUSE_COUNT);
		ensure(strlen(failure.region) < sizeof(failure.region));
		ensure(strlen(failure.endpoint) < sizeof(failure.endpoint));
		for (const char *at = e.text; *at; at++)
			ensure((unsigned char)*at >= ' ' && *at != 0x7f); /* one line */
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int statuses[] = { 200, 301, 307, 400, 401, 403, 404, 405, 412, 416, 429, 500,
		501, 503, 599 };
	struct buf body = BUF_INIT(CREDENTIALS_TOKEN_MAX);
	int status;

	if (size == 0 || buf_append(&body, data + 1, size - 1) < 0) {
		buf_release(&body);
		return 0;
	}
	status = statuses[data[0] / 4 % ARRAY_SIZE(statuses)];
	if (data[0] % 4 < 2)
		take_keys(&body, data[0] % 4 == 0, status);
	else
		take_error(&body, data[0] % 4 == 2, max(status, 300));
	buf_release(&body);
	return 0;
}
