/*
 * HTTP exchanges over kept connections: libcurl's multi interface driven by a loop of ours.
 *
 * Everything here happens on the loop's thread. An exchange is taken, filled, started; it ends by
 * exactly one on_done, after which it is given back. Exchanges keep their curl handles, so that a
 * warm request allocates little.
 */
#pragma once

#include "base/list.h"
#include "base/loop.h"
#include "ufs/s3_answer.h"
#include "ufs/s3_way.h"

struct s3_http;

struct s3_exchange {
	struct list link; /* http's */
	struct s3_http *http;
	void *easy;    /* CURL */
	void *headers; /* struct curl_slist */
	struct s3_answer answer;
	uint64_t sent_ns;     /* when it was started */
	uint64_t latency_ns;  /* from the request to the first byte; 0: none came */
	uint64_t progress_ns; /* when enough bytes last came */
	uint64_t since;       /* bytes since then */
	uint64_t deadline_ns; /* absolute; 0: none */
	int abort_code;       /* what on_data returned */
	int proxy_status;     /* a proxy's answer to CONNECT; 0: none */
	struct s3_guard guard;
	char text[256];  /* curl's text for a failure */
	struct buf body; /* the owner's: an error's body, a LIST's answer */

	/* Bytes of the body, headers complete. Negative: ends the exchange with that code. */
	int (*on_data)(struct s3_exchange *x, const char *data, size_t len);
	/* `status`: 0 the answer is complete; negative: on_data's code, -ETIMEDOUT (no progress, or
	 * the deadline), -ECANCELED; positive: a CURLcode, `text` says more. May start other
	 * exchanges, not this one. */
	void (*on_done)(struct s3_exchange *x, int status);

	/* The rest is the owner's. */
	int (*send)(struct s3_exchange *x); /* builds the request and starts it, also again */
	void *owner;
	void *arg;
	bool low;        /* counts among the places of the lower classes */
	bool by_version; /* asks for a version by its id */
	bool plain;      /* asked for one, and is not to again */
	bool checksums;  /* asks for the object's checksum */
	uint64_t asked;  /* bytes */
	unsigned int resends;
	uint64_t epoch; /* of the place and the keys that it was sent with */
	int status;     /* while parked: what on_done got */
};

/* An attempt must bring this much, or end, within each progress timeout. */
#define S3_HTTP_PROGRESS_BYTES (16u * 1024)

struct s3_http_config {
	struct loop *loop;
	unsigned int max_exchanges;
	uint64_t progress_timeout_ns;
	struct s3_way way;
};

/* On the loop's thread. NULL without memory. */
struct s3_http *s3_http_new(const struct s3_http_config *config);
/* Ends all exchanges with -ECANCELED, then frees; the loop's handles are closing when it
 * returns. */
void s3_http_free(struct s3_http *http);

/* NULL without memory, or when max_exchanges are out. Clean: no headers, body empty with its
 * maximum `body_max`. */
struct s3_exchange *s3_http_take(struct s3_http *http, size_t body_max);
void s3_http_give(struct s3_exchange *x);

/* Clean as s3_http_take() gives it, for being sent again; not while it is under way. */
void s3_http_again(struct s3_exchange *x);
/* Ends those under way for which `want` says so with -ECANCELED. */
void s3_http_cancel(
	struct s3_http *http, bool (*want)(const struct s3_exchange *x, void *arg), void *arg);

int s3_http_header(struct s3_exchange *x, const char *line) __must_check; /* "name: value" */
/* Sends a GET. `url` is copied. -ENOMEM: nothing was started, on_done will not be called. */
int s3_http_start(struct s3_exchange *x, const char *url) __must_check;
