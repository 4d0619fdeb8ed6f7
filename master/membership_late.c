/*
 * Is the master itself late? See membership.h.
 *
 * Beats are read by the loop that also tells everybody of a new table: ten thousand answers, and as many questions after
 * them. What was not read yet is no proof that it was not sent. So a mark goes round that loop all the time, twice each: once
 * with what was there when it was sent, once with what had to wait for its turn behind that. No member is missed while one
 * is under way for longer than a beat.
 */
#include "base/log.h"
#include "master/membership_internal.h"

#include <inttypes.h>

#define ROUNDS  2u
#define LATE_NS MEMBER_BEAT_NS

static void on_round(struct loop_task *task)
{
	struct membership *m = container_of(task, struct membership, late.mark);
	struct late *late = &m->late;

	pthread_mutex_lock(&m->lock);
	if (--late->rounds > 0 && late->loop)
		loop_post(late->loop, task);
	else
		late->rounds = 0;
	if (late->rounds == 0)
		pthread_cond_signal(&late->back);
	pthread_mutex_unlock(&m->lock);
}

bool membership_is_late_locked(struct membership *m, uint64_t now)
{
	struct late *late = &m->late;

	if (!late->loop)
		return false;
	if (late->rounds == 0) {
		late->rounds = ROUNDS;
		late->sent_ns = now;
		late->mark.run = on_round;
		loop_post(late->loop, &late->mark);
		return false;
	}
	if (now - late->sent_ns <= LATE_NS)
		return false;
	LOG_LIMITED(LOG_WARN, "heartbeats are read late",
		"ms=%" PRIu64 " next=\"no worker is marked down meanwhile\"",
		(uint64_t)((now - late->sent_ns) / CLOCK_MS));
	return true;
}

void membership_listen(struct membership *m, struct loop *loop)
{
	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	m->late.loop = loop;
	while (!loop && m->late.rounds > 0)
		pthread_cond_wait(&m->late.back, &m->lock);
	pthread_mutex_unlock(&m->lock);
}
