/* The files of keys and tokens. See identity.h and keys_internal.h. */
#include "net/keys_internal.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/daemon.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/thread.h"
#include "proto/frame.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX 16384u
#define WATCH_NS       (2 * CLOCK_SECOND)
#define OLD_KEY_WORD   "granary-key "

/* The version of a file that was read. */
struct mark {
	uint64_t ino;
	uint64_t size;
	struct timespec mtime;
};

static struct {
	pthread_mutex_t lock; /* of `ring` */
	struct keyring *ring;
	/* The certificates of `ring`, for leak checkers, which do not search pages of secrets. */
	struct certificate shown[KEYS_MAX];
	pthread_mutex_t loading; /* of the rest; held while files are read */
	char *cluster_path;      /* or NULL */
	char *token_path;
	bool encrypt_data;
	struct mark cluster_mark;
	struct mark token_mark;
	bool watched;
	uint8_t nonce[KEYS_NONCE_BYTES];
} keys = { .lock = PTHREAD_MUTEX_INITIALIZER, .loading = PTHREAD_MUTEX_INITIALIZER };

static pthread_once_t nonce_once = PTHREAD_ONCE_INIT;

static void make_nonce(void)
{
	hash_random(keys.nonce, sizeof(keys.nonce));
}

const uint8_t *keys_nonce(void)
{
	(void)pthread_once(&nonce_once, make_nonce); /* never fails */
	return keys.nonce;
}

/* ---- the ring -------------------------------------------------------------------------------- */

struct keyring *keyring_get(void)
{
	struct keyring *ring;

	pthread_mutex_lock(&keys.lock);
	ring = keys.ring;
	if (ring)
		ring->refs++;
	pthread_mutex_unlock(&keys.lock);
	return ring;
}

void keyring_unref(struct keyring *ring)
{
	if (!ring || --ring->refs > 0)
		return;
	for (unsigned int i = 0; i < KEYS_MAX; i++)
		certificate_release(&ring->cluster[i].certificate);
	secret_free(ring);
}

void keyring_in_use(const struct keyring *ring, uint32_t *ret_id, const uint8_t **ret_pin)
{
	bool cluster = ring->n_cluster > 0;

	*ret_id = cluster ? ring->cluster[0].id : ring->token.claims.key_id;
	*ret_pin = cluster ? ring->cluster[0].certificate.pin : ring->token.pin;
}

static void explain_token_refusal(
	const char *address, int status, const struct token_claims *claims, struct err *e)
{
	uint64_t now_s = clock_wall_ns() / CLOCK_SECOND;
	char serial[2 * sizeof(claims->serial) + 1];
	char end[CLOCK_TEXT_MAX];
	char now[CLOCK_TEXT_MAX];

	hash_hex(claims->serial, sizeof(claims->serial), serial);
	clock_text(claims->expires_s, end);
	clock_text(now_s, now);
	if (status == -EKEYREVOKED)
		(void)err_set(e, status,
			"cannot trust %s: it does not have the certificate that the token %s "
			"names; check the address, or create another token with `cachectl token "
			"create` if the cluster's key was changed",
			address, serial);
	else if (claims->expires_s <= now_s)
		(void)err_set(e, status,
			"%s refused the token %s: it expired at %s, and this host's clock shows "
			"%s; create another with `cachectl token create`, or set the clock by NTP "
			"if it is wrong",
			address, serial, end, now);
	else
		(void)err_set(e, status,
			"%s refused the token %s: it has expired by the clock there, or its "
			"cluster key is not in use there; it is valid until %s, and this host's "
			"clock shows %s: set both clocks by NTP, or create another with `cachectl "
			"token create`",
			address, serial, end, now);
}

void keys_explain_refusal(const char *address, int status, struct err *e)
{
	_cleanup_(keyring_unref_p) struct keyring *ring = keyring_get();
	uint32_t id = ring && ring->n_cluster > 0 ? ring->cluster[0].id : 0;

	if (status == -EPFNOSUPPORT)
		(void)err_set(e, status,
			"cannot trust %s: it refused version %u of the protocol before it showed "
			"the cluster's certificate; check the address, or upgrade the older of the "
			"two hosts",
			address, FRAME_VERSION);
	else if (ring && ring->n_cluster == 0)
		explain_token_refusal(address, status, &ring->token.claims, e);
	else if (status == -EKEYREVOKED)
		(void)err_set(e, status,
			"cannot trust %s: it does not have the certificate of cluster key %08x; "
			"check the address, or give both hosts the same key file",
			address, id);
	else
		(void)err_set(e, status,
			"%s refused cluster key %08x: the connection leads back to this process; "
			"check the address",
			address, id);
}

bool net_keys_any(void)
{
	_cleanup_(keyring_unref_p) struct keyring *ring = keyring_get();

	return ring;
}

bool net_keys_cluster(void)
{
	_cleanup_(keyring_unref_p) struct keyring *ring = keyring_get();

	return ring && ring->n_cluster > 0;
}

int net_keys_pem(char **ret_certificate, char **ret_key)
{
	_cleanup_(keyring_unref_p) struct keyring *ring = keyring_get();

	if (!ring || ring->n_cluster == 0)
		return -ENOKEY;
	return certificate_pem(&ring->cluster[0].certificate, ret_certificate, ret_key);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A file that only its owner (this user, or root) may read. */
static int read_secret(
	const char *path, const char *what, struct buf *b, struct mark *ret_mark, struct err *e)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	ssize_t n;
	int r;

	if (fd < 0 || fstat(fd, &st) != 0) {
		r = err_errno();
		return err_set(e, r,
			"cannot read the %s %s: %s; give a file that this user can read", what,
			path, err_str(r));
	}
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_BYTES_MAX)
		return err_set(
			e, -EINVAL, "%s is not a file of a %s: give the right one", path, what);
	if (st.st_mode & 077)
		return err_set(
			e, -EACCES, "other users can read the %s %s: chmod 600 it", what, path);
	if (st.st_uid != geteuid() && st.st_uid != 0 && geteuid() != 0)
		return err_set(e, -EACCES,
			"the %s %s belongs to another user: chown it to this user or to root", what,
			path);
	r = buf_reserve(b, (size_t)st.st_size + 1);
	if (r < 0)
		return err_set(e, r, "no memory to read %s", path);
	n = pread(fd, b->data, (size_t)st.st_size, 0);
	if (n < 0)
		return err_set(e, err_errno(),
			"cannot read the %s %s: %s: name a file that can be read", what, path,
			err_str(-errno));
	b->len = (size_t)n;
	b->data[n] = '\0';
	if (strlen(b->data) != b->len)
		return err_set(
			e, -EINVAL, "%s is not a file of a %s: give the right one", path, what);
	*ret_mark = (struct mark){ st.st_ino, (uint64_t)st.st_size, st.st_mtim };
	return 0;
}

static void derive(const uint8_t key[KEY_BYTES], const char *what, uint8_t out[KEY_BYTES])
{
	hash_hmac_sha256(key, KEY_BYTES, what, strlen(what), out);
}

/* One line without its end. -EINVAL, -ENOMEM. */
static int parse_key(const char *line, struct cluster_key *ret_key)
{
	uint8_t key[KEY_BYTES];
	uint8_t seed[KEY_BYTES];
	uint8_t id[4];
	char id_text[9];
	char key_text[2 * KEY_BYTES + 1];
	char rest;
	int r = 0;

	if (sscanf(line, CLUSTER_KEY_WORD " %8[0-9a-fA-F] %64[0-9a-fA-F] %c", id_text, key_text,
		    &rest) != 2 ||
		hash_unhex(id_text, id, sizeof(id)) < 0 ||
		hash_unhex(key_text, key, sizeof(key)) < 0)
		r = -EINVAL;
	if (r == 0) {
		ret_key->id = (uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 |
			      id[3];
		derive(key, "granary 2 proofs of clients", ret_key->proving);
		derive(key, "granary 2 signing of tokens", ret_key->signing);
		derive(key, "granary 2 certificate of servers", seed);
		r = certificate_init(&ret_key->certificate, seed);
	}
	explicit_bzero(seed, sizeof(seed));
	explicit_bzero(key, sizeof(key));
	explicit_bzero(key_text, sizeof(key_text));
	return r;
}

static int parse_keys(const char *path, char *text, struct keyring *ring, struct err *e)
{
	unsigned int n = 0;
	char *save = NULL;

	for (char *line = strtok_r(text, "\r\n", &save); line;
		line = strtok_r(NULL, "\r\n", &save)) {
		int r;

		line += strspn(line, " \t");
		if (*line == '\0' || *line == '#')
			continue;
		if (strncmp(line, OLD_KEY_WORD, strlen(OLD_KEY_WORD)) == 0)
			return err_set(e, -EINVAL,
				"%s contains a key of an earlier version: create a new one with "
				"`cachectl key create --out FILE`, copy it to every master and "
				"worker, then create new tokens",
				path);
		if (n == KEYS_MAX)
			return err_set(e, -EINVAL,
				"%s has more than %u keys: keep the one in use and the one before "
				"or after it",
				path, KEYS_MAX);
		r = parse_key(line, &ring->cluster[n]);
		if (r == -ENOMEM)
			return err_set(e, r, "no memory for keys");
		if (r < 0)
			return err_set(e, r,
				"%s has an invalid line: write `" CLUSTER_KEY_WORD
				" KEYID 64-HEX-DIGITS`, as `cachectl key create` does",
				path);
		if (n == 1 && ring->cluster[0].id == ring->cluster[1].id)
			return err_set(e, -EINVAL,
				"%s has two keys with the same id: create the second one again",
				path);
		n++;
	}
	if (n == 0)
		return err_set(e, -EINVAL,
			"%s contains no key: create one with `cachectl key create --out FILE`",
			path);
	ring->n_cluster = n;
	return 0;
}

static void ring_set(struct keyring *ring)
{
	struct keyring *old;

	pthread_mutex_lock(&keys.lock);
	old = keys.ring;
	keys.ring = ring;
	for (unsigned int i = 0; i < KEYS_MAX; i++)
		keys.shown[i] = ring ? ring->cluster[i].certificate : (struct certificate){ 0 };
	pthread_mutex_unlock(&keys.lock);
	keyring_unref(old);
}

static int read_cluster(
	const char *path, struct keyring *ring, struct mark *ret_mark, struct err *e)
{
	_cleanup_(secret_release_buf) struct buf b = BUF_INIT(FILE_BYTES_MAX + 1);
	int r = read_secret(path, "cluster key", &b, ret_mark, e);

	return r < 0 ? r : parse_keys(path, b.data, ring, e);
}

static int read_token(
	const char *path, struct token *ret_token, struct mark *ret_mark, struct err *e)
{
	_cleanup_(secret_release_buf) struct buf b = BUF_INIT(FILE_BYTES_MAX + 1);
	int r = read_secret(path, "token", &b, ret_mark, e);

	return r < 0 ? r : token_parse(path, b.data, ret_token, e);
}

/* Called with `loading` held. */
static int load_locked(struct err *e)
{
	_cleanup_(keyring_unref_p) struct keyring *ring = secret_new(sizeof(*ring));
	struct mark cluster_mark = { 0 };
	struct mark token_mark = { 0 };
	int r = 0;

	if (!ring)
		return err_set(e, -ENOMEM, "no memory for keys");
	ring->refs = 1;
	ring->encrypt_data = keys.encrypt_data;
	if (keys.cluster_path)
		r = read_cluster(keys.cluster_path, ring, &cluster_mark, e);
	if (r == 0 && keys.token_path) {
		r = read_token(keys.token_path, &ring->token, &token_mark, e);
		ring->has_token = r == 0;
	}
	if (r < 0)
		return r;
	keys.cluster_mark = cluster_mark;
	keys.token_mark = token_mark;
	ring_set(ring->n_cluster || ring->has_token ? TAKE(ring) : NULL);
	return 0;
}

int net_keys_check(const struct net_keys_config *config, bool *ret_token, struct err *e)
{
	_cleanup_(keyring_unref_p) struct keyring *ring = secret_new(sizeof(*ring));
	struct mark mark;
	int r = 0;

	*ret_token = false;
	if (!ring)
		return err_set(e, -ENOMEM, "no memory for keys");
	ring->refs = 1;
	if (config->cluster_key)
		r = read_cluster(config->cluster_key, ring, &mark, e);
	if (r < 0 || !config->token)
		return r;
	*ret_token = true;
	return read_token(config->token, &ring->token, &mark, e);
}

int keys_read(const char *path, struct key_shown ret_keys[KEYS_MAX], struct err *e)
{
	_cleanup_(keyring_unref_p) struct keyring *ring = secret_new(sizeof(*ring));
	struct mark mark;
	int r;

	if (!ring)
		return err_set(e, -ENOMEM, "no memory for keys");
	ring->refs = 1;
	r = read_cluster(path, ring, &mark, e);
	if (r < 0)
		return r;
	for (unsigned int i = 0; i < ring->n_cluster; i++) {
		ret_keys[i].id = ring->cluster[i].id;
		memcpy(ret_keys[i].pin, ring->cluster[i].certificate.pin, PIN_BYTES);
	}
	return (int)ring->n_cluster;
}

int token_read(const char *path, struct token_claims *ret_claims, uint8_t ret_pin[PIN_BYTES],
	struct err *e)
{
	struct token token = { 0 };
	struct mark mark;
	int r = read_token(path, &token, &mark, e);

	if (r == 0)
		*ret_claims = token.claims;
	if (r == 0)
		memcpy(ret_pin, token.pin, PIN_BYTES);
	explicit_bzero(token.key, sizeof(token.key));
	return r;
}

static void say_read(int r, const struct err *e)
{
	if (r < 0)
		log_warn("keys not read", "why=\"%s\" next=\"the previous keys stay in use\"",
			e->text);
	else
		log_info("keys read", "next=\"new connections use them\"");
}

int net_keys_reload(struct err *e)
{
	int r;

	pthread_mutex_lock(&keys.loading);
	r = load_locked(e);
	pthread_mutex_unlock(&keys.loading);
	return r;
}

/* ---- watching -------------------------------------------------------------------------------- */

static bool changed(const char *path, struct mark *mark)
{
	struct stat st;
	struct mark now;

	if (!path || stat(path, &st) != 0)
		return false; /* it may be about to come */
	now = (struct mark){ st.st_ino, (uint64_t)st.st_size, st.st_mtim };
	if (now.ino == mark->ino && now.size == mark->size &&
		now.mtime.tv_sec == mark->mtime.tv_sec && now.mtime.tv_nsec == mark->mtime.tv_nsec)
		return false;
	*mark = now; /* tried once, whatever comes of it */
	return true;
}

/* The writer of the files does not wait. */
static void on_hangup(void)
{
	struct err e = ERR_INIT;
	int r = net_keys_reload(&e);

	say_read(r, &e);
}

/* A token is renewed, and a key changed, by writing the file: no signal is needed. */
static void *watch(void *arg)
{
	pthread_setname_np(pthread_self(), "keys");
	for (;;) {
		struct err e = ERR_INIT;
		bool again;
		int r = 0;

		clock_sleep_ns(WATCH_NS);
		pthread_mutex_lock(&keys.loading);
		again = changed(keys.cluster_path, &keys.cluster_mark);
		again = changed(keys.token_path, &keys.token_mark) || again;
		if (again)
			r = load_locked(&e);
		pthread_mutex_unlock(&keys.loading);
		if (again)
			say_read(r, &e);
	}
	return arg;
}

static int start_watch(struct err *e)
{
	int r;

	if (keys.watched || (!keys.cluster_path && !keys.token_path))
		return 0;
	r = thread_start_detached(watch, NULL);
	if (r < 0)
		return err_set(
			e, r, "cannot start a thread: %s: raise the limit of threads", err_str(r));
	daemon_on_hangup(on_hangup);
	keys.watched = true;
	return 0;
}

static int set_path(char **at, const char *path, struct err *e)
{
	free(*at);
	*at = path && path[0] ? strdup(path) : NULL;
	return path && path[0] && !*at ? err_set(e, -ENOMEM, "no memory for keys") : 0;
}

int net_keys_load(const struct net_keys_config *config, struct err *e)
{
	int r;

	pthread_mutex_lock(&keys.loading);
	keys.encrypt_data = config->encrypt_data;
	r = set_path(&keys.cluster_path, config->cluster_key, e);
	if (r == 0)
		r = set_path(&keys.token_path, config->token, e);
	if (r == 0)
		r = load_locked(e);
	if (r == 0)
		r = start_watch(e);
	pthread_mutex_unlock(&keys.loading);
	return r;
}
