/* What a mount asks its node's worker about extents. See client_seal.h. */
#include "client/client_seal.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "client/client_internal.h"
#include "locate/extent_format.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What is asked, and the answer. */
struct asking {
	struct client_volume *volume;
	struct view_peer *worker;
	uint64_t generation;
	uint64_t extent_bytes;
	uint64_t first;
	uint32_t n;
	struct seal_ask ask;
	struct seal_status states[SEAL_PAGE];
	uint64_t epoch;
	int fd; /* -1: none came */
};

static void asking_free(struct asking *a)
{
	if (a && a->fd >= 0)
		(void)close(a->fd); /* nothing was written */
	free(a);
}

static void asking_free_p(struct asking **a)
{
	asking_free(*a);
}

/* NULL, with its line: no worker on this node, or no memory. */
static struct asking *asking_new(struct client_volume *volume, uint64_t generation,
	uint64_t extent_bytes, int *ret_r, struct err *e)
{
	struct view_peer *worker;
	struct asking *a;

	CHECK_MAGIC(volume, CLIENT_VOLUME_MAGIC);
	ensure(extent_bytes_valid(extent_bytes));
	worker = view_local(volume->client->view);
	if (!worker) {
		*ret_r = err_set(e, -ENODEV, "no worker on this node");
		return NULL;
	}
	a = calloc(1, sizeof(*a));
	if (!a) {
		*ret_r = err_set(e, -ENOMEM, "no memory to request sealed extents");
		return NULL;
	}
	a->volume = volume;
	a->worker = worker;
	a->generation = generation;
	a->extent_bytes = extent_bytes;
	/* Of an earlier generation it is not known here how far it went. */
	a->ask.end = generation == volume->generation ? table_info(volume->table)->end : UINT64_MAX;
	a->fd = -1;
	return a;
}

static int ask(struct asking *a, struct err *e)
{
	uint8_t packed[SEAL_ASK_BYTES];
	struct rpc_call call = {
		.frame = { .op = FRAME_SEAL,
			.class = FRAME_FILL,
			.volume = a->volume->id,
			.lineage = a->volume->lineage,
			.generation = a->generation,
			.offset = a->first,
			.length = a->n,
			.extent = a->extent_bytes },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + CLIENT_SEAL_PATIENCE,
		.resend = true,
		.reply_fd = -1,
	};
	int r;

	call.payload.parts[0].data = packed;
	call.payload.parts[0].len = seal_ask_pack(&a->ask, a->n, packed);
	call.payload.n = 1;
	r = rpc_call_wait(a->worker->rpc, &call, e);
	if (r == 0 &&
		(!call.reply_payload || seal_states_unpack(call.reply_payload, call.reply.payload,
						a->n, &a->epoch, a->states) < 0))
		r = err_set(e, -EBADMSG,
			"invalid answer of the worker about extents; use the same version on both "
			"sides");
	if (r == 0)
		a->fd = TAKE_FD(call.reply_fd);
	rpc_call_release(&call);
	return r;
}

/* Bits [first, first + n) of `from`, which has whole bytes before them. */
static void copy_bits(uint8_t out[SEAL_HELD_BYTES], const uint8_t *from, uint32_t first, uint32_t n)
{
	memset(out, 0, SEAL_HELD_BYTES);
	memcpy(out, from + first / 8, (n + 7) / 8);
	if (n % 8)
		out[n / 8] &= (uint8_t)((1u << n % 8) - 1);
}

int client_seal_poll(struct client_volume *volume, uint64_t generation, uint64_t extent_bytes,
	uint64_t first, uint32_t n, const uint8_t *held, struct client_seal *ret_seals,
	struct err *e)
{
	_cleanup_(asking_free_p) struct asking *a = NULL;
	int r = 0;

	ensure(n <= LIMIT_DEVICES && first <= LIMIT_DEVICES - n);
	a = asking_new(volume, generation, extent_bytes, &r, e);
	for (uint32_t done = 0; a && r == 0 && done < n; done += a->n) {
		a->first = first + done;
		a->n = min(n - done, SEAL_PAGE);
		if (held)
			copy_bits(a->ask.held, held, done, a->n);
		r = ask(a, e);
		for (uint32_t i = 0; r == 0 && i < a->n; i++)
			ret_seals[done + i] = (struct client_seal){ a->states[i], a->epoch };
		if (a->fd >= 0)
			(void)close(TAKE_FD(a->fd)); /* it was not requested */
	}
	return r;
}

/* ---- a descriptor ---------------------------------------------------------------------------- */

/* Whose the worker's socket is: its files are theirs. */
static int owner_of(const char *address, uid_t *ret_uid)
{
	static const char prefix[] = "unix:";
	struct stat st;

	if (strncmp(address, prefix, strlen(prefix)) != 0)
		return -ENODEV;
	if (stat(address + strlen(prefix), &st) < 0)
		return -errno;
	*ret_uid = st.st_uid;
	return 0;
}

static int check_foot(const struct asking *a)
{
	uint8_t bytes[EXTENT_FOOT_BYTES];
	struct extent_foot foot = { 0 };
	int r = file_pread_exact(a->fd, bytes, sizeof(bytes), extent_foot_offset(a->extent_bytes));

	if (r == 0)
		r = extent_foot_decode(bytes, &foot);
	if (r < 0)
		return r;
	return foot.extent_bytes == a->extent_bytes && foot.number == a->first &&
			       foot.lineage == a->volume->lineage &&
			       volume_id_equal(&foot.volume, &a->volume->id)
		       ? 0
		       : -EBADMSG;
}

/* A worker may send what it likes; the kernel is to read it as part of the image. */
static int check_fd(const struct asking *a)
{
	int flags = fcntl(a->fd, F_GETFL);
	uid_t uid = 0;
	struct stat st;
	int r;

	if (flags < 0 || fstat(a->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (flags & O_ACCMODE) != O_RDONLY || flags & O_PATH)
		return -EBADMSG;
	if ((uint64_t)st.st_size != extent_file_bytes(a->extent_bytes))
		return -EBADMSG;
	r = owner_of(a->worker->address, &uid);
	if (r < 0)
		return r;
	return st.st_uid == uid ? check_foot(a) : -EBADMSG;
}

int client_seal_take(struct client_volume *volume, uint64_t generation, uint64_t extent_bytes,
	uint64_t number, struct client_seal *ret_seal, int *ret_fd, struct err *e)
{
	_cleanup_(asking_free_p) struct asking *a = NULL;
	int r = 0;

	ensure(number < LIMIT_DEVICES);
	a = asking_new(volume, generation, extent_bytes, &r, e);
	if (!a)
		return r;
	a->first = number;
	a->n = 1;
	a->ask.take = true;
	r = ask(a, e);
	if (r < 0)
		return r;
	if (a->states[0].state != SEAL_SEALED || a->fd < 0)
		return err_set(e, -EAGAIN, "extent %llu is not sealed: %s",
			(unsigned long long)number, seal_state_name(a->states[0].state));
	r = check_fd(a);
	if (r < 0)
		return err_set(e, r == -EBADMSG ? -EBADMSG : -EIO,
			"the worker's file of extent %llu is not used: %s",
			(unsigned long long)number, err_str(r));
	*ret_seal = (struct client_seal){ a->states[0], a->epoch };
	*ret_fd = TAKE_FD(a->fd);
	return 0;
}

bool client_seal_holds(const struct client_seal *then, const struct client_seal *now)
{
	const struct seal_status *status = &now->status;
	/* A worker counts from its start on. */
	uint32_t before = then->epoch == now->epoch ? then->status.findings : 0;

	if (status->findings != before || status->state == SEAL_ABSENT)
		return false;
	if ((status->state == SEAL_INCOMPLETE || status->state == SEAL_REFUSED) && status->missing)
		return false;
	return status->state != SEAL_REFUSED || status->why != SEAL_WHY_TIER;
}
