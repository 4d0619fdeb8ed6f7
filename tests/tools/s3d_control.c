/*
 * The control port:
 *
 *	GET  /stats		counters as JSON
 *	POST /reset		counters to zero
 *	POST /faults?RULE	adds a rule (s3d_fault.c), answers {"id":N}
 *	GET  /faults		the rules, and how often each fired
 *	DELETE /faults[?id=N]	removes one rule or all
 *	POST /seed?value=N	starts the random numbers of `rate` again
 *	POST /release		answers silent requests, closes stalled connections
 *	POST /rescan		standalone: reads the directory again
 *	POST /object?key=K | prefix=P [&version=N] [&size=N] [&delete=1]	standalone: synthetic
 *				objects become the next version, or that one, of that size, or go; a key
 *				that is not there is added (with size); answers {"objects":N}
 *	POST /object?key=K | prefix=P &archive=1 | &restore=1	they go into an archive class,
 *				or are restored from it
 *	POST /clock?offset=S	the server's clock is that many seconds ahead (behind: negative)
 *	POST /keys?key=ID:SECRET[:TOKEN]	allows that key, or changes its secret and token
 *	DELETE /keys?id=ID	forgets it
 */
#include "tests/tools/s3d.h"

#include <stdlib.h>
#include <string.h>

static int stats_statuses(const struct s3d_stats *st, struct buf *out)
{
	const char *comma = "";
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(st->status) && r == 0; i++) {
		if (st->status[i] == 0)
			continue;
		r = buf_printf(out, "%s\"%zu\":%llu", comma, i, (unsigned long long)st->status[i]);
		comma = ",";
	}
	return r;
}

static int stats_json(const struct s3d *s, struct buf *out)
{
	const struct s3d_stats *st = &s->stats;
	uint64_t parked = 0;
	int r;

	list_for_each (node, &s->conns)
		parked += list_entry(node, struct s3d_conn, link)->state == S3D_CONN_PARKED;
	r = buf_printf(out,
		"{\"connections\":%llu,\"requests\":%llu,\"list\":%llu,\"get\":%llu,\"head\":%llu,"
		"\"other\":%llu,\"put\":%llu,\"delete\":%llu,\"post\":%llu,\"get_bytes\":%llu,"
		"\"list_bytes\":%llu,\"gets_now\":%llu,\"max_gets\":%llu,\"max_lists\":%llu,"
		"\"parked\":%llu,\"faults_fired\":%llu,\"upstream_connections\":%llu,"
		"\"upstream_errors\":%llu,\"status\":{",
		(unsigned long long)st->connections, (unsigned long long)st->requests,
		(unsigned long long)st->kind[S3D_LIST], (unsigned long long)st->kind[S3D_GET],
		(unsigned long long)st->kind[S3D_HEAD], (unsigned long long)st->kind[S3D_OTHER],
		(unsigned long long)st->put, (unsigned long long)st->delete_,
		(unsigned long long)st->post, (unsigned long long)st->body_bytes[S3D_GET],
		(unsigned long long)st->body_bytes[S3D_LIST],
		(unsigned long long)st->in_flight[S3D_GET],
		(unsigned long long)st->max_in_flight[S3D_GET],
		(unsigned long long)st->max_in_flight[S3D_LIST], (unsigned long long)parked,
		(unsigned long long)s->faults.fired, (unsigned long long)st->upstream_connections,
		(unsigned long long)st->upstream_errors);
	if (r == 0)
		r = stats_statuses(st, out);
	return r ? r : buf_puts(out, "}}\n");
}

/* Requests in progress stay counted as such. */
static void stats_reset(struct s3d *s)
{
	struct s3d_stats next = { 0 };

	memcpy(next.in_flight, s->stats.in_flight, sizeof(next.in_flight));
	memcpy(next.max_in_flight, s->stats.in_flight, sizeof(next.max_in_flight));
	s->stats = next;
	s->faults.fired = 0;
}

static int control_faults(
	struct s3d *s, const struct s3d_request *r, struct buf *out, struct err *e)
{
	uint32_t id;
	int error;

	if (strcmp(r->method, "GET") == 0)
		return s3d_faults_json(&s->faults, out);
	if (strcmp(r->method, "DELETE") == 0) {
		id = (uint32_t)s3d_query_number(r->query, "id", 0);
		return buf_printf(out, "{\"removed\":%u}\n", s3d_faults_remove(&s->faults, id));
	}
	error = s3d_faults_add(&s->faults, r->query, &id, e);
	return error ? error : buf_printf(out, "{\"id\":%u}\n", id);
}

static int control_object(
	struct s3d *s, const struct s3d_request *r, struct buf *out, struct err *e)
{
	char key[LIMIT_URL_BYTES] = "";
	struct s3d_change change = { .key = key,
		.prefix = s3d_query_get(r->query, "prefix", key, sizeof(key)),
		.remove = s3d_query_number(r->query, "delete", 0) == 1,
		.archive = s3d_query_number(r->query, "archive", 0) == 1   ? 1
			   : s3d_query_number(r->query, "restore", 0) == 1 ? -1
									   : 0,
		.version = s3d_query_number(r->query, "version", S3D_UNKNOWN),
		.size = s3d_query_number(r->query, "size", S3D_UNKNOWN) };
	uint32_t n;
	int error;

	if (!change.prefix && !s3d_query_get(r->query, "key", key, sizeof(key)))
		return err_set(e, -EINVAL, "/object needs key=K or prefix=P");
	error = s3d_store_change(s->store, &change, &n, e);
	return error ? error : buf_printf(out, "{\"objects\":%u}\n", n);
}

static int control_keys(struct s3d *s, const struct s3d_request *r, struct err *e)
{
	char text[2048] = "";

	if (strcmp(r->method, "DELETE") == 0) {
		(void)s3d_query_get(r->query, "id", text, sizeof(text)); /* "": unknown */
		return s3d_auth_remove(&s->auth, text) ? 0 : err_set(e, -ENOENT, "no key %s", text);
	}
	(void)s3d_query_get(r->query, "key", text, sizeof(text)); /* "" is refused */
	return s3d_auth_add(&s->auth, text, e);
}

static int control_clock(struct s3d *s, const struct s3d_request *r, struct err *e)
{
	char text[32] = "";
	char *end = text;
	long long offset = 0;

	if (s3d_query_get(r->query, "offset", text, sizeof(text)))
		offset = strtoll(text, &end, 10);
	if (end == text || *end)
		return err_set(e, -EINVAL, "/clock needs offset=SECONDS");
	s->auth.clock_offset = offset;
	return 0;
}

static int control_run(struct s3d *s, const struct s3d_request *r, struct buf *out, struct err *e)
{
	bool post = strcmp(r->method, "POST") == 0;
	int error = 0;

	if (strcmp(r->path, "/stats") == 0)
		return stats_json(s, out);
	if (strcmp(r->path, "/faults") == 0)
		return control_faults(s, r, out, e);
	if (post && strcmp(r->path, "/reset") == 0)
		stats_reset(s);
	else if (post && strcmp(r->path, "/seed") == 0)
		s3d_faults_seed(&s->faults, s3d_query_number(r->query, "value", 1));
	else if (post && strcmp(r->path, "/release") == 0)
		return buf_printf(out, "{\"released\":%u}\n", s3d_conn_release_parked(s));
	else if (post && strcmp(r->path, "/rescan") == 0 && s->store)
		error = s3d_store_scan(s->store, e);
	else if (post && strcmp(r->path, "/object") == 0 && s->store)
		return control_object(s, r, out, e);
	else if (strcmp(r->path, "/keys") == 0)
		error = control_keys(s, r, e);
	else if (post && strcmp(r->path, "/clock") == 0)
		error = control_clock(s, r, e);
	else
		return err_set(e, -ENOENT, "%s %s: no such control", r->method, r->path);
	return error ? error : buf_puts(out, "{}\n");
}

void s3d_control_serve(struct s3d_conn *c)
{
	struct buf out = BUF_INIT(256 * 1024);
	struct err e = ERR_INIT;
	int status = 200;

	if (control_run(c->server, &c->req, &out, &e)) {
		status = 400;
		buf_clear(&out);
		if (buf_printf(&out, "%s\n", e.text))
			status = 500;
	}
	s3d_reply_whole(c, status, status == 200 ? "application/json" : "text/plain", "", &out);
	buf_release(&out);
}
