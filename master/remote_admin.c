/* The admin interface over the cluster's wire. See remote_admin.h. */
#include "master/remote_admin.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/pool.h"
#include "master/dataset.h"
#include "proto/granary.pb-c.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define REMOTE_MAGIC 0x52414d4eu
#define THREADS      4u
#define QUEUE        256u
#define PART_BYTES   (LIMIT_FRAME_BYTES - 4096u) /* of an answer's body in a frame */
#define KEPT_MAX     8u
#define KEPT_NS      (30 * CLOCK_SECOND)
#define DATASETS     "/v1/datasets/"
#define BUSY_TEXT    "the master accepts no request now: try again"

/* The rest of an answer. */
struct kept {
	struct list link;
	const struct rpc_conn *conn; /* to compare with */
	uint64_t number;
	uint64_t until_ns;
	unsigned int status;
	char *text;
	size_t len;
};

struct remote_admin {
	uint32_t magic;
	struct admin_server *server;
	struct dataset_set *datasets;
	struct pool *pool;
	pthread_mutex_t lock;
	struct list kept; /* under the lock, the oldest first */
	uint32_t n_kept;
	uint64_t last_number;
};

struct job {
	struct pool_job pool;
	struct remote_admin *remote;
	struct rpc_request *request;
};

struct remote_admin *remote_admin_new(struct admin_server *server, struct dataset_set *datasets)
{
	struct remote_admin *remote = calloc(1, sizeof(*remote));

	if (!remote)
		return NULL;
	remote->magic = REMOTE_MAGIC;
	remote->server = server;
	remote->datasets = datasets;
	pthread_mutex_init(&remote->lock, NULL);
	list_init(&remote->kept);
	remote->pool = pool_new("master-admin", THREADS, QUEUE);
	if (remote->pool)
		return remote;
	remote_admin_free(remote);
	return NULL;
}

/* ---- rests ----------------------------------------------------------------------------------- */

static void kept_free(struct kept *kept)
{
	arena_give(ARENA_REPLIES, kept->len);
	free(kept->text);
	free(kept);
}

static void drop_locked(struct remote_admin *remote, struct kept *kept)
{
	list_remove(&kept->link);
	remote->n_kept--;
	kept_free(kept);
}

static void drop_old_locked(struct remote_admin *remote)
{
	uint64_t now = clock_mono_ns();

	list_for_each_safe (node, &remote->kept) {
		struct kept *kept = list_entry(node, struct kept, link);

		if (remote->n_kept >= KEPT_MAX || kept->until_ns <= now)
			drop_locked(remote, kept);
	}
}

void remote_admin_closed(struct remote_admin *remote, const struct rpc_conn *conn)
{
	CHECK_MAGIC(remote, REMOTE_MAGIC);
	pthread_mutex_lock(&remote->lock);
	list_for_each_safe (node, &remote->kept) {
		struct kept *kept = list_entry(node, struct kept, link);

		if (kept->conn == conn)
			drop_locked(remote, kept);
	}
	pthread_mutex_unlock(&remote->lock);
}

/* Takes `text` over; its number, 0: there is no memory for it, or no peer to fetch it. */
static uint64_t keep(struct remote_admin *remote, const struct rpc_request *request,
	unsigned int status, char *text, size_t len)
{
	struct kept *kept = NULL;
	uint64_t number = 0;
	bool wanted;

	pthread_mutex_lock(&remote->lock);
	/* Its connection may be closed by now, and is then not closed again: another at the same place in memory
	 * could ask for what is not its own. */
	wanted = !atomic_load(&request->cancelled);
	if (wanted)
		drop_old_locked(remote);
	if (wanted && arena_take(ARENA_REPLIES, BUDGET_DEMAND, len)) {
		kept = calloc(1, sizeof(*kept));
		if (!kept)
			arena_give(ARENA_REPLIES, len);
	}
	if (kept) {
		*kept = (struct kept){ .conn = request->conn,
			.number = ++remote->last_number,
			.until_ns = clock_mono_ns() + KEPT_NS,
			.status = status,
			.text = text,
			.len = len };
		list_push_back(&remote->kept, &kept->link);
		remote->n_kept++;
		number = kept->number;
	}
	pthread_mutex_unlock(&remote->lock);
	if (!kept)
		free(text);
	return number;
}

void remote_admin_free(struct remote_admin *remote)
{
	if (!remote)
		return;
	CHECK_MAGIC(remote, REMOTE_MAGIC);
	pool_free(remote->pool);
	list_for_each_safe (node, &remote->kept)
		drop_locked(remote, list_entry(node, struct kept, link));
	pthread_mutex_destroy(&remote->lock);
	remote->magic = 0;
	free(remote);
}

/* ---- replies --------------------------------------------------------------------------------- */

static void refuse(struct rpc_request *request, int code, const char *text)
{
	struct err e = ERR_INIT;

	rpc_reply_err(request, err_set(&e, code, "%s", text), &e);
}

/* `part` of what is `len` bytes in all, from `offset` on. */
static void reply_part(struct rpc_request *request, unsigned int status, const char *part,
	size_t part_len, const struct frame *head)
{
	Granary__AdminAnswer m = GRANARY__ADMIN_ANSWER__INIT;
	struct net_payload payload = NET_PAYLOAD_NONE;
	uint8_t *packed;

	m.has_status = m.has_body = 1;
	m.status = status;
	m.body.data = (uint8_t *)(uintptr_t)part; /* only read */
	m.body.len = part_len;
	packed = malloc(granary__admin_answer__get_packed_size(&m));
	if (!packed) {
		refuse(request, -ENOMEM, "out of memory");
		return;
	}
	payload.parts[0].data = packed;
	payload.parts[0].len = granary__admin_answer__pack(&m, packed);
	payload.n = 1;
	payload.release = free;
	payload.arg = packed;
	rpc_reply(request, 0, head, payload);
}

/* Takes `text` over. */
static void reply_first(struct remote_admin *remote, struct rpc_request *request,
	unsigned int status, char *text, size_t len)
{
	struct frame head = { .extent = len };
	size_t part_len = min(len, (size_t)PART_BYTES);
	_cleanup_free_ char *part = malloc(part_len + 1);

	if (part)
		memcpy(part, text, part_len);
	if (part && part_len < len)
		head.generation = keep(remote, request, status, TAKE(text), len);
	free(text);
	if (part && (part_len == len || head.generation))
		reply_part(request, status, part, part_len, &head);
	else
		refuse(request, -ENOMEM,
			"the master has no memory for so long an answer: try again later");
}

static struct kept *find_locked(struct remote_admin *remote, const struct rpc_request *request)
{
	list_for_each (node, &remote->kept) {
		struct kept *kept = list_entry(node, struct kept, link);

		if (kept->number == request->frame.generation && kept->conn == request->conn &&
			request->frame.offset < kept->len)
			return kept;
	}
	return NULL;
}

static void reply_next(struct remote_admin *remote, struct rpc_request *request)
{
	struct frame head = { .offset = request->frame.offset };
	_cleanup_free_ char *part = malloc(PART_BYTES);
	unsigned int status = 0;
	size_t part_len = 0;
	struct kept *kept;

	pthread_mutex_lock(&remote->lock);
	kept = part ? find_locked(remote, request) : NULL;
	if (kept) {
		part_len = min(kept->len - head.offset, (size_t)PART_BYTES);
		memcpy(part, kept->text + head.offset, part_len);
		status = kept->status;
		head.extent = kept->len;
		head.generation = kept->number;
		kept->until_ns = clock_mono_ns() + KEPT_NS;
		if (head.offset + part_len == kept->len)
			drop_locked(remote, kept);
	}
	pthread_mutex_unlock(&remote->lock);
	if (part_len)
		reply_part(request, status, part, part_len, &head);
	else
		refuse(request, part ? -ESTALE : -ENOMEM,
			part ? "the rest of that answer was dropped: try again" : "out of memory");
}

/* ---- who asks -------------------------------------------------------------------------------- */

/* Is it the question for what the token is about? Others are not looked for: neither their names nor how
 * long it takes not to find them is for this caller. */
static bool is_own_dataset(
	struct remote_admin *remote, const struct peer_identity *peer, const char *name, size_t len)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	char uuid[DATASET_UUID_TEXT];

	hash_hex(peer->claims.dataset, sizeof(peer->claims.dataset), uuid);
	return dataset_set_find_uuid(remote->datasets, uuid, &d, NULL) == 0 &&
	       strlen(d.name) == len && memcmp(d.name, name, len) == 0;
}

/* May it ask that? */
static int check_token(struct remote_admin *remote, const struct peer_identity *peer,
	const struct Granary__AdminAsk *m, struct err *e)
{
	bool dataset = strncmp(m->path, DATASETS, strlen(DATASETS)) == 0;
	const char *name = m->path + (dataset ? strlen(DATASETS) : 0);
	size_t len = strcspn(name, "/?");
	enum principal principal = principal_of(peer);

	if (rights_of(principal, RIGHTS_MASTER, FRAME_ADMIN) == RIGHT_NONE)
		return peer_sees_nothing(e);
	if (rights_of(principal, RIGHTS_ADMIN, RIGHTS_OP_SHOW) == RIGHT_ALL)
		return 0;
	/* Generations and what differs between them are counted over the whole source. */
	if (strcmp(m->method, "GET") != 0 || !dataset || (peer_has_part(peer) && name[len] == '/'))
		return err_set(e, -EPERM,
			"this token is for mounts of one dataset: use an administrator's (cachectl "
			"token create --admin)");
	return is_own_dataset(remote, peer, name, len)
		       ? 0
		       : err_set(e, -ENOENT, "no dataset '%.*s': see `cachectl dataset list`",
				 (int)min(len, (size_t)80), name);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void answer(
	struct remote_admin *remote, struct rpc_request *request, const struct Granary__AdminAsk *m)
{
	struct buf out = BUF_INIT(ADMIN_ANSWER_BYTES);
	const struct peer_identity *peer = rpc_conn_peer(request->conn);
	struct admin_ask ask = { .method = m->method,
		.path = m->path,
		.body = m->body.len ? m->body.data : NULL,
		.len = m->body.len,
		.caller = { .peer = *peer, .gid = (gid_t)-1 } };
	unsigned int status = 0;
	struct err e = ERR_INIT;
	int r = check_token(remote, peer, m, &e);

	if (r < 0) {
		rpc_reply_err(request, r, &e);
		return;
	}
	r = admin_server_ask(remote->server, &ask, &status, &out);
	if (r < 0) {
		buf_release(&out);
		refuse(request, r, "the master has no memory for the answer: try again later");
		return;
	}
	reply_first(remote, request, status, out.data, out.len);
}

static void run(struct pool_job *pool)
{
	struct job *job = container_of(pool, struct job, pool);
	struct rpc_request *request = job->request;
	Granary__AdminAsk *m = NULL;

	if (request->frame.generation != 0) {
		reply_next(job->remote, request);
	} else {
		m = granary__admin_ask__unpack(NULL, request->frame.payload, request->payload);
		if (!m || !m->method || !m->path || m->path[0] != '/')
			refuse(request, -EBADMSG,
				"the request cannot be decoded; use the same version on both "
				"sides");
		else
			answer(job->remote, request, m);
		if (m)
			granary__admin_ask__free_unpacked(m, NULL);
	}
	free(job);
}

void remote_admin_answer(struct remote_admin *remote, struct rpc_request *request)
{
	struct job *job;
	int r = -ENOMEM;

	if (!remote) {
		refuse(request, -EOPNOTSUPP,
			"this master has no admin interface: start it with --admin SOCKET");
		return;
	}
	CHECK_MAGIC(remote, REMOTE_MAGIC);
	job = calloc(1, sizeof(*job));
	if (job) {
		*job = (struct job){ { .run = run }, remote, request };
		r = pool_submit(remote->pool, &job->pool);
	}
	if (r == 0)
		return;
	free(job);
	refuse(request, r, BUSY_TEXT);
}
