/*
 * What the keeper was about to do to a mount point when it was killed. It is written down before
 * each act; the next keeper looks what the kernel shows, ends what was begun, and gives the answer
 * that the daemon waits for.
 */
#include "base/crash_point.h"
#include "base/log.h"
#include "fuse/mounter_internal.h"

#include <poll.h>
#include <string.h>

int mounter_begin(struct mounter_job *job, const struct mounter_intent *intent)
{
	struct mounter_host *host = job->peer->host;
	int r;

	pthread_mutex_lock(&host->lock);
	r = job->peer->ended ? -ECONNRESET : 0;
	if (r == 0) {
		job->peer->intent = *intent;
		job->peer->intent.op = job->request.op;
		job->peer->intent.serial = job->request.serial;
	}
	pthread_mutex_unlock(&host->lock);
	if (r < 0) /* nobody would serve what it puts in another's place */
		return err_set(&job->err, r, "the daemon that requested it has ended");
	r = mounter_save(host);
	if (r < 0) {
		mounter_begun_not(job->peer);
		return err_set(&job->err, r,
			"the state of the mounts cannot be stored: %s: free some space in the "
			"keeper's runtime directory",
			err_str(r));
	}
	CRASH_POINT("keeper.intent");
	return 0;
}

void mounter_begun_not(struct mounter_peer *peer)
{
	pthread_mutex_lock(&peer->host->lock);
	peer->intent = (struct mounter_intent){ 0 };
	pthread_mutex_unlock(&peer->host->lock);
}

int mounter_save(struct mounter_host *host)
{
	return host->save ? host->save(host->save_arg) : 0;
}

/* ---- for a later keeper ---------------------------------------------------------------------- */

json_t *mounter_intent_json(const struct mounter_intent *intent)
{
	return json_pack("{s:i, s:I, s:i, s:I, s:I}", "op", (int)intent->op, "serial",
		(json_int_t)intent->serial, "server", (int)intent->server, "from",
		(json_int_t)intent->from, "to", (json_int_t)intent->to);
}

void mounter_intent_load(struct mounter_intent *ret, const json_t *saved)
{
	*ret = (struct mounter_intent){
		.op = (uint32_t)json_integer_value(json_object_get(saved, "op")),
		.serial = (uint32_t)json_integer_value(json_object_get(saved, "serial")),
		.server = (unsigned int)json_integer_value(json_object_get(saved, "server")),
		.from = (dev_t)json_integer_value(json_object_get(saved, "from")),
		.to = (dev_t)json_integer_value(json_object_get(saved, "to")),
	};
}

/* ---- the later keeper ------------------------------------------------------------------------ */

static int end_intent(struct mounter_job *job)
{
	switch (job->peer->intent.op) {
	case MOUNTER_ATTACH:
	case MOUNTER_SHARE:
		return mounter_renew_attach(job);
	case MOUNTER_SWITCH:
		return mounter_renew_switch(job);
	default:
		return -ENOENT;
	}
}

/* Whoever waits for an answer would wait for a keeper that is no more; a request that none took is
 * served as any other. */
static void tell(const struct mounter_peer *peer, uint32_t serial, int code)
{
	const struct mounter_answer renewed = {
		.magic = MOUNTER_MAGIC, .serial = serial, .code = code
	};
	struct pollfd p = { .fd = peer->config.socket, .events = POLLIN };

	if (p.fd < 0 || poll(&p, 1, 0) != 0)
		return;
	if (mounter_send(p.fd, &renewed, sizeof(renewed), NULL, 0) < 0)
		log_debug("no reader of the reply", "mount=%u", peer->config.id);
}

static void renew(struct mounter_peer *peer)
{
	const struct mounter_intent intent = peer->intent;
	struct mounter_job job = { .peer = peer,
		.request = { .op = intent.op,
			.serial = intent.serial,
			.fuse_dev = intent.from,
			.point_dev = intent.to },
		.fd = -1 };
	int r = -ENOENT;

	if (intent.op) {
		(void)snprintf(job.request.path, sizeof(job.request.path), "%s",
			peer->config.mountpoint); /* it came in such a request */
		r = end_intent(&job);
		log_info("started by an earlier keeper",
			"mountpoint=\"%s\" op=%u result=%s why=\"%s\"", peer->config.mountpoint,
			intent.op, r < 0 ? err_name(r) : "done", job.err.text);
		mounter_begun_not(peer);
	}
	if (r == 0)
		tell(peer, intent.serial, 0);
	else
		tell(peer, 0, -ECONNRESET);
}

void mounter_host_renew(struct mounter_host *host)
{
	CHECK_MAGIC(host, MOUNTER_HOST_MAGIC);
	list_for_each (node, &host->peers) /* nobody else is there yet */
		renew(list_entry(node, struct mounter_peer, link));
}
