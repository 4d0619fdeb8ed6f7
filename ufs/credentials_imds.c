/*
 * Keys of the machine's role, from its metadata service by the second version of its protocol: a
 * token first, by PUT, which no page in a browser and no proxy sends for somebody else.
 * https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html
 *
 * The token is not kept: keys are asked for every few hours.
 */
#include "ufs/credentials_internal.h"
#include "base/clock.h"
#include "base/secret.h"
#include "ufs/http_once.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMDS_ADDRESS    "http://169.254.169.254"
#define IMDS_ADDRESS_6  "http://[fd00:ec2::254]"
#define IMDS_TTL        "21600"
#define IMDS_CONNECT_NS CLOCK_SECOND /* it is next door, or not there */
#define IMDS_TIMEOUT_NS (3 * CLOCK_SECOND)
#define IMDS_TRIES      3
#define IMDS_PAUSE_NS   (200 * CLOCK_MS)
#define IMDS_ANSWER_MAX (16u * 1024)
#define IMDS_ROLES      "/latest/meta-data/iam/security-credentials/"

struct imds {
	const struct credentials_query *query;
	const char *address;
	char token[512];
};

static const char *find_address(void)
{
	const char *address = credentials_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	const char *mode = credentials_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");

	if (address)
		return address;
	return mode && strcasecmp(mode, "IPv6") == 0 ? IMDS_ADDRESS_6 : IMDS_ADDRESS;
}

static int ask_once(const struct imds *imds, const char *method, const char *path,
	const char *header, int *ret_status, struct buf *answer, struct err *e)
{
	struct buf url = BUF_INIT(4096);
	const char *const headers[] = { header };
	size_t n = strlen(imds->address);
	int r;

	while (n && imds->address[n - 1] == '/')
		n--;
	r = buf_printf(&url, "%.*s%s", (int)n, imds->address, path);
	if (r == 0)
		r = http_once(&(struct http_once){ .method = method,
				      .url = buf_str(&url),
				      .headers = headers,
				      .n_headers = 1,
				      .no_proxy = true,
				      .connect_ns = IMDS_CONNECT_NS,
				      .timeout_ns = IMDS_TIMEOUT_NS,
				      .given_up = imds->query->given_up },
			ret_status, answer, e);
	buf_release(&url);
	return r;
}

/* A service that is there and fails is asked again, a few times; one that is not there is not. */
static int ask(const struct imds *imds, const char *method, const char *path, const char *header,
	int *ret_status, struct buf *answer, struct err *e)
{
	for (unsigned int tries = 1;; tries++) {
		int r = ask_once(imds, method, path, header, ret_status, answer, e);
		bool passes = r == -EIO || (r == 0 && *ret_status >= 500);

		if (!passes || tries == IMDS_TRIES)
			return r;
		buf_clear(answer);
		clock_sleep_ns(IMDS_PAUSE_NS);
	}
}

/* One line of visible characters, into `out`. */
static bool take_word(const struct buf *answer, char *out, size_t size)
{
	size_t n = strcspn(buf_str(answer), " \r\n\t");

	if (n == 0 || n >= size)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isgraph((unsigned char)answer->data[i]))
			return false;
	memcpy(out, answer->data, n);
	out[n] = '\0';
	return true;
}

static int get_token(struct imds *imds, struct err *e)
{
	struct buf answer = BUF_INIT(IMDS_ANSWER_MAX);
	struct err why = ERR_INIT;
	int status = 0;
	int r = ask(imds, "PUT", "/latest/api/token",
		"X-aws-ec2-metadata-token-ttl-seconds: " IMDS_TTL, &status, &answer, &why);

	if (r == -ECANCELED || r == -ENOMEM)
		r = err_set(e, r, "%s", why.text);
	else if (r < 0)
		r = err_set(e, -ENOENT,
			"no metadata service: %.300s; in a container its hop limit may be too low",
			why.text);
	else if (status != 200 || !take_word(&answer, imds->token, sizeof(imds->token)))
		r = err_set(e, -ENOENT, "the metadata service %s returned no token (%d)",
			imds->address, status);
	secret_release_buf(&answer);
	return r;
}

/* A document below the token's. 404 is -ENOENT. */
static int get(const struct imds *imds, const char *path, struct buf *answer, struct err *e)
{
	char header[600];
	int status = 0;
	int r;

	(void)snprintf(
		header, sizeof(header), "X-aws-ec2-metadata-token: %s", imds->token); /* fits */
	r = ask(imds, "GET", path, header, &status, answer, e);
	explicit_bzero(header, sizeof(header));
	if (r < 0)
		return r == -ECANCELED || r == -ENOMEM
			       ? r
			       : err_set(e, -ENOKEY, "%s", e ? (const char *)strdupa(e->text) : "");
	if (status == 404)
		return err_set(
			e, -ENOENT, "the machine has no role: %s%s not found", imds->address, path);
	if (status != 200)
		return err_set(e, -ENOKEY, "the metadata service %s answers %d for %s",
			imds->address, status, path);
	return 0;
}

static int get_keys(struct imds *imds, struct credentials *c, struct err *e)
{
	struct buf answer = BUF_INIT(IMDS_ANSWER_MAX);
	char role[256];
	char path[sizeof(IMDS_ROLES) + sizeof(role)];
	int r = get(imds, IMDS_ROLES, &answer, e);

	if (r == 0 && !take_word(&answer, role, sizeof(role)))
		r = err_set(e, -ENOENT, "the machine has no role");
	buf_clear(&answer);
	if (r == 0) {
		(void)snprintf(path, sizeof(path), "%s%s", IMDS_ROLES, role); /* fits */
		r = get(imds, path, &answer, e);
	}
	if (r == 0)
		r = credentials_take_json(&answer, "the metadata service", c, e);
	if (r == 0)
		r = credentials_place(c, "role %s of this machine", role);
	secret_release_buf(&answer);
	return r;
}

static int find(const struct credentials_query *query, struct credentials *c, struct err *e)
{
	const char *disabled = credentials_variable("AWS_EC2_METADATA_DISABLED");
	struct imds imds = { .query = query, .address = find_address() };
	int r;

	if (disabled && strcasecmp(disabled, "true") == 0)
		return err_set(
			e, -ENOENT, "AWS_EC2_METADATA_DISABLED disables the metadata service");
	r = get_token(&imds, e);
	if (r == 0)
		r = get_keys(&imds, c, e);
	explicit_bzero(imds.token, sizeof(imds.token));
	return r;
}

const struct credentials_provider credentials_imds = { "imds", find };
