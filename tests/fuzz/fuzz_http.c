/*
 * Fuzzer of HTTP between daemons. The first byte picks: 0 the reply of another daemon, the second how it is cut into
 * pieces; 1 a path, compared with patterns of routes; 2 a query; 3 JSON of a request or a reply.
 *
 * A reply means the same in whatever pieces it comes, is no longer than its bound, and its body sent again is read as it
 * was. Names in paths and queries are inside their text. JSON that is read and written again reads the same.
 */
#include <stdlib.h>
#include <string.h>
#include "admin/admin_internal.h"
#include "admin/http_reply.h"
#include "tests/fuzz/seeds.h"

#define BODY_BYTES 4096u

enum parser {
	PARSER_REPLY,
	PARSER_PATH,
	PARSER_QUERY,
	PARSER_JSON,
	PARSERS,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- replies --------------------------------------------------------------------------------- */

struct outcome {
	int fed;
	int ended;
	unsigned int status;
	enum http_reply_state state;
	struct buf body;
};

/* `piece` bytes at a time; 0: all at once. */
static struct outcome feed(const uint8_t *data, size_t size, size_t piece)
{
	struct outcome out = { .body = BUF_INIT(BODY_BYTES) };
	struct http_reply reply;

	http_reply_init(&reply, &out.body);
	for (size_t at = 0, n; at < size && out.fed == 0; at += n) {
		char *copy; /* of its own, so that a byte too many is seen */

		n = piece ? min(piece, size - at) : size;
		copy = malloc(n);
		ensure(copy);
		memcpy(copy, data + at, n);
		out.fed = http_reply_feed(&reply, copy, n);
		free(copy);
		ensure(reply.line.len <= reply.line.max && out.body.len <= BODY_BYTES);
	}
	ensure(out.fed == 0 || out.fed == -EBADMSG || out.fed == -ENOBUFS);
	out.ended = http_reply_end(&reply);
	out.status = reply.status;
	out.state = reply.state;
	http_reply_release(&reply);
	return out;
}

static void check_again(const struct outcome *first, bool chunked)
{
	struct buf text = BUF_INIT(4 * BODY_BYTES);
	struct outcome again;
	int r = chunked ? buf_printf(&text,
				  "HTTP/1.1 %03u OK\r\nTransfer-Encoding: chunked\r\n\r\n",
				  first->status)
			: buf_printf(&text, "HTTP/1.1 %03u OK\r\ncontent-length:\t%zu \r\n\r\n",
				  first->status, first->body.len);

	for (size_t at = 0, n; chunked && at < first->body.len && r == 0; at += n) {
		n = min((size_t)1000, first->body.len - at);
		r = buf_printf(&text, "%zX;x=y\r\n", n);
		if (r == 0)
			r = buf_append(&text, first->body.data + at, n);
		if (r == 0)
			r = buf_append(&text, "\r\n", 2);
	}
	if (r == 0)
		r = chunked ? buf_puts(&text, "0\r\nTrailer: x\r\n\r\n")
			    : buf_append(&text, first->body.data, first->body.len);
	ensure(r == 0);
	again = feed((const uint8_t *)text.data, text.len, 7);
	ensure(again.fed == 0 && again.ended == 0 && again.status == first->status);
	ensure(again.body.len == first->body.len &&
		memcmp(buf_str(&again.body), buf_str(&first->body), first->body.len) == 0);
	buf_release(&again.body);
	buf_release(&text);
}

static void check_reply(const uint8_t *data, size_t size)
{
	size_t piece = size ? 1 + data[0] % 64u : 1;
	struct outcome whole;
	struct outcome pieces;

	if (size < 1)
		return;
	whole = feed(data + 1, size - 1, 0);
	pieces = feed(data + 1, size - 1, piece);
	ensure(whole.fed == pieces.fed && whole.ended == pieces.ended);
	if (whole.fed == 0) {
		ensure(whole.status == pieces.status && whole.state == pieces.state);
		ensure(whole.body.len == pieces.body.len);
		ensure(memcmp(buf_str(&whole.body), buf_str(&pieces.body), whole.body.len) == 0);
	}
	if (whole.fed == 0 && whole.ended == 0) {
		ensure(whole.status < 1000 && whole.status / 100 != 1);
		if (whole.status != 204 && whole.status != 304) {
			check_again(&whole, false);
			check_again(&whole, true);
		}
	}
	buf_release(&whole.body);
	buf_release(&pieces.body);
}

/* ---- requests -------------------------------------------------------------------------------- */

static char *text_of(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	ensure(text);
	memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

static void check_path(const uint8_t *data, size_t size)
{
	static const char *const patterns[] = { "/v1/datasets", "/v1/datasets/{name}",
		"/v1/datasets/{name}/generations/{a}/{b}", "/{a}/{b}/{c}/{d}" };
	char *path = text_of(data, size);

	for (unsigned int i = 0; i < ARRAY_SIZE(patterns); i++) {
		struct admin_params params;

		if (admin_route_match(patterns[i], path, &params) <= 0)
			continue;
		ensure(params.n <= ADMIN_PARAMS_MAX);
		for (unsigned int k = 0; k < params.n; k++) {
			const char *value = params.list[k].value;

			ensure(memchr(value, '\0', ADMIN_PARAM_BYTES));
			ensure(*value && !strchr(value, '/'));
		}
	}
	free(path);
}

static void check_query(const uint8_t *data, size_t size)
{
	struct admin_query query;
	char *text = text_of(data, size);

	if (admin_query_parse(text, &query, NULL) == 0) {
		ensure(query.n <= ADMIN_QUERY_MAX);
		for (unsigned int i = 0; i < query.n; i++) {
			ensure(query.names[i] >= text && query.names[i] <= text + size);
			ensure(!strchr(query.names[i], '&') && !strchr(query.names[i], '='));
			ensure(!*query.values[i] ||
				(query.values[i] > text && query.values[i] <= text + size));
			ensure(admin_query_find(&query, query.names[i]) == query.values[i]);
		}
	}
	free(text);
}

static void check_json(const uint8_t *data, size_t size)
{
	json_t *json = NULL;
	json_t *again = NULL;
	char *text;

	if (admin_json_parse((const char *)data, size, JSON_REJECT_DUPLICATES, &json, NULL) < 0)
		return;
	text = admin_json_text(json, JSON_COMPACT | JSON_SORT_KEYS);
	ensure(text &&
		admin_json_parse(text, strlen(text), JSON_REJECT_DUPLICATES, &again, NULL) == 0);
	ensure(json_equal(json, again));
	json_decref(json);
	json_decref(again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const parsers[PARSERS])(const uint8_t *bytes, size_t n) = {
		[PARSER_REPLY] = check_reply,
		[PARSER_PATH] = check_path,
		[PARSER_QUERY] = check_query,
		[PARSER_JSON] = check_json,
	};

	if (size > 0)
		parsers[data[0] % PARSERS](data + 1, size - 1);
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static void seed_text(enum parser parser, const char *name, const char *text)
{
	fuzz_seed_for((uint8_t)parser, name, text, strlen(text));
}

/* The first byte of a reply cuts it. */
void fuzz_seeds(void)
{
	json_t *row =
		json_pack("{s:s, s:i, s:[s, n]}", "name", "a\xc3\xa9\"", "n", -7, "list", "x");
	char *text = admin_json_text(row, JSON_INDENT(1));

	ensure(text);
	seed_text(PARSER_JSON, "json", text);
	seed_text(PARSER_REPLY, "length",
		"\x04HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: "
		"application/json\r\n\r\n{}");
	seed_text(PARSER_REPLY, "chunked",
		"\x02HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
		"2\r\n{}\r\n0\r\n\r\n");
	seed_text(PARSER_REPLY, "to-end", "\x01HTTP/1.0 200 OK\r\n\r\n{}");
	seed_text(PARSER_REPLY, "continue",
		"\x03HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
	seed_text(PARSER_PATH, "dataset", "/v1/datasets/a%20b/generations/1/2");
	seed_text(PARSER_QUERY, "query", "limit=5&from=a%2Fb+c&x");
	json_decref(row);
	free(text);
}
