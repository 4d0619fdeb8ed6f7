/*
 * MD5s (RFC 1321) of several messages at once. Each step of an MD5 waits for the one before, so one message leaves most of a
 * core idle; the words of up to MD5_LANES messages are computed together in wide registers. For protocols that compare
 * with them: they find damage, no forgery. Threads: any.
 */
#pragma once

#include "base/hash.h"

#define MD5_LANES 16u

struct md5_message {
	const void *data;
	size_t len;
	uint8_t md5[MD5_BYTES]; /* the result */
};

enum md5_width {
	MD5_ONE, /* one message after the other, by OpenSSL */
	MD5_AVX2,
	MD5_AVX512,
};
/* -ENOTSUP: OpenSSL's configuration forbids MD5, or the CPU has no such registers. */
int md5_of_all_by(enum md5_width width, struct md5_message *messages, uint32_t n) __must_check;

/* By the widest registers there are. -ENOTSUP: OpenSSL's configuration forbids MD5. */
int md5_of_all(struct md5_message *messages, uint32_t n) __must_check;
