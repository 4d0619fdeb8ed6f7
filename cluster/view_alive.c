/*
 * Peers that say nothing. See view.h.
 *
 *	asked, and nothing heard for VIEW_QUIET ──► PING ──answer──► it is there, whatever it waits for
 *	                                             │  ▲
 *	                        nothing for VIEW_HANGS  │ again, until it answers or the master calls it down
 *	                                             ▼  │
 *	                                         it hangs: on_hang(), and its breaker is open
 *
 * One timer of the loop looks at all peers some times a second while any of them was asked something. A peer whose
 * connection goes is none that hangs: its calls end by themselves. A process that is late itself judges no other: a process that
 * did not run meanwhile may have the answer unread, and on a machine that is so busy the peer may be as late; it asks
 * again, EXCUSES_MAX times at most. A PING's answer comes behind those before it, which on a slow network may take
 * longer than VIEW_HANGS: as long as bytes come it does not hang.
 */
#include "base/log.h"
#include "cluster/view_internal.h"

#define LOOK_NS     (VIEW_QUIET / 2)
#define LATE_NS     (250 * CLOCK_MS)
#define EXCUSES_MAX 2u

static void on_alive(struct rpc_call *call, int status);

static void note_moved(struct view_alive *alive, uint64_t now)
{
	uint64_t received = rpc_client_received(alive->peer->pub.rpc);

	if (received != alive->received)
		alive->moved_ns = now;
	alive->received = received;
}

/* It has until then to say something. */
static void ask_until(
	struct view *view, struct view_alive *alive, struct peer *peer, uint64_t deadline_ns)
{
	alive->view = view;
	alive->peer = peer;
	peer_ping(peer);
	alive->asked_ns = clock_mono_ns(); /* what is heard later is an answer */
	alive->call = (struct rpc_call){
		.frame = { .op = FRAME_PING, .class = FRAME_DEMAND },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = deadline_ns,
		.hurry = true,
		.on_done = on_alive,
		.arg = alive,
		.reply_fd = -1,
	};
	rpc_call(peer->pub.rpc, &alive->call);
}

static void ask_alive(struct view *view, struct view_alive *alive, struct peer *peer)
{
	uint64_t now = clock_mono_ns();

	alive->received = rpc_client_received(peer->pub.rpc);
	alive->moved_ns = now;
	alive->hangs_ns = atomic_load(&view->hangs_ns);
	ask_until(view, alive, peer, now + alive->hangs_ns);
}

/* It did not answer, and is asked once more. */
static void hangs(struct view *view, struct view_alive *alive, struct peer *peer)
{
	if (peer_break(peer))
		LOG_LIMITED(LOG_WARN, "worker hangs",
			"worker=%s address=%s next=\"other workers are used\"", peer->pub.name,
			peer->pub.address);
	if (view->config.on_hang)
		view->config.on_hang(view->config.arg);
	if (peer_up(peer))
		ask_alive(view, alive, peer);
	else
		atomic_store(&peer->hangs, false); /* the master says when it is back */
}

/* Was this process late itself, since it asked? */
static bool is_excused(const struct view *view, struct view_alive *alive, uint64_t now)
{
	bool late = now - alive->call.deadline_ns > LATE_NS || view->late_ns >= alive->asked_ns;

	return late && !atomic_load(&alive->peer->hangs) && alive->excuses++ < EXCUSES_MAX;
}

static void on_alive(struct rpc_call *call, int status)
{
	struct view_alive *alive = call->arg;
	struct view *view = alive->view;
	struct peer *peer = alive->peer;
	bool replied = call->reply.flags & FRAME_REPLY;
	uint64_t now = clock_mono_ns();
	/* Behind answers that take their time on a slow network there is a PING's, too. A call that ends before its
	 * deadline was refused, since there is no connection: the next look sends another one. */
	bool silent = !replied && status == -ETIMEDOUT && now >= call->deadline_ns &&
		      !view->alive_stopped && !peer_heard_since(peer, alive->asked_ns);
	uint64_t until = 0;
	bool excused = false;

	if (silent) {
		note_moved(alive, now);
		until = alive->moved_ns + alive->hangs_ns;
		excused = until <= now && is_excused(view, alive, now);
	}
	if (replied)
		peer_is_there(peer);
	else
		view_dropped(view, &peer->pub);
	rpc_call_release(call);
	alive->peer = NULL;
	if (!silent)
		atomic_store(&peer->hangs, false);
	else if (until > now)
		ask_until(view, alive, peer, until);
	else if (excused)
		ask_alive(view, alive, peer);
	else
		hangs(view, alive, peer);
	if (silent)
		view_alive_watch(view);
}

/* NULL: it is being asked already, or there is no room for another one. */
static struct view_alive *alive_for(struct view *view, const struct peer *peer)
{
	struct view_alive *unused = NULL;

	for (uint32_t i = 0; i < VIEW_ALIVES; i++) {
		if (view->alives[i].peer == peer)
			return NULL;
		if (!view->alives[i].peer)
			unused = &view->alives[i];
	}
	return unused;
}

static void on_look(void *arg);

static void look(struct view *view)
{
	bool more = false;

	if (view->alive_stopped)
		return;
	atomic_store(&view->watched, false); /* before the check: a later call starts another one */
	for (uint32_t i = 0; i < VIEW_ALIVES; i++)
		if (view->alives[i].peer)
			note_moved(&view->alives[i], clock_mono_ns());
	list_for_each (node, &view->peers) {
		struct peer *peer = list_entry(node, struct peer, link);
		uint64_t silent_ns = peer->pub.rpc ? peer_silent(peer) : 0;
		struct view_alive *alive = silent_ns > VIEW_QUIET ? alive_for(view, peer) : NULL;

		more |= silent_ns > 0;
		if (!alive)
			continue;
		alive->excuses = 0;
		ask_alive(view, alive, peer);
	}
	if (!more || atomic_exchange(&view->watched, true))
		return;
	view->look_ns = clock_mono_ns() + LOOK_NS;
	view->look_timer = loop_timer_start(view->loop, LOOK_NS, on_look, view);
	if (!view->look_timer) /* without memory: the next call starts again */
		atomic_store(&view->watched, false);
}

static void on_look(void *arg)
{
	struct view *view = arg;
	uint64_t now = clock_mono_ns();

	view->look_timer = NULL;
	if (now - view->look_ns > LATE_NS && now > view->look_ns)
		view->late_ns = now;
	look(view);
}

static void run_look(struct loop_task *task)
{
	look(container_of(task, struct view, look_task));
}

void view_alive_watch(struct view *view)
{
	if (atomic_load(&view->watched) || atomic_exchange(&view->watched, true))
		return;
	view->look_task.run = run_look;
	loop_post(view->loop, &view->look_task);
}

void view_set_hangs(struct view *view, uint64_t ns)
{
	CHECK_MAGIC(view, VIEW_MAGIC);
	atomic_store(&view->hangs_ns, ns);
}

void view_alive_stop(struct view *view)
{
	view->alive_stopped = true;
	atomic_store(&view->watched, true); /* it is not posted any more */
	loop_timer_stop(view->look_timer);
	view->look_timer = NULL;
}
