/* The memory of a daemon, reserved by name. See arena.h. */
#include "base/arena.h"
#include "base/units.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct user {
	uint64_t used;
	uint64_t peak;
	uint64_t least;
	uint64_t most;
	uint64_t refused;
};

static struct {
	pthread_mutex_t lock;
	uint64_t max;
	void (*share_out)(uint64_t max);
	bool enforced; /* since arena_start_done() */
	uint64_t peak; /* of the sum */
	struct user users[ARENA_N_USERS];
} arena = { .lock = PTHREAD_MUTEX_INITIALIZER, .max = UINT64_MAX };

static const char *const names[ARENA_N_USERS] = {
#define ARENA_NAME(user, name, help) [ARENA_##user] = (name),
	ARENA_USERS(ARENA_NAME)
#undef ARENA_NAME
};

void arena_open(uint64_t max, void (*share_out)(uint64_t max))
{
	pthread_mutex_lock(&arena.lock);
	arena.max = max;
	arena.share_out = share_out;
	arena.enforced = false;
	arena.peak = 0;
	for (unsigned int i = 0; i < ARENA_N_USERS; i++)
		arena.users[i] = (struct user){ .most = max };
	pthread_mutex_unlock(&arena.lock);
	if (share_out)
		share_out(max);
}

/* What each has or is guaranteed, whichever is more. */
static uint64_t committed_locked(void)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < ARENA_N_USERS; i++)
		sum += max(arena.users[i].used, arena.users[i].least);
	return sum;
}

static uint64_t used_locked(void)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < ARENA_N_USERS; i++)
		sum += arena.users[i].used;
	return sum;
}

int arena_start_done(const char *option, struct err *e)
{
	pthread_mutex_lock(&arena.lock);
	arena.enforced = true;
	pthread_mutex_unlock(&arena.lock);
	return arena_start_check(option, e);
}

static uint64_t committed(void)
{
	uint64_t bytes;

	pthread_mutex_lock(&arena.lock);
	bytes = committed_locked();
	pthread_mutex_unlock(&arena.lock);
	return bytes;
}

int arena_start_check(const char *option, struct err *e)
{
	uint64_t least = align_up(arena.max, MiB);

	if (committed() <= arena.max)
		return 0;
	/* What is guaranteed grows with the whole. */
	while (committed() > least) {
		least += MiB;
		if (arena.share_out)
			arena.share_out(least);
	}
	if (arena.share_out)
		arena.share_out(arena.max);
	return err_set(e, -ENOMEM, "%s %lluMiB is too small for this host: give at least %lluMiB",
		option, (unsigned long long)(arena.max / MiB), (unsigned long long)(least / MiB));
}

void arena_share(enum arena_user user, uint64_t least, uint64_t most)
{
	pthread_mutex_lock(&arena.lock);
	arena.users[user].least = least;
	arena.users[user].most = most ? most : arena.max;
	pthread_mutex_unlock(&arena.lock);
}

/* What the user could have if it took all that no other user has or is guaranteed. */
static uint64_t room_locked(const struct user *u)
{
	uint64_t others = committed_locked() - max(u->used, u->least);

	return min(u->most, arena.max > others ? arena.max - others : 0);
}

static void take_locked(struct user *u, uint64_t bytes)
{
	u->used += bytes;
	u->peak = max(u->peak, u->used);
	arena.peak = max(arena.peak, used_locked());
}

static bool has_locked(const struct user *u, enum budget_class class, uint64_t bytes)
{
	uint64_t limit = budget_share(max(room_locked(u), u->least), class);

	return !arena.enforced || (bytes <= limit && u->used <= limit - bytes);
}

bool arena_has(enum arena_user user, enum budget_class class, uint64_t bytes)
{
	bool has;

	pthread_mutex_lock(&arena.lock);
	has = has_locked(&arena.users[user], class, bytes);
	pthread_mutex_unlock(&arena.lock);
	return has;
}

bool arena_take(enum arena_user user, enum budget_class class, uint64_t bytes)
{
	struct user *u = &arena.users[user];
	bool taken;

	pthread_mutex_lock(&arena.lock);
	taken = has_locked(u, class, bytes);
	if (taken)
		take_locked(u, bytes);
	else
		u->refused++;
	pthread_mutex_unlock(&arena.lock);
	return taken;
}

bool arena_full(enum arena_user user)
{
	const struct user *u = &arena.users[user];
	bool full;

	pthread_mutex_lock(&arena.lock);
	full = arena.enforced && u->used >= max(room_locked(u), u->least);
	pthread_mutex_unlock(&arena.lock);
	return full;
}

void arena_must(enum arena_user user, uint64_t bytes)
{
	pthread_mutex_lock(&arena.lock);
	take_locked(&arena.users[user], bytes);
	pthread_mutex_unlock(&arena.lock);
}

void arena_give(enum arena_user user, uint64_t bytes)
{
	pthread_mutex_lock(&arena.lock);
	ensure(arena.users[user].used >= bytes);
	arena.users[user].used -= bytes;
	pthread_mutex_unlock(&arena.lock);
}

void *arena_calloc(enum arena_user user, uint64_t n, uint64_t size)
{
	uint64_t bytes;
	void *p;

	if (__builtin_mul_overflow(n, size, &bytes) || !arena_take(user, BUDGET_DEMAND, bytes))
		return NULL;
	p = calloc(1, bytes);
	if (!p)
		arena_give(user, bytes);
	return p;
}

void arena_free(enum arena_user user, void *p, uint64_t bytes)
{
	if (!p)
		return;
	free(p);
	arena_give(user, bytes);
}

void arena_use(enum arena_user user, struct arena_use *ret_use)
{
	const struct user *u = &arena.users[user];

	pthread_mutex_lock(&arena.lock);
	*ret_use =
		(struct arena_use){ names[user], u->used, u->peak, u->least, u->most, u->refused };
	pthread_mutex_unlock(&arena.lock);
}

void arena_total(struct arena_use *ret_use)
{
	*ret_use = (struct arena_use){ .name = "all" };
	pthread_mutex_lock(&arena.lock);
	ret_use->used = used_locked();
	ret_use->peak = arena.peak;
	ret_use->most = arena.max;
	for (unsigned int i = 0; i < ARENA_N_USERS; i++) {
		ret_use->least += arena.users[i].least;
		ret_use->refused += arena.users[i].refused;
	}
	pthread_mutex_unlock(&arena.lock);
}
