/* What the files of the client share. */
#pragma once

#include "base/backoff.h"
#include "kube/kube.h"
#include "ufs/http_once.h"

#include <pthread.h>

struct kube {
	struct kube_access access;
	struct http_trust trust;
	const _Atomic bool *given_up;
	char *name; /* "Kubernetes at https://..." */

	pthread_mutex_t lock;         /* of what follows. Not held over a request */
	struct http_session *session; /* kept between requests; NULL: one uses it */
	json_t *resources;            /* {"kubeflow.org/v1": answer to discovery} */
};

/* An answer that is not 2xx as an error. */
int kube_refused(const struct kube *kube, const struct kube_request *request, int status,
	const char *body, size_t len, struct err *e);

/* Sends a request once. 0: answered, with any status. `sink` NULL: all of the body goes to `answer`. */
struct kube_sink {
	int (*see)(void *arg, const char *data, size_t len);
	void *arg;
	uint64_t idle_ns;    /* without a byte; 0: no bound */
	uint64_t timeout_ns; /* in all; 0: no bound */
};
int kube_send(struct kube *kube, const struct kube_request *request, const struct kube_sink *sink,
	int *ret_status, uint64_t *ret_retry_after_ns, struct buf *answer,
	struct err *e) __must_check;
/* Sleeps; -ECANCELED when the client is given up meanwhile. */
int kube_sleep(const struct kube *kube, uint64_t ns, struct err *e) __must_check;
