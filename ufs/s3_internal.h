/* The parts of the S3 origin that its files share. */
#pragma once

#include <pthread.h>
#include "base/loop.h"
#include "base/md5.h"
#include "base/pool.h"
#include "ufs/background.h"
#include "ufs/credentials.h"
#include "ufs/s3_endpoint.h"
#include "ufs/s3_error.h"
#include "ufs/s3_http.h"
#include "ufs/s3_place.h"
#include "ufs/s3_sign.h"
#include "ufs/ufs_internal.h"
#include "ufs/window.h"

/*
 * Whether ETags of 32 hex digits are the MD5s of their objects. Each process learns it once per origin:
 *
 *	UNKNOWN -> MD5 (one matched) | OTHER (the same object had the same other MD5 twice)
 */
enum s3_etags {
	S3_ETAGS_UNKNOWN,
	S3_ETAGS_MD5,
	S3_ETAGS_OTHER, /* not compared */
};

/* Whole objects that are received, to be compared with the MD5s in their ETags. The loop's thread only. */
struct s3_md5s {
	struct ufs_get *gets[MD5_LANES];
	uint32_t n;
	bool posted; /* the task */
	struct loop_task task;
	struct loop_timer *timer;
};

struct s3 {
	struct ufs base;
	struct ufs_config config;    /* a copy of its own */
	char name[S3_HOST_MAX + 16]; /* the URL as configured: for lines of any thread */
	struct s3_way way;
	bool obs;                /* OBS's own signatures and names of headers */
	bool markers;            /* LISTs of the first version, which go on by markers */
	_Atomic bool by_version; /* objects are listed and read by the ids of their versions */
	struct loop *loop;

	pthread_mutex_t lock; /* of the following; held for list operations only */
	struct list queues[UFS_CLASSES];
	struct list lists;     /* struct s3_list_call */
	struct list cancelled; /* struct ufs_get that were waiting */
	bool cancels;          /* of requests under way */
	bool list_cancels;     /* of LISTs under way */
	bool woken;
	bool closing;
	struct loop_task wake;

	/* The loop's thread only. */
	struct s3_place place;
	struct credentials credentials;
	uint64_t epoch;   /* grows with each change of the two */
	bool plain_reads; /* versions may not be read by their ids, but objects may be read */
	enum s3_etags etags;
	struct s3_md5s md5s;
	struct s3_http *http;
	struct s3_signer signer;
	struct window window;         /* of GETs */
	struct window list_window;    /* of LISTs */
	struct background background; /* how many GETs fill the way */
	unsigned int in_flight;
	unsigned int in_flight_low; /* of classes below demand */
	uint64_t demand_ns;         /* when the last GET of a reader was started; monotonic */
	unsigned int lists_in_flight;
	struct buf path;
	struct buf url;
	struct buf line;
	struct s3_renew *renew;
};

/* Another thread waits for it (s3_list.c). */
struct s3_list_call {
	struct list link;
	const struct ufs_page_request *request;
	_Atomic bool cancelled;
	const char *query;
	struct s3 *s3;
	struct buf body; /* of the answer, of a refusal too */
	int answer;      /* its HTTP status; 0: none came, or not whole */
	uint64_t retry_after_ns;
	int status;
	struct err e;
	bool finished;
	pthread_cond_t done;
};

/* s3.c: from other threads. Waits for the end; the status is the call's. */
int s3_list_run(struct s3 *s3, struct s3_list_call *call) __must_check;

/* The rest is for the loop's thread. */
void s3_place_free(struct s3 *s3, bool low);
void s3_get_end(struct s3 *s3, struct ufs_get *get, int status, const struct err *e);
void s3_list_end(struct s3 *s3, struct s3_list_call *call, int status, enum ufs_cause cause);
/* What an exchange teaches about how many may be in flight. */
void s3_learn_window(struct s3 *s3, struct window *window, const struct s3_exchange *x,
	enum ufs_cause cause, unsigned int in_flight);

/* s3_request.c */
/* Encoded path of an object into s3->path; of the bucket when key is NULL. */
int s3_put_path(struct s3 *s3, const char *key, size_t len) __must_check;
/* Signs a GET of s3->path with `query` and starts it; `list`: of objects. */
int s3_send(struct s3 *s3, struct s3_exchange *x, const char *query, bool list) __must_check;
/* "s3", "obs" */
const char *s3_scheme(const struct s3 *s3);
int s3_get_start(struct s3 *s3, struct ufs_get *get, bool low) __must_check;
/* Ends those under way that are marked `cancelled`. */
void s3_get_cancel_marked(struct s3 *s3);

/* s3_sum.c: the answer of a whole object begins; sets get->sum. */
void s3_sum_begin(struct s3 *s3, const struct s3_answer *answer, struct ufs_get *get);
/* All its bytes are there: 0, or -EIO with a line, a cause, and whether it is final. */
int s3_sum_check(struct s3 *s3, struct ufs_get *get, struct err *e) __must_check;
/* Is it compared by an MD5? */
bool s3_sum_is_md5(const struct s3 *s3, const struct ufs_get *get);
/* Such a one is compared soon, with others if no reader waits for it; s3_get_end() follows. */
void s3_sum_later(struct s3 *s3, struct ufs_get *get);
void s3_sum_init(struct s3 *s3);
/* All are compared now. */
void s3_sum_all(struct s3 *s3);

/* Why an exchange under way failed, for all kinds of requests; `status` as s3_http.h's on_done
 * has it. 0: it did not. `key` is NULL for a LIST. */
int s3_exchange_status(struct s3 *s3, const struct s3_exchange *x, int status, const char *key,
	uint32_t key_len, struct s3_failure *ret_failure, struct err *e) __must_check;

/*
 * s3_renew.c: after a failure that another place or other keys may cure. True: the exchange was
 * sent again, or is parked until the keys were looked for; its on_done follows. False: the failure
 * stands.
 */
bool s3_send_again(struct s3 *s3, struct s3_exchange *x, int http_status, int status,
	const struct s3_failure *failure) __must_check;
struct s3_renew *s3_renew_new(struct s3 *s3); /* NULL without memory */
/* What credentials are looked for. Any thread. */
struct credentials_query s3_renew_query(const struct s3 *s3);
void s3_renew_start(struct s3 *s3); /* from now on keys are renewed before they expire */
void s3_renew_cancel(
	struct s3 *s3, bool (*want)(const struct s3_exchange *x, void *arg), void *arg);
void s3_renew_close(struct s3 *s3);         /* what is parked ends */
void s3_renew_free(struct s3_renew *renew); /* after the loop's end; NULL is allowed */

/* s3_list.c */
/* Ends those under way that are marked `cancelled`. */
void s3_list_cancel_marked(struct s3 *s3);
int s3_list_start(struct s3 *s3, struct s3_list_call *call) __must_check;
/* One LIST, or another question to the bucket. Body and HTTP status of the answer are written after a failure, too:
 * empty and 0 where none came. The body is the caller's. */
int s3_list_ask(struct s3 *s3, const struct ufs_page_request *request, const char *query,
	struct buf *ret_body, int *ret_answer, struct ufs_page *page, struct err *e) __must_check;
/* One page of objects, or of their versions. */
int s3_list_once(struct s3 *s3, const struct ufs_page_request *request, unsigned int max_keys,
	bool versions, struct ufs_page *page, struct err *e) __must_check;

/* s3_versions.c: a listing begins. Sets s3->by_version. */
int s3_versions_begin(struct s3 *s3, const struct ufs_page_request *request, struct ufs_page *page,
	struct err *e) __must_check;

/* s3_list.c: the table's. */
int s3_list_page(struct ufs *ufs, const struct ufs_page_request *request, struct ufs_page *page,
	struct err *e);
int s3_probe(struct ufs *ufs, struct err *e);
