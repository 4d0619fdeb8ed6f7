/* What one token may have of this process. See allowance.h. */
#include "net/allowance.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/rate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ALLOWANCE_MAGIC 0x414c4c4fu
#define BUCKETS         1024u
#define BANDWIDTH_S     2.0 /* bytes of so long at once */

struct allowance {
	uint32_t magic;
	struct list link; /* of its bucket */
	struct list
		unused; /* of those without a reference, the one unused for longest first; else alone */
	uint8_t serial[sizeof(((struct token_claims *)NULL)->serial)];
	uint32_t refs; /* under the lock, as the following */
	struct rate listings;
	struct rate bytes;
	_Atomic uint32_t used[ALLOWANCE_KINDS];
};

static struct {
	pthread_mutex_t lock;
	struct list buckets[BUCKETS]; /* .next NULL: none was ever in it */
	struct list unused;
	uint32_t n;
	_Atomic uint64_t bandwidth;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER, .unused = LIST_INIT(all.unused) };

/* ---- whose ----------------------------------------------------------------------------------- */

/* A random number of the master's. */
static struct list *bucket_locked(const uint8_t *serial)
{
	uint64_t hash = hash_xxh3(serial, sizeof(((struct allowance *)NULL)->serial), 0);
	struct list *bucket = &all.buckets[hash % BUCKETS];

	if (!bucket->next)
		list_init(bucket);
	return bucket;
}

static struct allowance *find_locked(const uint8_t *serial)
{
	struct list *bucket = bucket_locked(serial);

	list_for_each (node, bucket) {
		struct allowance *a = list_entry(node, struct allowance, link);

		if (memcmp(a->serial, serial, sizeof(a->serial)) == 0)
			return a;
	}
	return NULL;
}

static int make_room_locked(void)
{
	struct list *oldest;
	struct allowance *a;

	if (all.n < ALLOWANCES_MAX)
		return 0;
	oldest = list_pop_front(&all.unused);
	if (!oldest)
		return -EMFILE;
	a = list_entry(oldest, struct allowance, unused);
	list_remove(&a->link);
	a->magic = 0;
	free(a);
	all.n--;
	return 0;
}

static int add_locked(const uint8_t *serial, struct allowance **ret_allowance)
{
	int r = make_room_locked();
	struct allowance *a;

	if (r < 0)
		return r;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->magic = ALLOWANCE_MAGIC;
	memcpy(a->serial, serial, sizeof(a->serial));
	a->listings = RATE_INIT(
		1.0 / LIMIT_TOKEN_LISTING_S, (double)LIMIT_TOKEN_LISTINGS * LIMIT_TOKEN_LISTING_S);
	a->bytes = RATE_INIT((double)atomic_load(&all.bandwidth), BANDWIDTH_S);
	list_init(&a->unused);
	list_push_back(bucket_locked(serial), &a->link);
	all.n++;
	*ret_allowance = a;
	return 0;
}

int allowance_get(const struct peer_identity *peer, struct allowance **ret_allowance)
{
	struct allowance *a = NULL;
	int r = 0;

	*ret_allowance = NULL;
	if (peer->kind != PEER_TOKEN)
		return 0;
	pthread_mutex_lock(&all.lock);
	a = find_locked(peer->claims.serial);
	if (!a)
		r = add_locked(peer->claims.serial, &a);
	if (r == 0) {
		a->refs++;
		list_remove(&a->unused);
	}
	pthread_mutex_unlock(&all.lock);
	if (r == 0)
		*ret_allowance = a;
	return r;
}

struct allowance *allowance_ref(struct allowance *a)
{
	if (!a)
		return NULL;
	CHECK_MAGIC(a, ALLOWANCE_MAGIC);
	pthread_mutex_lock(&all.lock);
	ensure(a->refs > 0);
	a->refs++;
	pthread_mutex_unlock(&all.lock);
	return a;
}

/* It stays: a token that comes back has the rates that it had. */
void allowance_unref(struct allowance *a)
{
	if (!a)
		return;
	CHECK_MAGIC(a, ALLOWANCE_MAGIC);
	pthread_mutex_lock(&all.lock);
	ensure(a->refs > 0);
	if (--a->refs == 0)
		list_push_back(&all.unused, &a->unused);
	pthread_mutex_unlock(&all.lock);
}

/* ---- what it has ----------------------------------------------------------------------------- */

bool allowance_take(struct allowance *a, enum allowance_kind kind, uint32_t most)
{
	if (!a)
		return true;
	CHECK_MAGIC(a, ALLOWANCE_MAGIC);
	if (atomic_fetch_add(&a->used[kind], 1) < most)
		return true;
	atomic_fetch_sub(&a->used[kind], 1);
	return false;
}

void allowance_add(struct allowance *a, enum allowance_kind kind)
{
	if (a)
		atomic_fetch_add(&a->used[kind], 1);
}

void allowance_give(struct allowance *a, enum allowance_kind kind)
{
	if (a)
		ensure(atomic_fetch_sub(&a->used[kind], 1) > 0);
}

uint32_t allowance_used(const struct allowance *a, enum allowance_kind kind)
{
	return a ? atomic_load(&a->used[kind]) : 0;
}

/* ---- rates ----------------------------------------------------------------------------------- */

uint64_t allowance_list(struct allowance *a)
{
	uint64_t now = clock_mono_ns();
	double left;

	if (!a)
		return 0;
	CHECK_MAGIC(a, ALLOWANCE_MAGIC);
	pthread_mutex_lock(&all.lock);
	left = rate_left(&a->listings, now);
	if (left >= 1)
		rate_take(&a->listings, 1);
	pthread_mutex_unlock(&all.lock);
	return left >= 1
		       ? 0
		       : (uint64_t)((1 - left) * LIMIT_TOKEN_LISTING_S * (double)CLOCK_SECOND) + 1;
}

void allowance_set_bandwidth(uint64_t bytes_per_s)
{
	atomic_store(&all.bandwidth, bytes_per_s);
}

uint64_t allowance_bytes(struct allowance *a, uint64_t bytes)
{
	uint64_t bandwidth = atomic_load(&all.bandwidth);
	uint64_t now = clock_mono_ns();
	uint64_t wait;

	if (!a || !bandwidth)
		return 0;
	CHECK_MAGIC(a, ALLOWANCE_MAGIC);
	pthread_mutex_lock(&all.lock);
	rate_set(&a->bytes, now, (double)bandwidth);
	wait = rate_wait_ns(&a->bytes, now);
	if (wait == 0)
		rate_take(&a->bytes, (double)bytes);
	pthread_mutex_unlock(&all.lock);
	return wait;
}

int allowance_refuse(uint64_t wait_ns, struct err *e)
{
	return err_set(e, -EAGAIN,
		"the limit of this token is reached: try again in %llu s, or use another token",
		(unsigned long long)(wait_ns / CLOCK_SECOND + 1));
}
