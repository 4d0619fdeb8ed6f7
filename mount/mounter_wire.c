/* SCM_RIGHTS and what a request must have. See mounter_wire.h. */
#include "mount/mounter_wire.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
	struct cmsghdr head;
	char space[CMSG_SPACE(MOUNTER_FDS_MAX * sizeof(int))];
};

int mounter_send(int socket, const void *message, size_t size, const int *fds, uint32_t n_fds)
{
	struct iovec iov = { (void *)(uintptr_t)message, size }; /* sendmsg() changes nothing */
	union control control;
	struct msghdr header = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds > MOUNTER_FDS_MAX)
		return -EINVAL;
	if (n_fds) {
		memset(&control, 0, sizeof(control));
		header.msg_control = &control;
		header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, n_fds * sizeof(int));
	}
	while (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		if (errno != EINTR)
			return err_errno();
	return 0;
}

/* Also of a message that will be refused: what is not looked at would stay open. */
static uint32_t take_fds(struct msghdr *header, int fds[MOUNTER_FDS_MAX])
{
	uint32_t n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= bytes && n < MOUNTER_FDS_MAX;
			at += sizeof(int))
			memcpy(&fds[n++], CMSG_DATA(c) + at, sizeof(int));
	}
	return n;
}

int mounter_receive(
	int socket, void *message, size_t size, int fds[MOUNTER_FDS_MAX], uint32_t *ret_n_fds)
{
	struct iovec iov = { message, size };
	union control control;
	struct msghdr header = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };
	uint32_t n_fds;
	ssize_t n;

	do {
		n = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_errno();
	n_fds = take_fds(&header, fds);
	if ((size_t)n == size && !(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		*ret_n_fds = n_fds;
		return 0;
	}
	while (n_fds > 0)
		(void)close(fds[--n_fds]); /* nothing of ours */
	return n == 0 ? -ENODATA : -EBADMSG;
}

/* Descriptors that an op comes with, least and most. */
static const struct {
	uint8_t least;
	uint8_t most;
} descriptors[MOUNTER_OPS] = {
	[MOUNTER_MOUNT_FUSE] = { 1, 1 },
	[MOUNTER_LOCAL] = { 1, MOUNTER_FDS_MAX },
	[MOUNTER_MOUNT_IMAGE] = { 0, 1 },
	[MOUNTER_MOUNT_LOOP] = { 1, 1 },
	[MOUNTER_ATTACH] = { 2, 2 },
	[MOUNTER_SHARE] = { 1, 1 },
	[MOUNTER_SWITCH] = { 0, 1 },
	[MOUNTER_HAND] = { 1, 1 },
};

static bool ends(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

int mounter_check(const struct mounter_request *request, uint32_t n_fds, struct err *e)
{
	bool has_key = request->op == MOUNTER_ATTACH || request->op == MOUNTER_SHARE;
	bool has_source = request->op == MOUNTER_MOUNT_FUSE || request->op == MOUNTER_MOUNT_IMAGE ||
			  request->op == MOUNTER_MOUNT_LOOP;

	if (request->magic != MOUNTER_MAGIC)
		return err_set(e, -EBADMSG,
			"this mount's daemon and its keeper are of different versions: unmount and "
			"mount again");
	if (request->op >= MOUNTER_OPS || n_fds != request->n_fds ||
		n_fds < descriptors[request->op].least || n_fds > descriptors[request->op].most)
		return err_set(e, -EBADMSG, "invalid request: op %u with %u descriptors",
			request->op, n_fds);
	if (!ends(request->path, sizeof(request->path)) ||
		!ends(request->label, sizeof(request->label)) ||
		(has_source && !ends(request->source, sizeof(request->source))) ||
		(has_key && !ends(request->key, sizeof(request->key))))
		return err_set(e, -EBADMSG, "a string of op %u is not terminated", request->op);
	if (has_key && !request->key[0])
		return err_set(e, -EBADMSG, "op %u needs a key", request->op);
	return 0;
}
