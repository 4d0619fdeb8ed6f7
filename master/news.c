/* A word to the worker. See news.h. */
#include "master/news.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/net.h"

#include <pthread.h>

#define PATIENCE (2 * CLOCK_SECOND)

struct news {
	struct rpc_client *client;
	pthread_mutex_t lock; /* a leaf but for rpc_call() */
	struct rpc_call call;
	bool busy;  /* a word is on its way */
	bool again; /* there was more since */
};

static void send_locked(struct news *news);

static void on_done(struct rpc_call *call, int status)
{
	struct news *news = call->arg;

	rpc_call_release(call);
	if (status < 0)
		log_debug(
			"worker not told", "cause=%s next=\"it asks by itself\"", err_name(status));
	pthread_mutex_lock(&news->lock);
	news->busy = false;
	if (news->again && status == 0)
		send_locked(news);
	pthread_mutex_unlock(&news->lock);
}

static void send_locked(struct news *news)
{
	news->busy = true;
	news->again = false;
	news->call = (struct rpc_call){
		.frame = { .op = FRAME_NEWS },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + PATIENCE,
		.resend = true,
		.on_done = on_done,
		.arg = news,
		.reply_fd = -1,
	};
	rpc_call(news->client, &news->call); /* on_done never from inside */
}

struct news *news_new(struct loop *loop, const char *worker, struct err *e)
{
	struct news *news = calloc(1, sizeof(*news));
	int r;

	if (!news) {
		(void)err_set(e, -ENOMEM, "out of memory");
		return NULL;
	}
	pthread_mutex_init(&news->lock, NULL);
	r = rpc_client_new(loop, worker, &news->client, e);
	if (r < 0) {
		(void)err_default(e, r, worker);
		pthread_mutex_destroy(&news->lock);
		free(news);
		return NULL;
	}
	return news;
}

void news_free(struct news *news)
{
	if (!news)
		return;
	rpc_client_free(news->client); /* ends the call */
	pthread_mutex_destroy(&news->lock);
	free(news);
}

void news_tell(struct news *news)
{
	if (!news)
		return;
	pthread_mutex_lock(&news->lock);
	if (news->busy)
		news->again = true;
	else
		send_locked(news);
	pthread_mutex_unlock(&news->lock);
}
