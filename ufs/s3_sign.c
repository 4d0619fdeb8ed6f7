/* AWS Signature Version 4. See s3_sign.h. */
#include "ufs/s3_sign.h"
#include "base/clock.h"
#include "base/secret.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define S3_SCRATCH_MAX (64u * 1024)

static bool unreserved(unsigned char c)
{
	return isalnum(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

int s3_encode(struct buf *out, const char *s, size_t len, bool keep_slash)
{
	static const char digits[] = "0123456789ABCDEF";
	int r = buf_reserve(out, len * 3);

	if (r < 0)
		return r;
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		if (unreserved(c) || (c == '/' && keep_slash)) {
			out->data[out->len++] = (char)c;
		} else {
			out->data[out->len++] = '%';
			out->data[out->len++] = digits[c >> 4];
			out->data[out->len++] = digits[c & 15];
		}
	}
	out->data[out->len] = '\0';
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct s3_param *)a)->name, ((const struct s3_param *)b)->name);
}

int s3_encode_query(struct buf *out, struct s3_param *params, size_t n)
{
	int r = 0;

	qsort(params, n, sizeof(*params), by_name); /* names of ours: plain and different */
	for (size_t i = 0; i < n && r == 0; i++) {
		if (i)
			r = buf_puts(out, "&");
		if (r == 0)
			r = s3_encode(out, params[i].name, strlen(params[i].name), false);
		if (r == 0)
			r = buf_puts(out, "=");
		if (r == 0)
			r = s3_encode(out, params[i].value, params[i].value_len, false);
	}
	return r;
}

void s3_signer_init(struct s3_signer *signer, const char *access_key, const char *secret_key,
	const char *region, const char *service)
{
	*signer = (struct s3_signer){
		.access_key = access_key,
		.secret_key = secret_key,
		.region = region,
		.service = service,
		.scratch = BUF_INIT(S3_SCRATCH_MAX),
	};
}

void s3_signer_release(struct s3_signer *signer)
{
	explicit_bzero(signer->key, sizeof(signer->key));
	secret_release_buf(&signer->scratch);
}

static void hmac_text(uint8_t key[SHA256_BYTES], const char *text)
{
	uint8_t out[SHA256_BYTES];

	hash_hmac_sha256(key, SHA256_BYTES, text, strlen(text), out);
	memcpy(key, out, sizeof(out));
}

static int derive_key(struct s3_signer *signer, const char *time)
{
	struct buf *secret = &signer->scratch;
	int r;

	if (memcmp(signer->date, time, 8) == 0)
		return 0;
	buf_clear(secret);
	r = buf_printf(secret, "AWS4%s", signer->secret_key);
	if (r < 0)
		return r;
	memcpy(signer->date, time, 8);
	hash_hmac_sha256(secret->data, secret->len, signer->date, 8, signer->key);
	explicit_bzero(secret->data, secret->len);
	hmac_text(signer->key, signer->region);
	hmac_text(signer->key, signer->service);
	hmac_text(signer->key, "aws4_request");
	return 0;
}

static int put_names(struct buf *b, const struct s3_signed *request)
{
	int r = 0;

	for (size_t i = 0; i < request->n_headers && r == 0; i++)
		r = buf_printf(b, "%s%s", i ? ";" : "", request->headers[i].name);
	return r;
}

/* The canonical request, into the scratch buffer. */
static int canonical(struct s3_signer *signer, const struct s3_signed *request)
{
	struct buf *b = &signer->scratch;
	int r;

	buf_clear(b);
	r = buf_printf(b, "%s\n%s\n%s\n", request->method, request->path, request->query);
	for (size_t i = 0; i < request->n_headers && r == 0; i++)
		r = buf_printf(b, "%s:%s\n", request->headers[i].name, request->headers[i].value);
	if (r == 0)
		r = buf_puts(b, "\n");
	if (r == 0)
		r = put_names(b, request);
	if (r == 0)
		r = buf_printf(b, "\n%s", request->payload_hash);
	return r;
}

int s3_sign(struct s3_signer *signer, const struct s3_signed *request, struct buf *out)
{
	uint8_t hash[SHA256_BYTES];
	char hex[2 * SHA256_BYTES + 1];
	struct buf *b = &signer->scratch;
	int r = derive_key(signer, request->time);

	if (r == 0)
		r = canonical(signer, request);
	if (r < 0)
		return r;
	hash_sha256(buf_str(b), b->len, hash);
	hash_hex(hash, sizeof(hash), hex);
	buf_clear(b);
	r = buf_printf(b, "AWS4-HMAC-SHA256\n%s\n%s/%s/%s/aws4_request\n%s", request->time,
		signer->date, signer->region, signer->service, hex);
	if (r < 0)
		return r;
	hash_hmac_sha256(signer->key, sizeof(signer->key), buf_str(b), b->len, hash);
	hash_hex(hash, sizeof(hash), hex);
	r = buf_printf(out, "AWS4-HMAC-SHA256 Credential=%s/%s/%s/%s/aws4_request, SignedHeaders=",
		signer->access_key, signer->date, signer->region, signer->service);
	if (r == 0)
		r = put_names(out, request);
	if (r == 0)
		r = buf_printf(out, ", Signature=%s", hex);
	return r;
}

void s3_time(uint64_t wall_ns, char out[S3_TIME_SIZE])
{
	time_t seconds = (time_t)(wall_ns / CLOCK_SECOND);
	struct tm tm;

	gmtime_r(&seconds, &tm);
	if (strftime(out, S3_TIME_SIZE, "%Y%m%dT%H%M%SZ", &tm) != S3_TIME_SIZE - 1)
		out[0] = '\0'; /* a year of five digits: the server will say so */
}
