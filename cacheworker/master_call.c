/* Questions to the master. See master_call.h. */
#include "cacheworker/master_call.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <string.h>

static void on_done(struct rpc_call *call, int status)
{
	struct master_ask *ask = call->arg;

	ask->status = status;
	ask->on_answer(ask);
}

int master_ask(struct worker *w, struct frame frame, const void *payload, size_t len,
	uint64_t patience_ns, bool hurry, struct master_ask *ask)
{
	char *copy = len ? malloc(len) : NULL; /* may be needed after the end */
	bool closing;

	if (len && !copy)
		return -ENOMEM;
	ask->status = -ECANCELED;
	ask->call = (struct rpc_call){ .frame = frame,
		.payload = NET_PAYLOAD_NONE,
		.reply_fd = -1,
		.deadline_ns = clock_mono_ns() + patience_ns,
		.resend = true,
		.hurry = hurry,
		.on_done = on_done,
		.arg = ask };
	if (len) {
		memcpy(copy, payload, len);
		ask->call.payload.parts[0].data = copy;
		ask->call.payload.parts[0].len = len;
		ask->call.payload.n = 1;
		ask->call.payload.release = free;
		ask->call.payload.arg = copy;
	}
	pthread_mutex_lock(&w->sources.lock);
	closing = w->sources.closing;
	if (!closing)
		rpc_call(w->master, &ask->call);
	pthread_mutex_unlock(&w->sources.lock);
	if (closing)
		free(copy);
	return closing ? -ECANCELED : 0;
}

int master_ask_end(
	struct worker *w, struct master_ask *ask, struct master_answer *ret_answer, struct err *e)
{
	ret_answer->reply = ask->call.reply;
	ret_answer->payload = ask->call.reply_payload;
	ret_answer->fd = ask->call.reply_fd;
	if (ask->status < 0 && ret_answer->payload)
		return err_set(e, ask->status, "%s", (const char *)ret_answer->payload);
	if (ask->status < 0)
		return err_set(e, ask->status, "the master at %s does not answer: %s: see its log",
			w->config->master, err_str(ask->status));
	return 0;
}

struct waiter {
	struct master_ask ask;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
};

static void on_answer(struct master_ask *ask)
{
	struct waiter *waiter = container_of(ask, struct waiter, ask);

	pthread_mutex_lock(&waiter->lock);
	waiter->done = true;
	pthread_cond_signal(&waiter->ended);
	pthread_mutex_unlock(&waiter->lock);
}

static int call(struct worker *w, struct frame frame, const void *payload, size_t len,
	uint64_t patience_ns, bool hurry, struct master_answer *ret_answer, struct err *e)
{
	struct waiter waiter = { .ask.on_answer = on_answer };
	int r;

	*ret_answer = (struct master_answer){ .fd = -1 };
	pthread_mutex_init(&waiter.lock, NULL);
	pthread_cond_init(&waiter.ended, NULL);
	r = master_ask(w, frame, payload, len, patience_ns, hurry, &waiter.ask);
	pthread_mutex_lock(&waiter.lock);
	while (r == 0 && !waiter.done)
		pthread_cond_wait(&waiter.ended, &waiter.lock);
	pthread_mutex_unlock(&waiter.lock);
	pthread_cond_destroy(&waiter.ended);
	pthread_mutex_destroy(&waiter.lock);
	if (r == -ENOMEM)
		return err_set(e, -ENOMEM, "no memory for a request to the master");
	return master_ask_end(w, &waiter.ask, ret_answer, e);
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
