/*
 * s3d: the S3 server of the tests. It serves a directory and synthetic objects itself, or forwards
 * to a real S3 server; it counts everything and misbehaves on command.
 *
 *	s3d.c		options, listening sockets
 *	s3d_conn.c	one client connection: requests in
 *	s3d_reply.c	replies out, and the faults of a reply
 *	s3d_http.c	request and response heads, message framing
 *	s3d_auth.c	keys, signatures, tokens, region and clock
 *	s3d_fault.c	rules that say which request suffers what
 *	s3d_store.c	standalone: the objects, from a directory or from nothing; GET and HEAD
 *	s3d_noise.c	the bytes of synthetic objects
 *	s3d_list.c	standalone: LIST, and the faults of a page
 *	s3d_proxy.c	proxy: the same bytes to and from a real server
 *	s3d_control.c	counters and rules over HTTP on a second port
 *
 * One thread, one uv loop; nothing here is thread-safe. Signatures are checked once keys are known
 * (--key); without any, every request is allowed. The time of a signature is always checked.
 *
 * Bytes of a synthetic object: T = SHAKE-128("granary s3d", 1048583 bytes); byte i of the object
 * with key K is T[(S + i) mod 1048583], S = first 8 bytes of SHA-256(K), little-endian, mod
 * 1048583; of its version V > 0, SHA-256(K "\n" V). The table's length is a prime, so that neither
 * a neighbour's block nor the same block of another file is mistaken for the right one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <uv.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/list.h"
#include "tests/tools/s3d_noise.h"

#define S3D_HEAD_BYTES  (32u * 1024u)   /* one request or response head */
#define S3D_QUEUE_BYTES (1024u * 1024u) /* bytes queued on one socket before its source waits */
#define S3D_ADDRESS     80u             /* text of an address */
#define S3D_FAULTS      256u            /* rules at one time */
#define S3D_UNKNOWN     UINT64_MAX      /* a body length that is not known */

enum s3d_kind {
	S3D_LIST,
	S3D_GET,
	S3D_HEAD,
	S3D_OTHER,
	S3D_KINDS,
};

/* s3d_http.c ------------------------------------------------------------------------------- */

/* How a message's body is delimited, and how far it was read. */
enum s3d_framing_mode {
	S3D_FRAMING_LENGTH, /* `left` bytes */
	S3D_FRAMING_CHUNKED,
	S3D_FRAMING_CLOSE, /* up to the end of the connection */
};

struct s3d_framing {
	enum s3d_framing_mode mode;
	uint64_t left; /* of the body, or of the chunk */
	int state;     /* of the chunk parser */
	bool done;
};

/* How many of the next `len` bytes belong to the message; sets done at its end. */
size_t s3d_framing_take(struct s3d_framing *f, const char *data, size_t len);

struct s3d_request {
	enum s3d_kind kind;
	struct buf head; /* as received, with the empty line */
	char method[16];
	char host[256];
	char bucket[256];
	char key[4 * LIMIT_KEY_BYTES]; /* decoded; "" for the bucket itself */
	char query[LIMIT_URL_BYTES];   /* raw, after the '?' */
	char path[LIMIT_URL_BYTES];    /* raw, before the '?' */
	char range[128];               /* value of Range, or "" */
	char if_match[256];
	char region[64];   /* that it is signed for, or "" */
	bool range_signed; /* Range is among the signed headers */
	bool keep_alive;
	bool has_body;
	struct s3d_framing body;
};

/* Length of the head at the start of `data`, 0 while it is not complete. */
size_t s3d_head_length(const char *data, size_t len);
/* Parses head_len bytes; `domain` is the name below which a Host is virtual-host style. -EINVAL. */
int s3d_request_parse(struct s3d_request *r, const char *data, size_t head_len, const char *domain);

/* Value of a header in a head, copied; false when there is none. */
bool s3d_header_get(const struct buf *head, const char *name, char *out, size_t size);
/* Replaces a header's value, NULL removes it; nothing happens when there is none. */
int s3d_header_set(struct buf *head, const char *name, const char *value) __must_check;
/* Adds one before the empty line. */
int s3d_header_add(struct buf *head, const char *name, const char *value) __must_check;

/* Decoded parameter of a raw query; false when it is not there. */
bool s3d_query_get(const char *query, const char *name, char *out, size_t size);
bool s3d_query_has(const char *query, const char *name);
uint64_t s3d_query_number(const char *query, const char *name, uint64_t fallback);
/* Percent-decodes [s, s + len) into out; false when it does not fit or is malformed. */
bool s3d_url_decode(const char *s, size_t len, bool plus_is_blank, char *out, size_t size);

/* s3d_fault.c ------------------------------------------------------------------------------ */

enum s3d_cut {
	S3D_CUT_NONE,
	S3D_CUT_RESET, /* connection reset */
	S3D_CUT_SHORT, /* orderly close before the announced length */
	S3D_CUT_STALL, /* nothing more, for ever */
};

/* Ways of a fault: 0 is none, the others in the order of `how` in s3d_fault.c. */
enum s3d_long { S3D_LONG_LENGTH = 1, S3D_LONG_BEYOND, S3D_LONG_CHUNKED };
enum s3d_range {
	S3D_RANGE_START = 1,
	S3D_RANGE_TOTAL,
	S3D_RANGE_END,
	S3D_RANGE_NONE,
	S3D_RANGE_UNIT
};
enum s3d_etag { S3D_ETAG_OTHER = 1, S3D_ETAG_NONE, S3D_ETAG_WEAK };
enum s3d_duplicate { S3D_DUPLICATE_SAME = 1, S3D_DUPLICATE_OTHER };
enum s3d_outside { S3D_OUTSIDE_PREFIX = 1, S3D_OUTSIDE_BEFORE, S3D_OUTSIDE_AFTER };
enum s3d_loop { S3D_LOOP_FIRST = 1, S3D_LOOP_EMPTY, S3D_LOOP_TOKEN };
enum s3d_xml {
	S3D_XML_CUT = 1,
	S3D_XML_ENTITY,
	S3D_XML_BYTE,
	S3D_XML_CHARSET,
	S3D_XML_TRUNCATED,
	S3D_XML_TOKEN,
	S3D_XML_HUGE,
	S3D_XML_DOCTYPE,
	S3D_XML_SIZE,
	S3D_XML_ESCAPE,
};

/* What a LIST answer suffers. */
struct s3d_page_plan {
	bool disorder;
	uint64_t seed; /* of the disorder */
	int duplicate; /* enum s3d_duplicate */
	int outside;   /* enum s3d_outside */
	int loop;      /* enum s3d_loop */
	int xml;       /* enum s3d_xml */
};

/* What one request is going to suffer. */
struct s3d_plan {
	uint64_t latency_ms;
	uint64_t bytes_per_second; /* 0 = no limit */
	uint64_t total_per_second; /* of all such bodies together, 0 = no limit */
	int status;                /* answer this instead, 0 = no */
	bool at_once;              /* without latency */
	bool html;                 /* with a page of HTML */
	char code[64];             /* S3 error code for status */
	char region[64];           /* the bucket's, with a redirect */
	char location[256];        /* of a redirect */
	uint64_t retry_after;      /* seconds, with status; 0 = not said */
	enum s3d_cut cut;
	uint64_t cut_after; /* body bytes, S3D_UNKNOWN = half */
	bool silent;        /* no answer at all */
	bool empty;         /* 200 without a body */
	bool interim;       /* 100 Continue first */
	bool whole;         /* Range ignored */
	bool gzip;
	int wrong_range;    /* enum s3d_range */
	int wrong_etag;     /* enum s3d_etag */
	uint64_t extra;     /* body bytes too many */
	int extra_how;      /* enum s3d_long */
	bool flip;          /* one bit of a byte */
	uint64_t flip_at;   /* that byte of the body, S3D_UNKNOWN = in the middle */
	bool newer;         /* the object is the next version */
	bool match_ignored; /* If-Match */
	bool swap;          /* the object is replaced meanwhile */
	struct s3d_page_plan page;
};

struct s3d_faults {
	struct list rules; /* struct s3d_fault */
	uint32_t count;
	uint32_t last_id;
	uint64_t rng;
	uint64_t fired;
	bool standalone; /* faults of objects and pages are possible */
};

void s3d_faults_init(struct s3d_faults *f, uint64_t seed, bool standalone);
void s3d_faults_seed(struct s3d_faults *f, uint64_t seed);
/* Adds the rule that a query describes (see s3d_fault.c); -EINVAL with a line. */
int s3d_faults_add(struct s3d_faults *f, const char *query, uint32_t *ret_id, struct err *e);
/* Removes one rule, all with id 0; returns how many. */
uint32_t s3d_faults_remove(struct s3d_faults *f, uint32_t id);
/* Decides about one request; counts and uses up the rules that fire. in_flight: requests of its
 * kind, itself included. */
void s3d_faults_plan(struct s3d_faults *f, const struct s3d_request *request, uint64_t in_flight,
	struct s3d_plan *ret_plan);
int s3d_faults_json(const struct s3d_faults *f, struct buf *out) __must_check;

/* s3d_auth.c ------------------------------------------------------------------------------- */

struct s3d_conn;

#define S3D_KEYS 16u /* key pairs at one time */

struct s3d_auth {
	struct s3d_key {
		char id[128];
		char secret[128];
		char token[1024]; /* "" without one */
	} keys[S3D_KEYS];
	uint32_t n_keys;
	bool anonymous;       /* unsigned requests are allowed beside the keys */
	bool requester_pays;  /* who does not say that he pays is refused */
	char region[64];      /* the bucket's; "": any */
	int64_t clock_offset; /* seconds that the server's clock is ahead */
};

/* "ID:SECRET[:TOKEN]"; replaces the pair of that id. */
int s3d_auth_add(struct s3d_auth *a, const char *spec, struct err *e);
bool s3d_auth_remove(struct s3d_auth *a, const char *id);
/* The server's clock. */
time_t s3d_auth_time(const struct s3d_auth *a);
/* True when the request may go on; else it is answered. */
bool s3d_auth_check(struct s3d_conn *c);

/* s3d_store.c ------------------------------------------------------------------------------ */

struct s3d_store;

/* The body of a GET in progress. */
struct s3d_body {
	int fd;         /* -1 for a synthetic object */
	uint64_t start; /* of a synthetic object in the table */
	uint64_t offset;
	uint64_t left;
};

enum s3d_etags {
	S3D_ETAGS_PARTS, /* "...-1", as of an object that was uploaded in parts */
	S3D_ETAGS_HEX,   /* "...", which look like MD5s */
	S3D_ETAGS_WEAK,  /* W/"...-1", which no If-Match fulfils */
};

/* dir may be NULL. versioned: older versions of synthetic objects stay. */
struct s3d_store *s3d_store_new(
	const char *bucket, const char *dir, bool versioned, enum s3d_etags etags);
void s3d_store_free(struct s3d_store *s);
/* "[SHAPE:]N,SIZE,DIRS[,PREFIX]": N objects of SIZE bytes; PREFIXdDDDDD/oNNNNNNNN without a
 * shape. */
int s3d_store_add_synthetic(struct s3d_store *s, const char *spec, struct err *e);
/* Reads the directory again and sorts everything. */
int s3d_store_scan(struct s3d_store *s, struct err *e);
/* What to do with synthetic objects; a field that is not said stays: version goes up by one. */
struct s3d_change {
	const char *key; /* all that begin so with `prefix` */
	bool prefix;
	bool remove;
	int archive;      /* 1: into an archive class, -1: restored, 0: as it is and nothing else */
	uint64_t version; /* S3D_UNKNOWN: not said */
	uint64_t size;
};
/* Changes them, and adds the one that is not there (size is said, no prefix); returns how many. */
int s3d_store_change(
	struct s3d_store *s, const struct s3d_change *change, uint32_t *ret_n, struct err *e);
void s3d_store_serve(struct s3d_store *s, struct s3d_conn *c);
void s3d_store_body_release(struct s3d_body *b);

/* s3d_proxy.c ------------------------------------------------------------------------------ */

struct s3d;
struct s3d_upstream;

void s3d_proxy_start(struct s3d_conn *c);
/* Bytes of the request's body; all are taken. False: wait for s3d_conn_resume_reading(). */
bool s3d_proxy_feed(struct s3d_conn *c, const char *data, size_t len);
/* The client is gone. */
void s3d_proxy_abandon(struct s3d_conn *c);
void s3d_proxy_close_idle(struct s3d *s);

/* s3d_conn.c ------------------------------------------------------------------------------- */

enum s3d_conn_state {
	S3D_CONN_IDLE,   /* between requests */
	S3D_CONN_BUSY,   /* a request is in progress */
	S3D_CONN_PARKED, /* stalled by a fault until released or closed */
	S3D_CONN_CLOSING,
};

struct s3d_conn {
	uint32_t magic;
	uv_tcp_t tcp;
	uv_timer_t timer; /* latency, then pace */
	uv_shutdown_t shutdown;
	struct list link; /* in the server's connections */
	struct s3d *server;
	bool control;
	enum s3d_conn_state state;
	bool advancing;
	int open_handles;
	struct buf in; /* received, not consumed */
	struct s3d_request req;
	struct s3d_plan plan;

	/* the reply */
	bool counted;       /* among the requests in flight */
	int status;         /* as sent, 0 before the head */
	uint64_t cut_at;    /* body bytes */
	uint64_t body_sent; /* body bytes */
	size_t queued;      /* bytes in uv's hands */
	bool paused;        /* by pace */
	bool replied;       /* the whole reply is sent or queued */
	bool chunked;       /* the body goes out in chunks */
	bool close_after;
	void (*more)(struct s3d_conn *c); /* the reply can go on */
	struct s3d_body body;
	struct s3d_upstream *upstream;
};

/* ret_address: the address with the port taken. */
int s3d_conn_listen(struct s3d *s, const char *address, bool control, uv_tcp_t *listener,
	char ret_address[S3D_ADDRESS], struct err *e);

void s3d_conn_close(struct s3d_conn *c);
void s3d_conn_reset(struct s3d_conn *c);
/* Closes once everything queued is sent. */
void s3d_conn_finish(struct s3d_conn *c);
void s3d_conn_write(struct s3d_conn *c, const char *data, size_t len);
/* Lets the reply go on if it can. */
void s3d_conn_more(struct s3d_conn *c);
/* Does all that can be done with what was received. */
void s3d_conn_advance(struct s3d_conn *c);
/* The reply has ended. */
void s3d_conn_count_end(struct s3d_conn *c);
void s3d_conn_resume_reading(struct s3d_conn *c);
/* Lets every parked connection go: those before their reply are served, the others closed. */
uint32_t s3d_conn_release_parked(struct s3d *s);

/* s3d_reply.c ------------------------------------------------------------------------------ */

/* Sends a head, which may be edited by the plan first. body_len: as announced, or S3D_UNKNOWN. */
void s3d_reply_head(struct s3d_conn *c, struct buf *head, int status, uint64_t body_len);
/* Sends body bytes; false when the producer has to wait for more(), or for ever. */
bool s3d_reply_body(struct s3d_conn *c, const char *data, size_t len);
void s3d_reply_end(struct s3d_conn *c);
/* A whole reply at once. extra: further header lines, each with CRLF, or "". */
void s3d_reply_whole(struct s3d_conn *c, int status, const char *type, const char *extra,
	const struct buf *body);
/* An S3 error with its XML. */
void s3d_reply_error(struct s3d_conn *c, int status, const char *code);
/* The same with further header lines, each with CRLF, and elements. */
void s3d_reply_error_with(
	struct s3d_conn *c, int status, const char *code, const char *extra, const char *xml);
/* What the plan says instead of the answer. */
void s3d_reply_plan(struct s3d_conn *c);
const char *s3d_reason(int status);

/* s3d_control.c ---------------------------------------------------------------------------- */

void s3d_control_serve(struct s3d_conn *c);

/* s3d.c ------------------------------------------------------------------------------------ */

struct s3d_stats {
	uint64_t connections;
	uint64_t requests;
	uint64_t kind[S3D_KINDS];
	uint64_t put, delete_, post;
	uint64_t body_bytes[S3D_KINDS]; /* of successful replies, as sent */
	uint64_t in_flight[S3D_KINDS];
	uint64_t max_in_flight[S3D_KINDS];
	uint64_t status[600];
	uint64_t upstream_connections;
	uint64_t upstream_errors;
};

struct s3d {
	uv_loop_t loop;
	uv_tcp_t data_listener;
	uv_tcp_t control_listener;
	struct list conns;
	struct s3d_stats stats;
	struct s3d_faults faults;
	struct s3d_auth auth;
	uint64_t total_due_ns;   /* when the bytes sent under a total pace are due (uv_hrtime()) */
	struct s3d_store *store; /* NULL in proxy mode */
	struct sockaddr_in upstream; /* sin_port 0 in standalone mode */
	struct list idle_upstreams;
	const char *domain;
	FILE *log; /* one line per request, or NULL */
};
