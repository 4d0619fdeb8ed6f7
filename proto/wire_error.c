/*
 * The wire's own error numbers: errno values differ between machines and kernels, these never
 * change. Append only. See frame.h.
 */
#include "proto/frame.h"

static const struct {
	int32_t wire;
	int code; /* positive errno */
} wire_errors[] = {
	{ 1, EIO },
	{ 2, EBADMSG },
	{ 3, ESTALE },
	{ 4, ENODATA },
	{ 5, ENOKEY },
	{ 6, EKEYREJECTED },
	{ 7, EACCES },
	{ 8, ENOENT },
	{ 9, ENXIO },
	{ 10, EREMCHG },
	{ 11, ETIMEDOUT },
	{ 12, ECANCELED },
	{ 13, ENOSPC },
	{ 14, EINVAL },
	{ 15, ENOMEM },
	{ 16, EAGAIN },
	{ 17, EBUSY },
	{ 18, EEXIST },
	{ 19, ENOSYS },
	{ 20, EOPNOTSUPP },
	{ 21, EMSGSIZE },
	{ 22, EPROTONOSUPPORT },
	{ 23, EPERM },
	{ 24, EFBIG },
	{ 25, EOVERFLOW },
	{ 26, ERANGE },
	{ 27, ENOBUFS },
	{ 28, EMFILE },
	{ 29, EROFS },
	{ 30, EDQUOT },
	{ 31, ECONNREFUSED },
	{ 32, ECONNRESET },
	{ 33, EHOSTUNREACH },
	{ 34, ENETUNREACH },
	{ 35, EPROTO },
	{ 36, ENAMETOOLONG },
	{ 37, ENOTDIR },
	{ 38, EISDIR },
	{ 39, ELOOP },
	{ 40, ENODEV },
	{ 41, EALREADY },
	{ 42, ENOTCONN },
	{ 43, EPIPE },
	{ 44, EHOSTDOWN },
	{ 45, EADDRINUSE },
	{ 46, ENFILE },
	{ 47, EREMOTE },
};

#define WIRE_EIO 1

int32_t wire_error_from_errno(int code)
{
	if (code == 0)
		return 0;
	for (unsigned int i = 0; i < ARRAY_SIZE(wire_errors); i++)
		if (wire_errors[i].code == -code)
			return wire_errors[i].wire;
	return WIRE_EIO;
}

int wire_error_to_errno(int32_t wire)
{
	if (wire == 0)
		return 0;
	for (unsigned int i = 0; i < ARRAY_SIZE(wire_errors); i++)
		if (wire_errors[i].wire == wire)
			return -wire_errors[i].code;
	return -EIO;
}
