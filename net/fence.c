/* Who is listened to. See fence.h. */
#include "net/fence.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME  "cluster"
#define FIRST_WORD "granary cluster "
#define FORMAT     1u
#define FILE_MAX   256u
#define HEX        (2 * HELLO_CLUSTER_BYTES)

void fence_init(struct fence *fence)
{
	*fence = (struct fence){ 0 };
	pthread_mutex_init(&fence->lock, NULL);
}

void fence_release(struct fence *fence)
{
	pthread_mutex_destroy(&fence->lock);
}

/* ---- the file -------------------------------------------------------------------------------- */

static int parse(const char *text, struct hello_master *ret_met)
{
	struct hello_master met;
	char hex[HEX + 1];
	unsigned long format;
	char *end;

	if (strncmp(text, FIRST_WORD, strlen(FIRST_WORD)) != 0)
		return -EBADMSG;
	format = strtoul(text + strlen(FIRST_WORD), &end, 10);
	if (*end != '\n' || format == 0)
		return -EBADMSG;
	if (format != FORMAT)
		return -EPROTONOSUPPORT;
	text = end + 1;
	if (strnlen(text, HEX + 1) != HEX + 1 || text[HEX] != ' ')
		return -EBADMSG;
	memcpy(hex, text, HEX);
	hex[HEX] = '\0';
	errno = 0;
	met.epoch = strtoull(text + HEX + 1, &end, 10);
	if (errno || end == text + HEX + 1 || strcmp(end, "\n") != 0 || met.epoch == 0 ||
		hash_unhex(hex, met.cluster, HELLO_CLUSTER_BYTES) < 0)
		return -EBADMSG;
	*ret_met = met;
	return 0;
}

/* -ENOENT: nothing. */
static int read_file(const char *dir, char path[PATH_MAX], struct hello_master *ret_met)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(FILE_MAX);
	int r;

	if (snprintf(path, PATH_MAX, "%s/" FILE_NAME, dir) >= PATH_MAX)
		return -ENAMETOOLONG;
	r = file_read_all(path, &text);
	if (r == -ENOBUFS)
		return -EBADMSG;
	return r < 0 ? r : parse(buf_str(&text), ret_met);
}

int fence_load(struct fence *fence, const char *dir, struct err *e)
{
	struct hello_master met;
	char path[PATH_MAX];
	int r = read_file(dir, path, &met);

	if (r == -ENOENT)
		return 0;
	if (r == -EPROTONOSUPPORT)
		return err_set(e, r,
			"%s was written by a newer version: use that version, or remove the file",
			path);
	if (r == -ENOMEM || r == -EMFILE || r == -ENFILE) /* no reason to trust anybody */
		return err_set(e, r, "%s cannot be read: %s", path, err_str(r));
	if (r < 0) {
		log_warn("history of masters unknown",
			"file=\"%s\" cause=%s next=\"a replaced master is not noticed\"", path,
			err_name(r));
		return 0;
	}
	pthread_mutex_lock(&fence->lock);
	fence->met = met;
	fence->stored = true;
	pthread_mutex_unlock(&fence->lock);
	return 0;
}

int fence_save(struct fence *fence, const char *dir)
{
	struct hello_master there;
	struct hello_master met;
	char hex[HEX + 1];
	char path[PATH_MAX];
	char text[FILE_MAX];
	bool stored;
	int r;

	pthread_mutex_lock(&fence->lock);
	met = fence->met;
	stored = fence->stored;
	pthread_mutex_unlock(&fence->lock);
	if (stored || met.epoch == 0)
		return 0;
	r = read_file(dir, path, &there);
	if (r == -ENAMETOOLONG || r == -EPROTONOSUPPORT)
		return r;
	if (r < 0 || there.epoch < met.epoch) {
		hash_hex(met.cluster, HELLO_CLUSTER_BYTES, hex);
		(void)snprintf(text, sizeof(text), FIRST_WORD "%u\n%s %" PRIu64 "\n", FORMAT, hex,
			met.epoch); /* fits */
		r = file_write_atomic(path, text, strlen(text), 0600);
		if (r < 0)
			return r;
	}
	pthread_mutex_lock(&fence->lock);
	fence->stored = fence->met.epoch == met.epoch;
	pthread_mutex_unlock(&fence->lock);
	return 0;
}

/* ---- masters --------------------------------------------------------------------------------- */

static int refuse_other(const struct hello_master *met, const struct hello_master *master,
	const char *address, struct err *e)
{
	char theirs[HEX + 1];
	char ours[HEX + 1];

	hash_hex(master->cluster, HELLO_CLUSTER_BYTES, theirs);
	hash_hex(met->cluster, HELLO_CLUSTER_BYTES, ours);
	return err_set(e, -ECONNREFUSED,
		"the master at %s is of cluster %s, and this node belongs to cluster %s: start "
		"that cluster's master there, or, if its state is lost for good, a new one with "
		"--cluster %s",
		address, theirs, ours, ours);
}

static int check_locked(const struct fence *fence, const struct hello_master *master,
	const char *address, struct err *e)
{
	const struct hello_master *met = &fence->met;
	bool same = memcmp(met->cluster, master->cluster, HELLO_CLUSTER_BYTES) == 0;

	if (met->epoch == 0)
		return 0;
	if (master->epoch == 0)
		return err_set(e, -ECONNREFUSED,
			"the master at %s is of an older version, which has no cluster name: "
			"upgrade it",
			address);
	if (!same)
		return refuse_other(met, master, address, e);
	if (master->epoch < met->epoch)
		return err_set(e, -ECONNREFUSED,
			"the master at %s has epoch %" PRIu64 ", and epoch %" PRIu64
			" was seen since: the master was replaced: stop it, or restore its state "
			"from a backup",
			address, master->epoch, met->epoch);
	return 0;
}

static void note_refused(const struct err *e)
{
	LOG_LIMITED(LOG_WARN, "master refused",
		"text=\"%s\" next=\"tried again; cached data is served\"", e->text);
}

int fence_check(
	struct fence *fence, const struct hello_master *master, const char *address, struct err *e)
{
	struct err why = ERR_INIT;
	int r;

	pthread_mutex_lock(&fence->lock);
	r = check_locked(fence, master, address, &why);
	if (r == 0 && master->epoch) {
		fence->stored = fence->stored && fence->met.epoch == master->epoch;
		fence->met = *master;
	}
	fence->refusal = why;
	pthread_mutex_unlock(&fence->lock);
	if (r == 0)
		return 0;
	note_refused(&why);
	return err_set(e, r, "%s", why.text);
}

struct hello_master fence_met(struct fence *fence)
{
	struct hello_master met;

	pthread_mutex_lock(&fence->lock);
	met = fence->met;
	pthread_mutex_unlock(&fence->lock);
	return met;
}

void fence_refusal(struct fence *fence, struct err *ret_refusal)
{
	pthread_mutex_lock(&fence->lock);
	*ret_refusal = fence->refusal;
	pthread_mutex_unlock(&fence->lock);
}
