/* Questions to the master. See master_call.h. */
#include "cacheworker/master_call.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <string.h>

struct question {
	struct rpc_call call;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
	int status;
};

static void on_answer(struct rpc_call *call, int status)
{
	struct question *q = call->arg;

	pthread_mutex_lock(&q->lock);
	q->done = true;
	q->status = status;
	pthread_cond_signal(&q->ended);
	pthread_mutex_unlock(&q->lock);
}

static void ask(struct worker *w, struct question *q)
{
	bool closing;

	pthread_mutex_lock(&w->sources.lock);
	closing = w->sources.closing;
	if (!closing)
		rpc_call(w->master, &q->call);
	pthread_mutex_unlock(&w->sources.lock);
	pthread_mutex_lock(&q->lock);
	while (!closing && !q->done)
		pthread_cond_wait(&q->ended, &q->lock);
	pthread_mutex_unlock(&q->lock);
}

static int call(struct worker *w, struct frame frame, const void *payload, size_t len,
	uint64_t patience_ns, bool hurry, struct master_answer *ret_answer, struct err *e)
{
	struct question q = { .call = { .frame = frame,
				      .payload = NET_PAYLOAD_NONE,
				      .reply_fd = -1,
				      .deadline_ns = clock_mono_ns() + patience_ns,
				      .resend = true,
				      .hurry = hurry,
				      .on_done = on_answer,
				      .arg = &q },
		.status = -ECANCELED };
	char *copy = len ? malloc(len) : NULL; /* may be needed after the end */

	*ret_answer = (struct master_answer){ .fd = -1 };
	if (len && !copy)
		return err_set(e, -ENOMEM, "no memory for a request to the master");
	if (len) {
		memcpy(copy, payload, len);
		q.call.payload.parts[0].data = copy;
		q.call.payload.parts[0].len = len;
		q.call.payload.n = 1;
		q.call.payload.release = free;
		q.call.payload.arg = copy;
	}
	pthread_mutex_init(&q.lock, NULL);
	pthread_cond_init(&q.ended, NULL);
	ask(w, &q);
	pthread_cond_destroy(&q.ended);
	pthread_mutex_destroy(&q.lock);
	if (!q.done)
		free(copy);
	ret_answer->reply = q.call.reply;
	ret_answer->payload = q.call.reply_payload;
	ret_answer->fd = q.call.reply_fd;
	if (q.status < 0 && ret_answer->payload)
		return err_set(e, q.status, "%s", (const char *)ret_answer->payload);
	if (q.status < 0)
		return err_set(e, q.status, "the master at %s does not answer: %s: see its log",
			w->config->master, err_str(q.status));
	return 0;
}

int master_call(struct worker *w, struct frame frame, const void *payload, size_t len,
	uint64_t patience_ns, struct master_answer *ret_answer, struct err *e)
{
	return call(w, frame, payload, len, patience_ns, false, ret_answer, e);
}

int master_call_hurry(struct worker *w, struct frame frame, const void *payload, size_t len,
	uint64_t patience_ns, struct master_answer *ret_answer, struct err *e)
{
	return call(w, frame, payload, len, patience_ns, true, ret_answer, e);
}

void master_answer_release(struct master_answer *answer)
{
	free(TAKE(answer->payload));
	cleanup_close(&answer->fd);
	answer->fd = -1;
}
