/* Addresses of hosts that are given by name. See names.h. */
#include "net/names.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/thread.h"

#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESSES_MAX 8u /* of one name */
#define FRESH_NS      CLOCK_SECOND

struct name {
	struct list link; /* names.all, the most recently used first */
	char host[LIMIT_HOST_BYTES + 1];
	union host_address addresses[ADDRESSES_MAX];
	unsigned int n; /* 0: not found, or not looked up yet */
	unsigned int next;
	int failure;       /* of getaddrinfo(), the last time; 0: none */
	uint64_t ended_ns; /* the last lookup; 0: none has ended */
	bool wanted;       /* a lookup is due, or in progress: it is not freed */
};

static struct {
	pthread_mutex_t lock; /* of all below; a leaf */
	struct list all;
	unsigned int n;
	bool running; /* the thread */
} names = { .lock = PTHREAD_MUTEX_INITIALIZER, .all = LIST_INIT(names.all) };

/* ---- the thread ------------------------------------------------------------------------------ */

static struct name *next_wanted_locked(void)
{
	list_for_each (node, &names.all) {
		struct name *name = list_entry(node, struct name, link);

		if (name->wanted)
			return name;
	}
	return NULL;
}

static unsigned int take(const struct addrinfo *found, union host_address out[ADDRESSES_MAX])
{
	unsigned int n = 0;

	for (; found && n < ADDRESSES_MAX; found = found->ai_next)
		if (found->ai_addrlen <= sizeof(out[0]))
			memcpy(&out[n++], found->ai_addr, found->ai_addrlen);
	return n;
}

/* What was found before stays in use when a lookup fails. */
static void look_up(struct name *name)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	union host_address addresses[ADDRESSES_MAX] = { 0 };
	struct addrinfo *found = NULL;
	int failure = getaddrinfo(name->host, NULL, &hints, &found); /* `host` never changes */
	unsigned int n = failure ? 0 : take(found, addresses);

	if (found)
		freeaddrinfo(found);
	pthread_mutex_lock(&names.lock);
	name->failure = failure;
	if (n > 0) {
		memcpy(name->addresses, addresses, sizeof(addresses));
		name->n = n;
	}
	name->ended_ns = clock_mono_ns();
	name->wanted = false;
	pthread_mutex_unlock(&names.lock);
}

static void *look_up_all(void *arg)
{
	struct name *name;

	for (;;) {
		pthread_mutex_lock(&names.lock);
		name = next_wanted_locked();
		if (!name)
			names.running = false;
		pthread_mutex_unlock(&names.lock);
		if (!name)
			return arg;
		look_up(name);
	}
}

/* ---- its users ------------------------------------------------------------------------------- */

static struct name *find_locked(const char *host)
{
	list_for_each (node, &names.all) {
		struct name *name = list_entry(node, struct name, link);

		if (strcmp(name->host, host) == 0)
			return name;
	}
	return NULL;
}

/* Makes room by the one that was not used for the longest time. */
static struct name *add_locked(const char *host)
{
	struct name *name =
		names.n < LIMIT_HOST_NAMES ? NULL : list_entry(names.all.prev, struct name, link);
	size_t len = strlen(host);

	if (len > LIMIT_HOST_BYTES || (name && name->wanted))
		return NULL;
	if (name)
		list_remove(&name->link);
	else if ((name = malloc(sizeof(*name))) != NULL)
		names.n++;
	if (!name)
		return NULL;
	*name = (struct name){ 0 };
	memcpy(name->host, host, len + 1);
	list_push_front(&names.all, &name->link);
	return name;
}

static struct name *want_locked(const char *host)
{
	struct name *name = find_locked(host);

	if (!name)
		name = add_locked(host);
	if (!name)
		return NULL;
	list_remove(&name->link);
	list_push_front(&names.all, &name->link);
	if (!name->ended_ns || clock_mono_ns() - name->ended_ns >= FRESH_NS)
		name->wanted = true;
	if (name->wanted && !names.running)
		names.running = thread_start_detached(look_up_all, NULL) == 0;
	return name;
}

void names_want(const char *host)
{
	pthread_mutex_lock(&names.lock);
	(void)want_locked(host); /* names_get() has the error */
	pthread_mutex_unlock(&names.lock);
}

static int explain(const struct name *name, const char *host, struct err *e)
{
	if (!name)
		return err_set(e, -ENOSPC,
			"host name '%s' not looked up: too many names, or out of memory", host);
	if (name->failure)
		return err_set(e, -EHOSTUNREACH,
			"host name '%s' not found: %s; check the name and the DNS servers of this "
			"host",
			host, gai_strerror(name->failure));
	return err_set(e, -EHOSTUNREACH, "host name '%s' is being looked up", host);
}

int names_get(const char *host, union host_address *ret_address, struct err *e)
{
	struct name *name;
	int r = 0;

	pthread_mutex_lock(&names.lock);
	name = want_locked(host);
	if (name && name->n > 0)
		*ret_address = name->addresses[name->next++ % name->n];
	else
		r = explain(name, host, e);
	pthread_mutex_unlock(&names.lock);
	return r;
}
