/*
 * Asking the master for the table: one request is parked there all the time, and answered once there is
 * something newer; view_stale() sends a second one that is answered at once. See view.h.
 */
#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "cluster/view_internal.h"

#include <stdlib.h>
#include <string.h>

#define PARK_MS        30000u
#define PARK_MARGIN    (15 * CLOCK_SECOND) /* for its answer to come */
#define PROBE_DEADLINE (5 * CLOCK_SECOND)
#define AGAIN_NS       CLOCK_SECOND /* after a failure, or an answer without news that came early */
#define STALE_INTERVAL (CLOCK_SECOND / 2)

static void ask(struct view *view, uint64_t deadline_ns);

/* NULL without memory. */
static uint8_t *pack_ask(struct view *view, bool park, size_t *ret_len)
{
	Granary__SlotsAsk message = GRANARY__SLOTS_ASK__INIT;
	uint8_t *data;

	pthread_mutex_lock(&view->lock);
	message.has_epoch = message.has_sequence = 1;
	message.epoch = view->whole ? 0 : view->epoch;
	message.sequence = view->whole ? 0 : view->sequence;
	message.has_news = view->config.on_news != NULL;
	message.news = view->news;
	pthread_mutex_unlock(&view->lock);
	/* Who knows nothing is not made to wait. */
	message.has_wait_ms = park && message.epoch;
	message.wait_ms = PARK_MS;
	*ret_len = granary__slots_ask__get_packed_size(&message);
	data = malloc(*ret_len);
	if (data)
		granary__slots_ask__pack(&message, data);
	return data;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* On the loop. *ret_news: something was newer. */
static int take_answer(
	struct view *view, const struct rpc_call *call, bool *ret_news, struct err *e)
{
	const uint8_t *in = call->reply_payload ? call->reply_payload : (const void *)"";
	Granary__SlotTable *message = granary__slot_table__unpack(NULL, call->reply.payload, in);
	bool changed = false;
	bool news;
	int r;

	if (!message)
		return err_set(e, -EBADMSG,
			"the master's slot table cannot be decoded; use the same version on both "
			"sides");
	r = view_take(view, message, &changed, e);
	pthread_mutex_lock(&view->lock);
	news = message->has_news && message->news != view->news;
	if (news)
		view->news = message->news;
	pthread_mutex_unlock(&view->lock);
	granary__slot_table__free_unpacked(message, NULL);
	if (changed && r == 0) {
		view_disk_dirty(view);
		if (view->config.on_table)
			view->config.on_table(view->config.arg);
	}
	if (news && view->config.on_news)
		view->config.on_news(view->config.arg);
	*ret_news = (changed && r == 0) || news;
	return r;
}

static void note_trouble(
	struct view *view, int status, const struct rpc_call *call, const struct err *e)
{
	pthread_mutex_lock(&view->lock);
	if (status == 0) {
		view->trouble = ERR_INIT;
		view->whole = false;
	} else if (e->code) {
		view->trouble = *e;
	} else if (call->reply_payload) {
		(void)err_set(&view->trouble, status, "%s", (const char *)call->reply_payload);
	} else {
		(void)err_set(&view->trouble, status,
			"the master did not send the slot table: %s: see its log", err_str(status));
	}
	if (status == -ENODATA) /* changes of another table than ours: the whole one, then */
		view->whole = true;
	pthread_mutex_unlock(&view->lock);
}

/* What a call ended with is taken; true when the view is not closing. */
static bool end_call(struct view *view, struct rpc_call *call, int status, bool *of, bool *ret_news)
{
	struct err e = ERR_INIT;
	bool goes_on;

	if (status == 0)
		status = take_answer(view, call, ret_news, &e);
	note_trouble(view, status, call, &e);
	rpc_call_release(call);
	pthread_mutex_lock(&view->lock);
	*of = false;
	view->asked = true;
	goes_on = !view->closing;
	pthread_cond_broadcast(&view->changed);
	pthread_mutex_unlock(&view->lock);
	return goes_on;
}

static void on_again(void *arg)
{
	struct view *view = arg;

	view->again = NULL;
	ask(view, 0);
}

static void ask_later(struct view *view)
{
	uint64_t ns = backoff_spread(AGAIN_NS, (struct backoff_spread){ 50, 150 });

	view->again = loop_timer_start(view->loop, ns, on_again, view);
	if (!view->again) /* no memory: the next view_stale() starts again */
		log_warn("slot table not requested", "cause=ENOMEM");
}

static void get_version(struct view *view, uint64_t ret[3])
{
	pthread_mutex_lock(&view->lock);
	ret[0] = view->epoch;
	ret[1] = view->sequence;
	ret[2] = view->news;
	pthread_mutex_unlock(&view->lock);
}

static void on_answer(struct rpc_call *call, int status)
{
	struct view *view = call->arg;
	uint64_t version[ARRAY_SIZE(view->asked_version)];
	bool news = false;

	if (!end_call(view, call, status, &view->asking, &news))
		return;
	get_version(view, version);
	/* What this answer says may have come with that of view_stale() before. */
	news |= status == 0 && memcmp(version, view->asked_version, sizeof(version)) != 0;
	/* Nothing new, and not after a wait: a peer that answers so is not asked without end. */
	if (!news && clock_mono_ns() - view->asked_ns < PARK_MS / 2 * CLOCK_MS)
		ask_later(view);
	else
		ask(view, 0);
}

static void on_probed(struct rpc_call *call, int status)
{
	struct view *view = call->arg;
	bool news = false;

	/* No memory was left to ask again: there may be now. */
	if (end_call(view, call, status, &view->probing, &news) && !view->asking && !view->again)
		ask(view, 0);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static bool send_call(
	struct view *view, struct rpc_call *call, bool *of, bool park, uint64_t deadline_ns)
{
	size_t len;
	uint8_t *data = pack_ask(view, park, &len);
	bool begin;

	if (!data)
		return false;
	pthread_mutex_lock(&view->lock);
	begin = !view->closing && !*of;
	if (begin) {
		*of = true;
		*call = (struct rpc_call){
			.frame = { .op = FRAME_GET_SLOTS },
			.payload = { .parts = { { data, len } },
				.n = 1,
				.release = free,
				.arg = data,
				.fd = -1 },
			.deadline_ns = deadline_ns,
			.resend = true,
			.on_done = park ? on_answer : on_probed,
			.arg = view,
			.reply_fd = -1,
		};
		/* Under the lock: view_ask_stop() cancels what was sent. */
		rpc_call(view->config.master, call);
	}
	pthread_mutex_unlock(&view->lock);
	if (!begin)
		free(data);
	return begin;
}

/* On the loop. */
static void ask(struct view *view, uint64_t deadline_ns)
{
	view->asked_ns = clock_mono_ns();
	get_version(view, view->asked_version);
	if (!deadline_ns)
		deadline_ns = view->asked_ns + PARK_MS * CLOCK_MS + PARK_MARGIN;
	if (!send_call(view, &view->ask, &view->asking, true, deadline_ns) && !view->again)
		ask_later(view);
}

static void on_begin(void *arg)
{
	struct view *view = arg;

	view_mend_later(view);
	ask(view, view->begin_deadline_ns);
}

void view_ask_begin(struct view *view, uint64_t deadline_ns)
{
	view->begin_deadline_ns = deadline_ns;
	loop_call(view->loop, on_begin, view);
}

static void on_stop(void *arg)
{
	struct view *view = arg;

	loop_timer_stop(view->again);
	loop_timer_stop(view->save_timer);
	loop_timer_stop(view->sweep_timer);
	loop_timer_stop(view->mend_timer);
	view->again = NULL;
	view->save_timer = NULL;
	view_alive_stop(view);
	view->sweep_timer = NULL;
	view->mend_timer = NULL;
}

void view_ask_stop(struct view *view)
{
	pthread_mutex_lock(&view->lock);
	view->closing = true;
	if (view->asking)
		rpc_cancel(view->config.master, &view->ask);
	if (view->probing)
		rpc_cancel(view->config.master, &view->probe);
	while (view->asking || view->probing)
		pthread_cond_wait(&view->changed, &view->lock);
	pthread_mutex_unlock(&view->lock);
	loop_call(view->loop, on_stop, view); /* behind what view_stale() posted */
}

static void run_stale(struct loop_task *task)
{
	struct view *view = container_of(task, struct view, stale_task);

	pthread_mutex_lock(&view->lock);
	view->stale_posted = false;
	pthread_mutex_unlock(&view->lock);
	(void)send_call(view, &view->probe, &view->probing, false,
		clock_mono_ns() + PROBE_DEADLINE); /* one is in flight, or out of memory */
}

void view_stale(struct view *view)
{
	uint64_t now = clock_mono_ns();

	CHECK_MAGIC(view, VIEW_MAGIC);
	pthread_mutex_lock(&view->lock);
	if (!view->closing && !view->stale_posted && now - view->stale_ns >= STALE_INTERVAL) {
		view->stale_posted = true;
		view->stale_ns = now;
		view->stale_task.run = run_stale;
		loop_post(view->loop, &view->stale_task);
	}
	pthread_mutex_unlock(&view->lock);
}
