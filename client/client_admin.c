/* The admin interface of a master that is far. See client_admin.h. */
#include "client/client_admin.h"
#include "base/clock.h"
#include "base/loop.h"
#include "net/net.h"
#include "proto/granary.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define CONNECT_NS (2 * CLOCK_SECOND) /* somebody waits at a terminal */

struct client_admin {
	char *address;
	struct loop *loop;
	struct rpc_client *rpc;
};

/* Is there a master that lets us in? It answers that this is no request. */
static int knock(struct client_admin *admin, struct err *e)
{
	struct rpc_call call = { .frame = { .op = FRAME_ADMIN },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + CONNECT_NS,
		.resend = true,
		.reply_fd = -1 };
	struct err why = ERR_INIT;
	int r = rpc_call_wait(admin->rpc, &call, &why);

	rpc_call_release(&call);
	if (r == -EBADMSG || r == -EOPNOTSUPP) /* what follows says it again */
		return 0;
	if (r == -ETIMEDOUT)
		r = -ECONNREFUSED;
	return r < 0 ? err_set(e, r, "%s", why.text) : 0;
}

int client_admin_open(const char *address, struct client_admin **ret_admin, struct err *e)
{
	struct client_admin *admin = calloc(1, sizeof(*admin));
	int r = -ENOMEM;

	if (admin) {
		admin->address = strdup(address);
		admin->loop = loop_new("admin");
	}
	if (admin && admin->address && admin->loop)
		r = rpc_client_new(admin->loop, address, &admin->rpc, e);
	if (r == 0)
		r = knock(admin, e);
	if (r == 0) {
		*ret_admin = admin;
		return 0;
	}
	client_admin_close(admin);
	return err_default(e, r, "the master is unavailable");
}

void client_admin_close(struct client_admin *admin)
{
	if (!admin)
		return;
	if (admin->rpc)
		rpc_client_free(admin->rpc);
	if (admin->loop)
		loop_free(admin->loop);
	free(admin->address);
	free(admin);
}

/* One frame. `body` gets its part of the answer. */
static int exchange(struct client_admin *admin, struct rpc_call *call, unsigned int *ret_status,
	struct buf *out, struct err *e)
{
	Granary__AdminAnswer *m = NULL;
	int r = rpc_call_wait(admin->rpc, call, e);

	if (r < 0)
		return err_default(e, r, admin->address);
	m = granary__admin_answer__unpack(NULL, call->reply.payload, call->reply_payload);
	if (!m)
		return err_set(e, -EBADMSG,
			"the answer of the master on %s cannot be decoded; use the same version on "
			"both sides",
			admin->address);
	if (call->reply.offset != out->len || call->reply.extent < out->len + m->body.len ||
		(m->body.len == 0 && call->reply.extent > out->len))
		r = err_set(e, -EBADMSG,
			"the answer of the master on %s is not of the request; use the same "
			"version on both sides",
			admin->address);
	else
		r = buf_append(out, m->body.data, m->body.len);
	if (r == -ENOBUFS || r == -ENOMEM)
		r = err_set(e, r, "the answer of the master on %s is too long", admin->address);
	if (r == 0)
		*ret_status = m->status;
	granary__admin_answer__free_unpacked(m, NULL);
	return r;
}

static int ask_first(struct client_admin *admin, const struct Granary__AdminAsk *m,
	struct rpc_call *call, unsigned int *ret_status, struct buf *out, struct err *e)
{
	size_t len = granary__admin_ask__get_packed_size(m);
	uint8_t *packed = malloc(len);

	if (!packed)
		return err_set(e, -ENOMEM, "out of memory");
	call->payload.parts[0].data = packed;
	call->payload.parts[0].len = granary__admin_ask__pack(m, packed);
	call->payload.n = 1;
	call->payload.release = free;
	call->payload.arg = packed;
	call->resend = strcmp(m->method, "GET") == 0;
	return exchange(admin, call, ret_status, out, e);
}

int client_admin_ask(struct client_admin *admin, const char *method, const char *path,
	const void *body, size_t len, uint64_t timeout_ns, unsigned int *ret_status,
	struct buf *out, struct err *e)
{
	Granary__AdminAsk m = GRANARY__ADMIN_ASK__INIT;
	struct rpc_call call = { .frame = { .op = FRAME_ADMIN },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + timeout_ns,
		.reply_fd = -1 };
	int r;

	m.method = (char *)(uintptr_t)method; /* only read, as the others */
	m.path = (char *)(uintptr_t)path;
	m.has_body = body != NULL;
	m.body = (ProtobufCBinaryData){ body ? len : 0, (uint8_t *)(uintptr_t)body };
	r = ask_first(admin, &m, &call, ret_status, out, e);
	while (r == 0 && out->len < call.reply.extent) {
		uint64_t number = call.reply.generation;

		rpc_call_release(&call);
		call = (struct rpc_call){
			.frame = { .op = FRAME_ADMIN, .generation = number, .offset = out->len },
			.payload = NET_PAYLOAD_NONE,
			.deadline_ns = clock_mono_ns() + timeout_ns,
			.reply_fd = -1
		};
		r = exchange(admin, &call, ret_status, out, e);
	}
	rpc_call_release(&call);
	return r;
}
