/* FUSE requests: taken apart, also when they are short, wrong or hostile. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "fuse/request.h"

#define EXTENT (64ull << 20)

struct bytes {
	struct fuse_in_header head;
	unsigned char body[256];
};

static struct bytes make(uint32_t opcode, const void *body, size_t len)
{
	struct bytes b = { .head = { .len = (uint32_t)(sizeof(b.head) + len),
				   .opcode = opcode,
				   .unique = 4242,
				   .nodeid = 2 } };

	if (len)
		memcpy(b.body, body, len);
	return b;
}

static void whole(void **state)
{
	const struct fuse_read_in read = { .offset = 8192, .size = 65536 };
	const struct fuse_interrupt_in interrupt = { .unique = 99 };
	struct bytes b = make(FUSE_READ, &read, sizeof(read));
	struct request req;

	(void)state;
	assert_int_equal(request_parse(&b, b.head.len, &req), 0);
	assert_int_equal(req.opcode, FUSE_READ);
	assert_int_equal(req.unique, 4242);
	assert_int_equal(req.nodeid, 2);
	assert_int_equal(req.read.offset, 8192);
	assert_int_equal(req.read.size, 65536);
	b = make(FUSE_INTERRUPT, &interrupt, sizeof(interrupt));
	assert_int_equal(request_parse(&b, b.head.len, &req), 0);
	assert_int_equal(req.interrupted, 99);
	b = make(FUSE_LOOKUP, "17", 3);
	assert_int_equal(request_parse(&b, b.head.len, &req), 0);
	assert_string_equal(req.name, "17");
}

/*
 * Every prefix of every request, with the true and with a false length: an error or a request,
 * never a byte past the end. The copy ends where the request does, so that the sanitizer sees more.
 */
static void cut(void **state)
{
	static const uint32_t opcodes[] = { FUSE_INIT, FUSE_LOOKUP, FUSE_GETATTR, FUSE_OPEN,
		FUSE_READ, FUSE_READDIR, FUSE_READDIRPLUS, FUSE_INTERRUPT, FUSE_STATFS, FUSE_FORGET,
		FUSE_BATCH_FORGET, FUSE_DESTROY, 0, 4096, UINT32_MAX };

	(void)state;
	for (size_t o = 0; o < ARRAY_SIZE(opcodes); o++)
		for (size_t len = 0; len <= 200; len++) {
			unsigned char body[160];
			struct bytes b;
			unsigned char *exact = malloc(len ? len : 1);
			struct request req;
			int r;

			memset(body, 0xff, sizeof(body)); /* no NUL anywhere */
			b = make(opcodes[o], body, sizeof(body));
			memcpy(exact, &b, len);
			if (len >= sizeof(b.head) && len < 200) {
				assert_int_equal(
					request_parse(exact, len, &req), -EPROTO); /* says 200 */
				b.head.len = (uint32_t)len;
				memcpy(exact, &b, sizeof(b.head));
			}
			r = request_parse(exact, len, &req);
			if (len < sizeof(b.head))
				assert_int_equal(r, -EPROTO);
			if (opcodes[o] == FUSE_LOOKUP)
				assert_int_equal(r, -EPROTO); /* a name without an end */
			if (opcodes[o] == FUSE_READ &&
				len < sizeof(b.head) + sizeof(struct fuse_read_in))
				assert_int_equal(r, -EPROTO);
			assert_int_equal(
				request_unique(exact, len), len < sizeof(b.head) ? 0 : 4242);
			free(exact);
		}
}

static uint64_t random_word(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void check_forgotten(const struct request *req, const unsigned char *body)
{
	for (uint32_t i = 0; i < req->forget.count; i++) {
		const struct fuse_forget_one got = request_forgotten(req, i);

		assert_memory_equal(&got, body + 8 + i * sizeof(got), sizeof(got));
	}
}

/* FORGETs of any count and length, in memory that ends where they do. */
static void forgets(void **state)
{
	uint64_t seed = 88172645463325252ull;
	uint32_t believed = 0;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		size_t nodes = random_word(&seed) % 8;
		size_t cut = random_word(&seed) % 3 ? 0 : random_word(&seed) % 24;
		size_t len = sizeof(struct fuse_batch_forget_in) +
			     nodes * sizeof(struct fuse_forget_one);
		uint32_t count =
			random_word(&seed) % 4 ? (uint32_t)nodes : (uint32_t)random_word(&seed);
		struct fuse_in_header head = { .opcode = FUSE_BATCH_FORGET, .unique = 7 };
		unsigned char *exact;
		struct request req;
		int r;

		len -= min(cut, len);
		head.len = (uint32_t)(sizeof(head) + len);
		exact = malloc(head.len);
		memcpy(exact, &head, sizeof(head));
		for (size_t k = 0; k < len; k++)
			exact[sizeof(head) + k] = (unsigned char)random_word(&seed);
		memcpy(exact + sizeof(head), &count, min(len, sizeof(count)));
		r = request_parse(exact, head.len, &req);
		if (len < 8 || count > (len - 8) / sizeof(struct fuse_forget_one)) {
			assert_int_equal(r, -EPROTO);
			assert_int_equal(request_unique_of_refused(exact, head.len), 0);
		} else {
			assert_int_equal(r, 0);
			assert_int_equal(req.forget.count, count);
			check_forgotten(&req, exact + sizeof(head));
			believed++;
		}
		free(exact);
	}
	assert_true(believed > 50000);
}

static void one_forgotten(void **state)
{
	const struct fuse_forget_in in = { .nlookup = 99 };
	struct bytes b = make(FUSE_FORGET, &in, sizeof(in));
	struct fuse_forget_one one;
	struct request req;

	(void)state;
	assert_int_equal(request_parse(&b, b.head.len, &req), 0);
	assert_int_equal(req.forget.count, 1);
	one = request_forgotten(&req, 0);
	assert_int_equal(one.nodeid, b.head.nodeid);
	assert_int_equal(one.nlookup, 99);
}

/* A listing is asked for like a READ; what is refused is answered unless nobody waits. */
static void listings(void **state)
{
	const struct fuse_read_in in = { .offset = UINT64_MAX, .size = UINT32_MAX };
	static const uint32_t opcodes[] = { FUSE_READDIR, FUSE_READDIRPLUS };
	struct request req;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++) {
		struct bytes b = make(opcodes[i], &in, sizeof(in));

		assert_int_equal(request_parse(&b, b.head.len, &req), 0);
		assert_true(req.read.offset == UINT64_MAX && req.read.size == UINT32_MAX);
		b = make(opcodes[i], &in, sizeof(in) - 1);
		assert_int_equal(request_parse(&b, b.head.len, &req), -EPROTO);
		assert_int_equal(request_unique_of_refused(&b, b.head.len), 4242);
	}
	assert_true(request_is_write(FUSE_WRITE) && request_is_write(FUSE_RENAME2));
	assert_false(request_is_write(FUSE_READ) || request_is_write(FUSE_IOCTL));
}

static void init(void **state)
{
	struct fuse_init_in in = {
		.major = 7, .minor = 45, .max_readahead = 131072, .flags = UINT32_MAX
	};
	struct fuse_init_out out;

	(void)state;
	assert_int_equal(request_answer_init(&in, 0, 4032, &out), 0);
	assert_int_equal(out.major, 7);
	assert_true(out.minor >= 31 && out.minor <= 45);
	assert_int_equal(out.max_background, 4032);
	assert_int_equal(out.congestion_threshold, 4032);
	assert_int_equal(out.max_write, 4096);
	assert_int_equal(out.max_pages, 256);
	assert_true(out.flags & FUSE_MAX_PAGES);
	assert_true(out.flags & FUSE_ASYNC_DIO);
	assert_false(out.flags & FUSE_AUTO_INVAL_DATA);
	assert_false(out.flags & FUSE_WRITEBACK_CACHE);
	assert_false(out.flags & FUSE_DO_READDIRPLUS);
	assert_int_equal(request_answer_init(&in, FUSE_DO_READDIRPLUS | 1ull << 40, 12, &out), 0);
	assert_true(out.flags & FUSE_DO_READDIRPLUS);
	assert_int_equal(out.flags2, 0); /* not offered */
	in.flags2 = UINT32_MAX;
	assert_int_equal(request_answer_init(&in, 1ull << 40, 12, &out), 0);
	assert_int_equal(out.flags2, 1 << 8);
	in.flags = FUSE_ASYNC_READ; /* nothing that was not offered */
	assert_int_equal(request_answer_init(&in, 0, 12, &out), 0);
	assert_int_equal(out.flags, FUSE_ASYNC_READ);
	in.minor = 30;
	assert_int_equal(request_answer_init(&in, 0, 12, &out), -EPROTO);
	in.minor = 45;
	in.major = 8;
	assert_int_equal(request_answer_init(&in, 0, 12, &out), -EPROTO);
}

static void names(void **state)
{
	static const char *const bad[] = { "", "00", "01", "-1", "+1", "1a", " 1", "3",
		"99999999999999999999", "4294967296", "0x1", ".." };
	uint32_t n = 9;

	(void)state;
	assert_int_equal(request_extent_of_name("0", 3, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(request_extent_of_name("2", 3, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(request_extent_of_name("16383", 16384, &n), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(request_extent_of_name(bad[i], 3, &n), -ENOENT);
}

static int range(uint64_t node, uint64_t offset, uint32_t size, uint64_t *ret)
{
	const struct request req = {
		.opcode = FUSE_READ, .nodeid = node, .read = { offset, size }
	};

	return request_volume_range(&req, EXTENT, 3, ret);
}

static void ranges(void **state)
{
	uint64_t offset = 0;

	(void)state;
	assert_int_equal(range(REQUEST_EXTENT_NODE(0), 4096, 4096, &offset), 0);
	assert_int_equal(offset, 4096);
	assert_int_equal(range(REQUEST_EXTENT_NODE(2), 0, 1 << 20, &offset), 0);
	assert_int_equal(offset, 2 * EXTENT);
	assert_int_equal(range(REQUEST_EXTENT_NODE(1), EXTENT - 4096, 4096, &offset), 0);
	assert_int_equal(range(REQUEST_EXTENT_NODE(1), EXTENT - 4096, 8192, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(1), EXTENT, 4096, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(1), UINT64_MAX - 4095, 8192, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(3), 0, 4096, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_ROOT_NODE, 0, 4096, &offset), -EINVAL);
	assert_int_equal(range(0, 0, 4096, &offset), -EINVAL);
	assert_int_equal(range(UINT64_MAX, 0, 4096, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(0), 1, 4096, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(0), 0, 100, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(0), 0, 0, &offset), -EINVAL);
	assert_int_equal(range(REQUEST_EXTENT_NODE(0), 0, (1 << 20) + 4096, &offset), -EINVAL);
}

static void attributes(void **state)
{
	struct fuse_attr attr;

	(void)state;
	assert_int_equal(request_attr(REQUEST_ROOT_NODE, EXTENT, 3, &attr), 0);
	assert_true(S_ISDIR(attr.mode));
	assert_int_equal(attr.mode & 077, 0);
	assert_int_equal(request_attr(REQUEST_EXTENT_NODE(2), EXTENT, 3, &attr), 0);
	assert_true(S_ISREG(attr.mode));
	assert_int_equal(attr.mode & 0377, 0);
	assert_int_equal(attr.size, EXTENT);
	assert_int_equal(request_attr(REQUEST_EXTENT_NODE(3), EXTENT, 3, &attr), -ENOENT);
	assert_int_equal(request_attr(0, EXTENT, 3, &attr), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole),
		cmocka_unit_test(cut),
		cmocka_unit_test(forgets),
		cmocka_unit_test(one_forgotten),
		cmocka_unit_test(listings),
		cmocka_unit_test(init),
		cmocka_unit_test(names),
		cmocka_unit_test(ranges),
		cmocka_unit_test(attributes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
