/*
 * Faults: rules set at run time, each a query string. What happens:
 *
 *	kind=latency	ms=N [jitter=N]		before the request is looked at
 *	kind=pace	bps=N			bytes a second of each body
 *	kind=total	bps=N			bytes a second of all these bodies together
 *	kind=silent				no answer at all, until released
 *
 * Answers other than the one asked for:
 *	kind=status	code=N [error=TEXT] [wait=SECONDS]	that status, an S3 error document,
 *				with Retry-After when `wait` is given
 *	kind=capacity	n=N [code=503] [error=TEXT] [wait=SECONDS]	that status, at once, for
 *				what comes while N requests of the same kind are in flight
 *	kind=redirect	region=NAME [code=301|307|400] [location=URL] [how=other|always]
 *				PermanentRedirect, TemporaryRedirect or AuthorizationHeaderMalformed,
 *				for requests signed for another region, or for all
 *	kind=expired	[token=TEXT]		400 ExpiredToken for that session token, or for all
 *	kind=html	[code=200]		a page of HTML, as a proxy answers
 *	kind=empty				200 and no body
 *	kind=interim				100 Continue before the answer
 *
 * Bodies and heads of answers below 300:
 *	kind=reset	[after=N]		connection reset after N body bytes
 *	kind=short	[after=N]		orderly close before the announced length
 *	kind=stall	[after=N]		nothing more after N body bytes, until released
 *	kind=long	[bytes=N] [how=length|beyond|chunked]	N bytes (default 1) too many: announced
 *				by Content-Length, behind it, or in chunks without a length
 *	kind=flip	[after=N]		one bit of body byte N is the other one
 *	kind=range	[how=start|total|end|none|unit]	wrong Content-Range: first byte, size of
 *				the object, last byte, left out, in another unit
 *	kind=whole				Range ignored: 200
 *	kind=etag	[how=other|none|weak]	another ETag than LIST gave, none, or W/"..."
 *	kind=gzip				Content-Encoding: gzip, a weak ETag, and the bytes begin so
 *
 * Synthetic objects that change (a file is replaced on disk, and seen at once):
 *	kind=changed				the object is a newer version: 412 with If-Match
 *	kind=match				the same, but If-Match is ignored: 206, new etag and bytes
 *	kind=swap	[after=N]		it is replaced while this answer is sent: what is asked
 *				later is the newer version; with `after` this body breaks off there
 *
 * LIST (standalone; op is always list):
 *	kind=disorder				the keys of a page in random order
 *	kind=duplicate	[how=same|other]	every third key twice, the second as it was before
 *	kind=outside	[how=prefix|before|after]	one more key: not below the prefix; one that
 *				the page must not hold because it lies before its start, or behind its end
 *	kind=loop	[how=first|empty|token]	the first page again and again; empty pages that go
 *				on for ever; a last page that says it goes on from where it began
 *	kind=xml	[how=cut|entity|byte|charset|truncated|token|huge|doctype|size|escape]
 *				cut in the middle; an unknown entity; a byte that is not UTF-8; an unknown
 *				encoding; without IsTruncated; without NextContinuationToken; longer than
 *				16 MiB; with a document type; a Size that is no number; a broken %XX
 *
 * Which requests: op=list|get|head|other|any (default: get; any for latency, status, silent,
 * redirect, expired), key=SUBSTRING, and of those rate=0..1 (seeded), count=N at most, every=N
 * (each N-th), at=N,N,... (those with these numbers, from 1), from=SECONDS and until=SECONDS (since
 * the rule was added, with fractions), once=1 (no key twice; some keys never). Without `after`, half of the body. Rules combine; of several
 * with the same effect the one added last wins, latencies add up.
 */
#include "tests/tools/s3d.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/hash.h"

#define ANY        (-1)
#define FAULT_ATS  16u
#define FAULT_HOWS 11

enum fault_kind {
	FAULT_LATENCY,
	FAULT_PACE,
	FAULT_TOTAL,
	FAULT_SILENT,
	FAULT_STATUS,
	FAULT_CAPACITY,
	FAULT_REDIRECT,
	FAULT_EXPIRED,
	FAULT_HTML,
	FAULT_EMPTY,
	FAULT_INTERIM,
	FAULT_RESET,
	FAULT_SHORT,
	FAULT_STALL,
	FAULT_LONG,
	FAULT_FLIP,
	FAULT_RANGE,
	FAULT_WHOLE,
	FAULT_ETAG,
	FAULT_GZIP,
	FAULT_CHANGED,
	FAULT_MATCH,
	FAULT_SWAP,
	FAULT_DISORDER,
	FAULT_DUPLICATE,
	FAULT_OUTSIDE,
	FAULT_LOOP,
	FAULT_XML,
	FAULT_KINDS,
};

/* `how` in the order of the enums in s3d.h, the default first. */
static const struct {
	const char *name;
	int op;
	bool standalone;
	const char *how[FAULT_HOWS];
} kinds[FAULT_KINDS] = {
	[FAULT_LATENCY] = { "latency", ANY, false, { NULL } },
	[FAULT_PACE] = { "pace", S3D_GET, false, { NULL } },
	[FAULT_TOTAL] = { "total", S3D_GET, false, { NULL } },
	[FAULT_SILENT] = { "silent", ANY, false, { NULL } },
	[FAULT_STATUS] = { "status", ANY, false, { NULL } },
	[FAULT_CAPACITY] = { "capacity", S3D_GET, false, { NULL } },
	[FAULT_REDIRECT] = { "redirect", ANY, false, { "other", "always" } },
	[FAULT_EXPIRED] = { "expired", ANY, false, { NULL } },
	[FAULT_HTML] = { "html", S3D_GET, false, { NULL } },
	[FAULT_EMPTY] = { "empty", S3D_GET, false, { NULL } },
	[FAULT_INTERIM] = { "interim", S3D_GET, false, { NULL } },
	[FAULT_RESET] = { "reset", S3D_GET, false, { NULL } },
	[FAULT_SHORT] = { "short", S3D_GET, false, { NULL } },
	[FAULT_STALL] = { "stall", S3D_GET, false, { NULL } },
	[FAULT_LONG] = { "long", S3D_GET, false, { "length", "beyond", "chunked" } },
	[FAULT_FLIP] = { "flip", S3D_GET, false, { NULL } },
	[FAULT_RANGE] = { "range", S3D_GET, false, { "start", "total", "end", "none", "unit" } },
	[FAULT_WHOLE] = { "whole", S3D_GET, false, { NULL } },
	[FAULT_ETAG] = { "etag", S3D_GET, false, { "other", "none", "weak" } },
	[FAULT_GZIP] = { "gzip", S3D_GET, false, { NULL } },
	[FAULT_CHANGED] = { "changed", S3D_GET, true, { NULL } },
	[FAULT_MATCH] = { "match", S3D_GET, true, { NULL } },
	[FAULT_SWAP] = { "swap", S3D_GET, true, { NULL } },
	[FAULT_DISORDER] = { "disorder", S3D_LIST, true, { NULL } },
	[FAULT_DUPLICATE] = { "duplicate", S3D_LIST, true, { "same", "other" } },
	[FAULT_OUTSIDE] = { "outside", S3D_LIST, true, { "prefix", "before", "after" } },
	[FAULT_LOOP] = { "loop", S3D_LIST, true, { "first", "empty", "token" } },
	[FAULT_XML] = { "xml", S3D_LIST, true,
		{ "cut", "entity", "byte", "charset", "truncated", "token", "huge", "doctype",
			"size", "escape" } },
};
static const char *const op_names[S3D_KINDS] = { "list", "get", "head", "other" };

#define FAULT_KEYS 65536u

struct s3d_fault {
	struct list link;
	uint32_t id;
	enum fault_kind kind;
	int op; /* enum s3d_kind, or ANY */
	char key[256];

	/* which of those */
	double rate;
	uint64_t left;  /* times it may still fire */
	uint64_t every; /* 0: all */
	uint64_t at[FAULT_ATS];
	size_t n_at; /* 0: all */
	bool once;
	uint64_t had[FAULT_KEYS / 64]; /* hashes of keys */
	uint64_t added_ns, from_ns, until_ns;

	/* what */
	uint64_t value;
	uint64_t jitter;
	uint64_t after;
	int how;
	int status;
	char code[64];
	char text[256]; /* region, token */
	char location[256];
	uint64_t wait; /* seconds of Retry-After, 0 = none */

	uint64_t matched; /* requests of its op and key, in its time */
	uint64_t fired;
};

void s3d_faults_seed(struct s3d_faults *f, uint64_t seed)
{
	f->rng = seed * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull;
	if (f->rng == 0)
		f->rng = 1;
}

void s3d_faults_init(struct s3d_faults *f, uint64_t seed, bool standalone)
{
	*f = (struct s3d_faults){ .rules = LIST_INIT(f->rules), .standalone = standalone };
	s3d_faults_seed(f, seed);
}

/* xorshift64*, Vigna 2014: the same seed gives the same faults. */
static uint64_t rng_next(struct s3d_faults *f)
{
	f->rng ^= f->rng >> 12;
	f->rng ^= f->rng << 25;
	f->rng ^= f->rng >> 27;
	return f->rng * 0x2545F4914F6CDD1Dull;
}

static double rng_unit(struct s3d_faults *f)
{
	return (double)(rng_next(f) >> 11) * 0x1.0p-53;
}

/* S3's own code for a status. */
static const char *status_code(uint64_t status)
{
	switch (status) {
	case 301:
		return "PermanentRedirect";
	case 307:
		return "TemporaryRedirect";
	case 400:
		return "InvalidRequest";
	case 403:
		return "AccessDenied";
	case 404:
		return "NoSuchKey";
	case 412:
		return "PreconditionFailed";
	case 416:
		return "InvalidRange";
	case 429:
		return "TooManyRequests";
	case 503:
		return "SlowDown";
	default:
		return "InternalError";
	}
}

/* Reading a rule -------------------------------------------------------------------------- */

static int fault_parse_op(struct s3d_fault *f, const char *query, struct err *e)
{
	char op[16];

	f->op = kinds[f->kind].op;
	if (!s3d_query_get(query, "op", op, sizeof(op)))
		return 0;
	f->op = ANY - 1;
	for (int i = 0; i < S3D_KINDS; i++)
		if (strcmp(op, op_names[i]) == 0)
			f->op = i;
	if (strcmp(op, "any") == 0)
		f->op = ANY;
	if (f->op < ANY)
		return err_set(e, -EINVAL, "op=%s: allowed are list, get, head, other, any", op);
	return 0;
}

static int fault_parse_how(struct s3d_fault *f, const char *query, struct err *e)
{
	char how[16];

	if (!s3d_query_get(query, "how", how, sizeof(how)))
		return 0;
	for (f->how = 0; f->how < FAULT_HOWS && kinds[f->kind].how[f->how]; f->how++)
		if (strcmp(kinds[f->kind].how[f->how], how) == 0)
			return 0;
	return err_set(e, -EINVAL, "kind=%s how=%s: no such way", kinds[f->kind].name, how);
}

static int parse_seconds(
	const char *query, const char *name, uint64_t fallback, uint64_t *ret_ns, struct err *e)
{
	char text[32];
	char *end;
	double seconds;

	*ret_ns = fallback;
	if (!s3d_query_get(query, name, text, sizeof(text)))
		return 0;
	seconds = strtod(text, &end);
	if (end == text || *end || !(seconds >= 0 && seconds < 1e6))
		return err_set(e, -EINVAL, "%s=%s: seconds since the rule was added", name, text);
	*ret_ns = (uint64_t)(seconds * (double)CLOCK_SECOND);
	return 0;
}

static int fault_parse_schedule(struct s3d_fault *f, const char *query, struct err *e)
{
	char text[256];
	char *end = text;
	int r;

	f->rate = 1;
	if (s3d_query_get(query, "rate", text, sizeof(text))) {
		f->rate = strtod(text, &end);
		if (end == text || *end || !(f->rate >= 0 && f->rate <= 1))
			return err_set(e, -EINVAL, "rate=%s: a number from 0 to 1", text);
	}
	f->left = s3d_query_number(query, "count", UINT64_MAX);
	f->every = s3d_query_number(query, "every", 0);
	f->once = s3d_query_number(query, "once", 0) != 0;
	if (s3d_query_get(query, "at", text, sizeof(text))) {
		end = text;
		do {
			const char *number = end + (*end == ',');

			if (f->n_at == FAULT_ATS)
				return err_set(e, -EINVAL, "at=%s: at most %u", text, FAULT_ATS);
			f->at[f->n_at++] = strtoull(number, &end, 10);
			if (end == number || (*end && *end != ','))
				return err_set(e, -EINVAL, "at=%s: N,N,...", text);
		} while (*end);
	}
	f->added_ns = clock_mono_ns();
	r = parse_seconds(query, "from", 0, &f->from_ns, e);
	return r ? r : parse_seconds(query, "until", UINT64_MAX, &f->until_ns, e);
}

/* The status that the kind answers with. */
static int fault_parse_status(struct s3d_fault *f, const char *query, struct err *e)
{
	uint64_t fallback = f->kind == FAULT_CAPACITY   ? 503
			    : f->kind == FAULT_REDIRECT ? 301
			    : f->kind == FAULT_HTML     ? 200
							: 0;
	uint64_t code = s3d_query_number(query, "code", fallback);
	uint64_t least = f->kind == FAULT_HTML ? 200 : 300;
	const char *text = status_code(code);

	if (code < least || code > 599)
		return err_set(e, -EINVAL, "kind=%s needs code=%u..599", kinds[f->kind].name,
			(unsigned int)least);
	if (f->kind == FAULT_REDIRECT && code == 400)
		text = "AuthorizationHeaderMalformed";
	f->status = (int)code;
	f->wait = s3d_query_number(query, "wait", 0);
	if (!s3d_query_get(query, "error", f->code, sizeof(f->code)))
		(void)snprintf(f->code, sizeof(f->code), "%s", text);
	return 0;
}

static int fault_parse_value(struct s3d_fault *f, const char *query, struct err *e)
{
	f->after = s3d_query_number(query, "after", S3D_UNKNOWN);
	f->jitter = s3d_query_number(query, "jitter", 0);
	(void)s3d_query_get(query, "token", f->text, sizeof(f->text)); /* "": any */
	(void)s3d_query_get(query, "location", f->location, sizeof(f->location));
	if (f->kind == FAULT_LATENCY) {
		f->value = s3d_query_number(query, "ms", 0);
	} else if (f->kind == FAULT_LONG) {
		f->value = s3d_query_number(query, "bytes", 1);
	} else if (f->kind == FAULT_PACE || f->kind == FAULT_TOTAL) {
		f->value = s3d_query_number(query, "bps", 0);
		if (f->value == 0)
			return err_set(e, -EINVAL, "kind=%s needs bps=BYTES_PER_SECOND",
				kinds[f->kind].name);
	} else if (f->kind == FAULT_CAPACITY) {
		f->value = s3d_query_number(query, "n", 0);
		if (f->value == 0)
			return err_set(e, -EINVAL, "kind=capacity needs n=REQUESTS");
	} else if (f->kind == FAULT_REDIRECT &&
		   !s3d_query_get(query, "region", f->text, sizeof(f->text))) {
		return err_set(e, -EINVAL, "kind=redirect needs region=NAME");
	}
	if (f->kind == FAULT_STATUS || f->kind == FAULT_CAPACITY || f->kind == FAULT_REDIRECT ||
		f->kind == FAULT_HTML)
		return fault_parse_status(f, query, e);
	return 0;
}

static int fault_parse_kind(struct s3d_fault *f, bool standalone, const char *query, struct err *e)
{
	char text[64] = "";
	char names[512] = "";

	(void)s3d_query_get(query, "kind", text, sizeof(text)); /* "" is refused below */
	for (int i = 0; i < FAULT_KINDS; i++) {
		size_t at = strlen(names);

		if (strcmp(text, kinds[i].name) == 0) {
			f->kind = (enum fault_kind)i;
			if (kinds[i].standalone && !standalone)
				return err_set(e, -EINVAL,
					"kind=%s: not in front of another server", text);
			return 0;
		}
		(void)snprintf(names + at, sizeof(names) - at, "%s%s", i ? ", " : "",
			kinds[i].name); /* fits */
	}
	return err_set(e, -EINVAL, "kind=%s: allowed are %s", text, names);
}

static int fault_parse(struct s3d_fault *f, bool standalone, const char *query, struct err *e)
{
	int r = fault_parse_kind(f, standalone, query, e);

	(void)s3d_query_get(query, "key", f->key, sizeof(f->key)); /* "" matches all */
	if (r == 0)
		r = fault_parse_op(f, query, e);
	if (r == 0)
		r = fault_parse_how(f, query, e);
	if (r == 0)
		r = fault_parse_schedule(f, query, e);
	return r ? r : fault_parse_value(f, query, e);
}

int s3d_faults_add(struct s3d_faults *f, const char *query, uint32_t *ret_id, struct err *e)
{
	struct s3d_fault *rule;
	int r;

	if (f->count >= S3D_FAULTS)
		return err_set(e, -ENOSPC, "%u rules are the maximum", S3D_FAULTS);
	rule = calloc(1, sizeof(*rule));
	if (!rule)
		return err_set(e, -ENOMEM, "no memory");
	r = fault_parse(rule, f->standalone, query, e);
	if (r) {
		free(rule);
		return r;
	}
	rule->id = ++f->last_id;
	f->count++;
	list_push_back(&f->rules, &rule->link);
	*ret_id = rule->id;
	return 0;
}

uint32_t s3d_faults_remove(struct s3d_faults *f, uint32_t id)
{
	uint32_t removed = 0;

	list_for_each_safe (node, &f->rules) {
		struct s3d_fault *rule = list_entry(node, struct s3d_fault, link);

		if (id && rule->id != id)
			continue;
		list_remove(node);
		free(rule);
		f->count--;
		removed++;
	}
	return removed;
}

/* Applying rules -------------------------------------------------------------------------- */

static void plan_cut(struct s3d_plan *plan, enum s3d_cut cut, uint64_t after)
{
	plan->cut = cut;
	plan->cut_after = after;
}

static void plan_status(const struct s3d_fault *rule, struct s3d_plan *plan)
{
	plan->status = rule->status;
	plan->retry_after = rule->wait;
	memcpy(plan->code, rule->code, sizeof(plan->code));
	plan->region[0] = 0;
	plan->html = rule->kind == FAULT_HTML;
	if (rule->kind == FAULT_REDIRECT) {
		memcpy(plan->region, rule->text, sizeof(plan->region));
		memcpy(plan->location, rule->location, sizeof(plan->location));
	} else if (rule->kind == FAULT_EXPIRED) {
		plan->status = 400;
		(void)snprintf(plan->code, sizeof(plan->code), "ExpiredToken");
	}
	plan->at_once = rule->kind == FAULT_CAPACITY;
}

/* What a rule does to the object or the page that is served. */
static void plan_content(const struct s3d_fault *rule, struct s3d_plan *plan)
{
	switch ((int)rule->kind) {
	case FAULT_MATCH:
		plan->match_ignored = true;
		plan->newer = true;
		break;
	case FAULT_CHANGED:
		plan->newer = true;
		break;
	case FAULT_SWAP:
		plan->swap = true;
		if (rule->after != S3D_UNKNOWN)
			plan_cut(plan, S3D_CUT_RESET, rule->after);
		break;
	case FAULT_DISORDER:
		plan->page.disorder = true;
		break;
	case FAULT_DUPLICATE:
		plan->page.duplicate = 1 + rule->how;
		break;
	case FAULT_OUTSIDE:
		plan->page.outside = 1 + rule->how;
		break;
	case FAULT_LOOP:
		plan->page.loop = 1 + rule->how;
		break;
	case FAULT_XML:
		plan->page.xml = 1 + rule->how;
		break;
	default:
		break;
	}
}

static void plan_apply(struct s3d_faults *f, const struct s3d_fault *rule, struct s3d_plan *plan)
{
	switch ((int)rule->kind) {
	case FAULT_LATENCY:
		plan->latency_ms += rule->value;
		if (rule->jitter)
			plan->latency_ms += rng_next(f) % rule->jitter;
		break;
	case FAULT_PACE:
		plan->bytes_per_second = rule->value;
		break;
	case FAULT_TOTAL:
		plan->total_per_second = rule->value;
		break;
	case FAULT_SILENT:
		plan->silent = true;
		break;
	case FAULT_STATUS:
	case FAULT_CAPACITY:
	case FAULT_REDIRECT:
	case FAULT_EXPIRED:
	case FAULT_HTML:
		plan_status(rule, plan);
		break;
	case FAULT_EMPTY:
		plan->empty = true;
		break;
	case FAULT_INTERIM:
		plan->interim = true;
		break;
	case FAULT_RESET:
		plan_cut(plan, S3D_CUT_RESET, rule->after);
		break;
	case FAULT_SHORT:
		plan_cut(plan, S3D_CUT_SHORT, rule->after);
		break;
	case FAULT_STALL:
		plan_cut(plan, S3D_CUT_STALL, rule->after);
		break;
	case FAULT_LONG:
		plan->extra = rule->value;
		plan->extra_how = 1 + rule->how;
		break;
	case FAULT_FLIP:
		plan->flip = true;
		plan->flip_at = rule->after;
		break;
	case FAULT_RANGE:
		plan->wrong_range = 1 + rule->how;
		break;
	case FAULT_WHOLE:
		plan->whole = true;
		break;
	case FAULT_ETAG:
		plan->wrong_etag = 1 + rule->how;
		break;
	case FAULT_GZIP:
		plan->gzip = true;
		break;
	default:
		plan_content(rule, plan);
	}
}

static bool rule_concerns(const struct s3d_fault *rule, const struct s3d_request *request)
{
	char value[2048] = "";

	if (rule->left == 0 || (rule->op >= 0 && rule->op != (int)request->kind))
		return false;
	if (rule->key[0] && !strstr(request->key, rule->key))
		return false;
	if (rule->kind == FAULT_EXPIRED && rule->text[0]) {
		(void)s3d_header_get(&request->head, "X-Amz-Security-Token", value, sizeof(value));
		return strcmp(value, rule->text) == 0;
	}
	if (rule->kind == FAULT_REDIRECT && rule->how == 0)
		return *request->region && strcmp(request->region, rule->text) != 0;
	return true;
}

static bool rule_fires(struct s3d_faults *f, struct s3d_fault *rule, uint64_t age_ns)
{
	if (age_ns < rule->from_ns || age_ns >= rule->until_ns)
		return false;
	rule->matched++;
	if (rule->every && rule->matched % rule->every != 0)
		return false;
	for (size_t i = 0; i < rule->n_at; i++)
		if (rule->at[i] == rule->matched)
			return true;
	if (rule->n_at)
		return false;
	return rule->rate >= 1 || rng_unit(f) < rule->rate;
}

/* True if the rule is for each key once, and fired for this key (or one of the same hash). */
static bool had_key(struct s3d_fault *rule, const char *key)
{
	uint32_t hash = (uint32_t)(hash_xxh3(key, strlen(key), 1) % FAULT_KEYS);
	uint64_t bit = 1ull << (hash % 64);
	bool had = rule->had[hash / 64] & bit;

	rule->had[hash / 64] |= bit;
	return rule->once && had;
}

void s3d_faults_plan(struct s3d_faults *f, const struct s3d_request *request, uint64_t in_flight,
	struct s3d_plan *ret_plan)
{
	uint64_t now = clock_mono_ns();

	*ret_plan = (struct s3d_plan){ 0 };
	list_for_each (node, &f->rules) {
		struct s3d_fault *rule = list_entry(node, struct s3d_fault, link);

		if (!rule_concerns(rule, request) ||
			(rule->kind == FAULT_CAPACITY && in_flight <= rule->value) ||
			!rule_fires(f, rule, now - rule->added_ns) || had_key(rule, request->key))
			continue;
		if (rule->left != UINT64_MAX)
			rule->left--;
		rule->fired++;
		f->fired++;
		plan_apply(f, rule, ret_plan);
	}
	if (ret_plan->page.disorder)
		ret_plan->page.seed = rng_next(f);
}

int s3d_faults_json(const struct s3d_faults *f, struct buf *out)
{
	const char *comma = "";
	int r = buf_puts(out, "[");

	list_for_each (node, &f->rules) {
		const struct s3d_fault *rule = list_entry(node, struct s3d_fault, link);

		if (r == 0)
			r = buf_printf(out,
				"%s{\"id\":%u,\"kind\":\"%s\",\"op\":\"%s\",\"matched\":%llu,"
				"\"fired\":%llu}",
				comma, rule->id, kinds[rule->kind].name,
				rule->op < 0 ? "any" : op_names[rule->op],
				(unsigned long long)rule->matched, (unsigned long long)rule->fired);
		comma = ",";
	}
	return r ? r : buf_puts(out, "]\n");
}
