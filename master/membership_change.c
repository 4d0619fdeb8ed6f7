/* What operators do to workers. See membership.h. */
#include "master/membership_internal.h"

/* As it is stored it counts, and not before: what could not be stored is taken back. */
static int store_drain(struct membership *m, struct member *member, bool drain, struct err *e)
{
	int r = membership_store(m, member->number, e);

	if (r < 0) {
		pthread_mutex_lock(&m->lock);
		members_take_back_drain(&m->members, member, !drain);
		pthread_mutex_unlock(&m->lock);
	}
	return r;
}

int membership_drain(struct membership *m, const char *name, bool drain, struct err *e)
{
	struct member *member = NULL;
	bool changes = false;
	int r;

	pthread_mutex_lock(&m->writing);
	pthread_mutex_lock(&m->lock);
	r = members_find(&m->members, name, &member, e);
	if (r == 0 && member->id == 0)
		r = err_set(e, -EBUSY,
			"worker %s has not joined yet: start it, in the version of the master",
			member->name);
	if (r == 0) {
		changes = member->drain != drain;
		r = members_drain(&m->members, member, drain, e);
	}
	pthread_mutex_unlock(&m->lock);
	if (r == 0 && changes)
		r = store_drain(m, member, drain, e); /* no member is freed without `writing` */
	pthread_mutex_unlock(&m->writing);
	return r;
}

int membership_remove(struct membership *m, const char *name, bool force,
	uint64_t (*bytes_of)(void *arg, uint64_t id), void *arg, struct err *e)
{
	struct member *member = NULL;
	uint64_t bytes = 0;
	uint64_t id = 0;
	int r;

	pthread_mutex_lock(&m->writing);
	pthread_mutex_lock(&m->lock);
	r = members_find(&m->members, name, &member, e);
	if (r == 0)
		id = member->id;
	pthread_mutex_unlock(&m->lock);
	if (r == 0 && bytes_of)
		bytes = bytes_of(arg, id);
	if (r == 0) {
		pthread_mutex_lock(&m->lock);
		r = members_remove(&m->members, member, bytes, force,
			(int64_t)(clock_wall_ns() / CLOCK_SECOND), e);
		pthread_mutex_unlock(&m->lock);
	}
	/* Its slots go with the next step, which stores both; a crash before it: it was not removed. Or it is stored with
	 * who joins before that: the next start's first step takes its slots then. */
	pthread_mutex_unlock(&m->writing);
	return r;
}
