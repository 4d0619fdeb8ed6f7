/* The parts of the S3 origin that its files share. */
#pragma once

#include <pthread.h>
#include "base/loop.h"
#include "ufs/credentials.h"
#include "ufs/s3_endpoint.h"
#include "ufs/s3_error.h"
#include "ufs/s3_http.h"
#include "ufs/s3_sign.h"
#include "ufs/ufs_internal.h"

struct s3 {
	struct ufs base;
	struct ufs_config config; /* a copy of its own */
	struct credentials credentials;
	char region[S3_REGION_MAX];
	char host[S3_HOST_MAX + 8]; /* the Host header: with the bucket in virtual-host style */
	char base_url[S3_HOST_MAX + 16]; /* scheme and host */
	bool path_style;
	bool no_proxy;
	struct loop *loop;

	pthread_mutex_t lock; /* of the following; held for list operations only */
	struct list queues[UFS_CLASSES];
	struct list lists; /* struct s3_list_call */
	bool woken;
	bool closing;
	struct loop_task wake;

	/* The loop's thread only. */
	struct s3_http *http;
	struct s3_signer signer;
	unsigned int in_flight;
	unsigned int in_flight_low; /* of classes below demand */
	unsigned int lists_in_flight;
	struct buf path;
	struct buf url;
	struct buf line;
};

/* Another thread waits for it (s3_list.c). */
struct s3_list_call {
	struct list link;
	const char *query;
	uint64_t deadline_ns;
	struct s3 *s3;
	struct buf body;
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
void s3_list_end(struct s3 *s3, struct s3_list_call *call, int status);

/* s3_request.c */
struct s3_target s3_target_of(const struct s3 *s3);
/* Encoded path of an object into s3->path; of the bucket when key is NULL. */
int s3_put_path(struct s3 *s3, const char *key, size_t len) __must_check;
/* Signs a GET of s3->path with `query` and starts it. */
int s3_send(struct s3 *s3, struct s3_exchange *x, const char *query) __must_check;
int s3_get_start(struct s3 *s3, struct ufs_get *get, bool low) __must_check;

/* s3_list.c */
int s3_list_start(struct s3 *s3, struct s3_list_call *call) __must_check;
int s3_list_page(struct ufs *ufs, const struct ufs_page_request *request, struct ufs_page *page,
	struct err *e);
int s3_probe(struct ufs *ufs, struct err *e);
