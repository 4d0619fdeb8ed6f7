/* Keys of an issuer of service-account tokens. See service_accounts.h. */
#include "master/service_accounts.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "ufs/http_once.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RELOAD_NS  (300 * CLOCK_SECOND) /* keys are read again after so long */
#define PAUSE_NS   (10 * CLOCK_SECOND)  /* between two attempts, whatever tokens come */
#define CONNECT_NS (2 * CLOCK_SECOND)
#define TIMEOUT_NS (5 * CLOCK_SECOND)

struct service_accounts {
	struct service_accounts_config config;
	pthread_mutex_t loading; /* held while keys are read: one thread at a time */
	pthread_rwlock_t lock;   /* of what follows */
	struct jwt_keys *keys;   /* NULL: not known yet */
	uint64_t tried_ns;       /* begin of the last attempt to read them; 0: none */
};

static int read_keys(const struct service_accounts_config *c, struct buf *out, struct err *e)
{
	const struct http_once request = {
		.method = "GET",
		.url = c->keys,
		.name = "the keys of the issuer of service-account tokens",
		.ca_file = c->ca_file,
		.connect_ns = CONNECT_NS,
		.timeout_ns = TIMEOUT_NS,
	};
	int status = 0;
	int r;

	if (c->keys[0] == '/') {
		r = file_read_all(c->keys, out);
		return r < 0 ? err_set(e, r, "%s cannot be read: %s", c->keys, err_str(r)) : 0;
	}
	r = http_once(&request, &status, out, e);
	if (r == 0 && status != 200)
		r = err_set(e, -EIO, "%s answers with HTTP status %d", c->keys, status);
	return r;
}

static int load(struct service_accounts *a, struct err *e)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(JWT_KEYS_BYTES_MAX);
	struct jwt_keys *keys = NULL;
	struct jwt_keys *old;
	int r;

	pthread_rwlock_wrlock(&a->lock);
	a->tried_ns = clock_mono_ns();
	pthread_rwlock_unlock(&a->lock);
	r = read_keys(&a->config, &text, e);
	if (r == 0)
		r = jwt_keys_parse(buf_str(&text), text.len, &keys, e);
	if (r < 0)
		return err_prefix(e, "%s", a->config.keys);
	pthread_rwlock_wrlock(&a->lock);
	old = a->keys;
	a->keys = keys;
	pthread_rwlock_unlock(&a->lock);
	jwt_keys_free(old);
	return 0;
}

/* Reads the keys again if the last attempt was `after_ns` ago. Others go on meanwhile with those that are known. */
static void refresh(struct service_accounts *a, uint64_t after_ns)
{
	struct err e = ERR_INIT;
	uint64_t tried;
	bool known;

	pthread_rwlock_rdlock(&a->lock);
	tried = a->tried_ns;
	known = a->keys != NULL;
	pthread_rwlock_unlock(&a->lock);
	if (tried && clock_mono_ns() - tried < (known ? after_ns : PAUSE_NS))
		return;
	if (pthread_mutex_trylock(&a->loading) != 0)
		return;
	if (load(a, &e) < 0)
		LOG_LIMITED(LOG_WARN, "keys of service accounts not read", "why=\"%s\"", e.text);
	pthread_mutex_unlock(&a->loading);
}

static int verify(struct service_accounts *a, const char *token, size_t len,
	struct jwt_pod *ret_pod, struct err *e)
{
	const struct jwt_rules rules = { .issuer = a->config.issuer,
		.audience = a->config.audience,
		.now_s = clock_wall_ns() / CLOCK_SECOND };
	int r;

	pthread_rwlock_rdlock(&a->lock);
	r = a->keys ? jwt_verify(a->keys, &rules, token, len, ret_pod, e)
		    : err_set(e, -EAGAIN,
			      "the keys of the issuer of service-account tokens are unavailable: "
			      "try again");
	pthread_rwlock_unlock(&a->lock);
	return r;
}

int service_accounts_verify(struct service_accounts *a, const char *token, size_t len,
	struct jwt_pod *ret_pod, struct err *e)
{
	struct err first = ERR_INIT;
	int r;

	refresh(a, RELOAD_NS);
	r = verify(a, token, len, ret_pod, &first);
	if (r == -ENOKEY) {
		refresh(a, PAUSE_NS);
		return verify(a, token, len, ret_pod, e);
	}
	return r < 0 ? err_set(e, r, "%s", first.text) : 0;
}

int service_accounts_new(const struct service_accounts_config *config,
	struct service_accounts **ret_accounts, struct err *e)
{
	struct service_accounts *a = calloc(1, sizeof(*a));
	struct err why = ERR_INIT;
	int r;

	if (!a)
		return err_set(e, -ENOMEM, "out of memory");
	a->config = *config;
	pthread_mutex_init(&a->loading, NULL);
	pthread_rwlock_init(&a->lock, NULL);
	r = load(a, &why);
	if (r < 0 && config->keys[0] == '/') {
		service_accounts_free(a);
		return err_set(e, r, "%s", why.text);
	}
	if (r < 0)
		log_warn("keys of service accounts not read", "why=\"%s\"", why.text);
	*ret_accounts = a;
	return 0;
}

void service_accounts_free(struct service_accounts *a)
{
	if (!a)
		return;
	jwt_keys_free(a->keys);
	pthread_mutex_destroy(&a->loading);
	pthread_rwlock_destroy(&a->lock);
	free(a);
}
