/*
 * Faults: rules set at run time, each a query string:
 *
 *	kind=latency	ms=N [jitter=N]		before the request is looked at
 *	kind=pace	bps=N			bytes a second of each body
 *	kind=total	bps=N			bytes a second of all these bodies together
 *	kind=status	code=N [error=TEXT] [wait=SECONDS]	that status, an S3 error document,
 *				with Retry-After when `wait` is given
 *	kind=reset	[after=N]		connection reset after N body bytes
 *	kind=short	[after=N]		orderly close before the announced length
 *	kind=stall	[after=N]		nothing more after N body bytes, until released
 *	kind=silent				no answer at all, until released
 *	kind=range				wrong Content-Range
 *	kind=whole				Range ignored: 200
 *	kind=etag				another ETag than LIST gave
 *
 * and which requests: op=list|get|head|other|any (default: get; any for latency, status, silent),
 * key=SUBSTRING, rate=0..1 of them (seeded), count=N at most. Without `after`, half of the body.
 * Rules combine; of several with the same effect the one added last wins, latencies add up.
 */
#include "tests/tools/s3d.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum fault_kind {
	FAULT_LATENCY,
	FAULT_PACE,
	FAULT_TOTAL,
	FAULT_STATUS,
	FAULT_RESET,
	FAULT_SHORT,
	FAULT_STALL,
	FAULT_SILENT,
	FAULT_RANGE,
	FAULT_WHOLE,
	FAULT_ETAG,
	FAULT_KINDS,
};

static const char *const fault_names[FAULT_KINDS] = { "latency", "pace", "total", "status", "reset",
	"short", "stall", "silent", "range", "whole", "etag" };
static const char *const op_names[S3D_KINDS] = { "list", "get", "head", "other" };

struct s3d_fault {
	struct list link;
	uint32_t id;
	enum fault_kind kind;
	int op; /* enum s3d_kind, -1 = any */
	char key[256];
	double rate;
	uint64_t left; /* matches still to come */
	uint64_t value;
	uint64_t jitter;
	uint64_t after;
	char code[64];
	uint64_t wait; /* seconds of Retry-After, 0 = none */
	uint64_t fired;
};

void s3d_faults_seed(struct s3d_faults *f, uint64_t seed)
{
	f->rng = seed * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull;
	if (f->rng == 0)
		f->rng = 1;
}

void s3d_faults_init(struct s3d_faults *f, uint64_t seed)
{
	*f = (struct s3d_faults){ .rules = LIST_INIT(f->rules) };
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
	case 400:
		return "InvalidRequest";
	case 403:
		return "AccessDenied";
	case 404:
		return "NoSuchKey";
	case 429:
		return "TooManyRequests";
	case 503:
		return "SlowDown";
	default:
		return "InternalError";
	}
}

static int fault_parse_op(struct s3d_fault *f, const char *query, struct err *e)
{
	char op[16];

	f->op = f->kind == FAULT_LATENCY || f->kind == FAULT_STATUS || f->kind == FAULT_SILENT
			? -1
			: S3D_GET;
	if (!s3d_query_get(query, "op", op, sizeof(op)))
		return 0;
	f->op = -2;
	for (int i = 0; i < S3D_KINDS; i++)
		if (strcmp(op, op_names[i]) == 0)
			f->op = i;
	if (strcmp(op, "any") == 0)
		f->op = -1;
	if (f->op == -2)
		return err_set(e, -EINVAL, "op=%s: allowed are list, get, head, other, any", op);
	return 0;
}

static int fault_parse_value(struct s3d_fault *f, const char *query, struct err *e)
{
	f->after = s3d_query_number(query, "after", S3D_UNKNOWN);
	f->jitter = s3d_query_number(query, "jitter", 0);
	if (f->kind == FAULT_LATENCY) {
		f->value = s3d_query_number(query, "ms", 0);
	} else if (f->kind == FAULT_PACE || f->kind == FAULT_TOTAL) {
		f->value = s3d_query_number(query, "bps", 0);
		if (f->value == 0)
			return err_set(e, -EINVAL, "kind=%s needs bps=BYTES_PER_SECOND",
				fault_names[f->kind]);
	} else if (f->kind == FAULT_STATUS) {
		f->value = s3d_query_number(query, "code", 0);
		if (f->value < 400 || f->value > 599)
			return err_set(e, -EINVAL, "kind=status needs code=400..599");
		f->wait = s3d_query_number(query, "wait", 0);
		if (!s3d_query_get(query, "error", f->code, sizeof(f->code)))
			(void)snprintf(f->code, sizeof(f->code), "%s", status_code(f->value));
	}
	return 0;
}

static int fault_parse(struct s3d_fault *f, const char *query, struct err *e)
{
	char text[64] = "";
	int r;

	f->kind = FAULT_KINDS;
	(void)s3d_query_get(query, "kind", text, sizeof(text)); /* "" is refused below */
	for (int i = 0; i < FAULT_KINDS; i++)
		if (strcmp(text, fault_names[i]) == 0)
			f->kind = (enum fault_kind)i;
	if (f->kind == FAULT_KINDS)
		return err_set(e, -EINVAL,
			"kind=%s: allowed are latency, pace, total, status, reset, short, stall, "
			"silent, "
			"range, whole, etag",
			text);
	f->rate = 1;
	if (s3d_query_get(query, "rate", text, sizeof(text))) {
		char *end;

		f->rate = strtod(text, &end);
		if (*end || !(f->rate >= 0 && f->rate <= 1))
			return err_set(e, -EINVAL, "rate=%s: a number from 0 to 1", text);
	}
	f->left = s3d_query_number(query, "count", UINT64_MAX);
	(void)s3d_query_get(query, "key", f->key, sizeof(f->key)); /* "" matches all */
	r = fault_parse_op(f, query, e);
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
	r = fault_parse(rule, query, e);
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

static void plan_cut(struct s3d_plan *plan, enum s3d_cut cut, uint64_t after)
{
	plan->cut = cut;
	plan->cut_after = after;
}

static void plan_apply(struct s3d_faults *f, const struct s3d_fault *rule, struct s3d_plan *plan)
{
	switch (rule->kind) {
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
	case FAULT_STATUS:
		plan->status = (int)rule->value;
		plan->retry_after = rule->wait;
		memcpy(plan->code, rule->code, sizeof(plan->code));
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
	case FAULT_SILENT:
		plan->silent = true;
		break;
	case FAULT_RANGE:
		plan->wrong_range = true;
		break;
	case FAULT_WHOLE:
		plan->whole = true;
		break;
	case FAULT_ETAG:
		plan->wrong_etag = true;
		break;
	case FAULT_KINDS:
		break;
	}
}

void s3d_faults_plan(
	struct s3d_faults *f, const struct s3d_request *request, struct s3d_plan *ret_plan)
{
	*ret_plan = (struct s3d_plan){ 0 };
	list_for_each (node, &f->rules) {
		struct s3d_fault *rule = list_entry(node, struct s3d_fault, link);

		if (rule->left == 0 || (rule->op >= 0 && rule->op != (int)request->kind))
			continue;
		if (rule->key[0] && !strstr(request->key, rule->key))
			continue;
		if (rule->rate < 1 && rng_unit(f) >= rule->rate)
			continue;
		if (rule->left != UINT64_MAX)
			rule->left--;
		rule->fired++;
		f->fired++;
		plan_apply(f, rule, ret_plan);
	}
}

int s3d_faults_json(const struct s3d_faults *f, struct buf *out)
{
	const char *comma = "";
	int r = buf_puts(out, "[");

	list_for_each (node, &f->rules) {
		const struct s3d_fault *rule = list_entry(node, struct s3d_fault, link);

		if (r == 0)
			r = buf_printf(out,
				"%s{\"id\":%u,\"kind\":\"%s\",\"op\":\"%s\",\"fired\":%llu}", comma,
				rule->id, fault_names[rule->kind],
				rule->op < 0 ? "any" : op_names[rule->op],
				(unsigned long long)rule->fired);
		comma = ",";
	}
	return r ? r : buf_puts(out, "]\n");
}
