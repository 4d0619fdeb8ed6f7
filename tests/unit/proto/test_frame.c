/* Frames: the golden bytes of version 3, and what a hostile header gets. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "proto/frame.h"

static const struct frame sample = {
	.version = FRAME_VERSION,
	.op = FRAME_FETCH,
	.flags = FRAME_REPLY | FRAME_LOCAL | 0x4000,
	.id = 0x0102030405060708,
	.volume = { { 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac,
		0xad, 0xae, 0xaf } },
	.lineage = 0x1112131415161718,
	.offset = 0x2122232425262728,
	.length = 0x00030000,
	.payload = 0x00030018,
	.status = 0,
	.checksums = 3,
	.class = FRAME_AHEAD,
	.lane = 7,
	.generation = 0x3132333435363738,
	.extent = 0x40000000,
};

/* Never edit: a byte that changes here breaks every cluster that runs. */
static const uint8_t golden[FRAME_BYTES] = { 'G', 'R', 'N', '1', 3, 16, 3, 0x40, /* 0 */
	8, 7, 6, 5, 4, 3, 2, 1,                                                  /* 8 */
	0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7,                          /* 16 */
	0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf,                          /* 24 */
	0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,                          /* 32 */
	0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,                          /* 40 */
	0x00, 0x00, 0x03, 0x00, 0x18, 0x00, 0x03, 0x00,                          /* 48 */
	0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x02, 0x07,                          /* 56 */
	0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,                          /* 64 */
	0, 0, 0, 0x40, 0, 0, 0, 0 };

static void test_golden(void **state)
{
	uint8_t out[FRAME_BYTES];
	struct frame back = { 0 };

	(void)state;
	frame_encode(&sample, out);
	assert_memory_equal(out, golden, FRAME_BYTES);
	assert_int_equal(frame_decode(golden, &back), 0);
	assert_memory_equal(&back.volume, &sample.volume, VOLUME_ID_LEN);
	assert_int_equal(back.op, sample.op);
	assert_int_equal(back.class, sample.class);
	assert_int_equal(back.flags, sample.flags);
	assert_int_equal(back.lane, sample.lane);
	assert_int_equal(back.left_ms, 0);
	assert_true(back.id == sample.id && back.lineage == sample.lineage);
	assert_true(back.offset == sample.offset && back.generation == sample.generation);
	assert_int_equal(back.length, sample.length);
	assert_int_equal(back.payload, sample.payload);
	assert_int_equal(back.checksums, sample.checksums);
	assert_true(back.extent == sample.extent);
}

static void test_status(void **state)
{
	struct frame f = { .op = FRAME_FETCH, .flags = FRAME_REPLY, .status = -ESTALE };
	uint8_t out[FRAME_BYTES];
	struct frame back;

	(void)state;
	frame_encode(&f, out);
	assert_int_equal(out[56], 3);
	assert_int_equal(frame_decode(out, &back), 0);
	assert_int_equal(back.status, -ESTALE);
}

/* A request has the time left where a reply has its status. */
static void test_left(void **state)
{
	struct frame f = { .op = FRAME_FETCH, .left_ms = 0x01020304, .status = -ESTALE };
	uint8_t out[FRAME_BYTES];
	struct frame back;

	(void)state;
	frame_encode(&f, out);
	assert_memory_equal(out + 56, "\4\3\2\1", 4);
	assert_int_equal(frame_decode(out, &back), 0);
	assert_int_equal(back.left_ms, f.left_ms);
	assert_int_equal(back.status, 0);
	f.flags = FRAME_REPLY;
	frame_encode(&f, out);
	assert_int_equal(frame_decode(out, &back), 0);
	assert_int_equal(back.left_ms, 0);
	assert_int_equal(back.status, -ESTALE);
}

static int decode(const struct frame *f)
{
	uint8_t out[FRAME_BYTES];
	struct frame back;

	frame_encode(f, out);
	return frame_decode(out, &back);
}

static void test_hostile(void **state)
{
	uint8_t bytes[FRAME_BYTES];
	struct frame back = { .id = 77 };
	struct frame f = sample;

	(void)state;
	memcpy(bytes, golden, FRAME_BYTES);
	bytes[0] ^= 1;
	assert_int_equal(frame_decode(bytes, &back), -EBADMSG);
	memcpy(bytes, golden, FRAME_BYTES);
	bytes[4] = 2; /* flags and class were one byte each */
	assert_int_equal(frame_decode(bytes, &back), -EPROTONOSUPPORT);
	bytes[4] = FRAME_VERSION + 1;
	assert_int_equal(frame_decode(bytes, &back), -EPROTONOSUPPORT);
	assert_int_equal(back.id, 77); /* outputs only on success */
	f.class = 3;
	assert_int_equal(decode(&f), -EBADMSG);
	f = (struct frame){ .op = FRAME_PREFETCH, .lane = 1 }; /* no bytes, no lane */
	assert_int_equal(decode(&f), -EBADMSG);
	f.lane = 0;
	assert_int_equal(decode(&f), 0);
	f = sample;
	f.op = 0;
	assert_int_equal(decode(&f), -EBADMSG);
	f = sample;
	f.offset = UINT64_MAX - f.length + 1;
	assert_int_equal(decode(&f), -EBADMSG);
	f.offset--;
	assert_int_equal(decode(&f), 0);
	f = sample;
	f.payload = 23;
	assert_int_equal(decode(&f), -EBADMSG); /* three checksums do not fit */
}

static void test_limits(void **state)
{
	struct frame f = { .op = FRAME_FETCH, .flags = FRAME_REPLY, .length = LIMIT_PAYLOAD_BYTES };

	(void)state;
	f.checksums = FRAME_CHECKSUMS_MAX;
	f.payload = LIMIT_PAYLOAD_BYTES + FRAME_CHECKSUMS_MAX * 8;
	assert_int_equal(decode(&f), 0);
	f.payload++;
	assert_int_equal(decode(&f), -EMSGSIZE);
	f.payload = UINT32_MAX;
	f.checksums = UINT16_MAX;
	assert_int_equal(decode(&f), -EMSGSIZE);
	f = (struct frame){ .op = FRAME_FETCH, .length = LIMIT_PAYLOAD_BYTES + 1 };
	assert_int_equal(decode(&f), -EMSGSIZE);
	f = (struct frame){ .op = FRAME_SEEK,
		.flags = FRAME_REPLY,
		.length = LIMIT_PAYLOAD_BYTES,
		.payload = LIMIT_PAYLOAD_BYTES };
	assert_int_equal(decode(&f), 0);
	f.length++;
	assert_int_equal(decode(&f), -EMSGSIZE);
	f = (struct frame){ .op = FRAME_PREFETCH, .length = CHUNK_BYTES };
	assert_int_equal(decode(&f), 0);
	f.length++;
	assert_int_equal(decode(&f), -EMSGSIZE);
	f = (struct frame){
		.op = FRAME_GET_SLOTS, .flags = FRAME_REPLY, .payload = FRAME_SLOTS_BYTES
	};
	assert_int_equal(decode(&f), 0);
	f.payload++;
	assert_int_equal(decode(&f), -EMSGSIZE);
	f = (struct frame){ .op = FRAME_GET_SLOTS, .payload = LIMIT_FRAME_BYTES };
	assert_int_equal(decode(&f), 0);
	f.payload++;
	assert_int_equal(decode(&f), -EMSGSIZE);
	f = (struct frame){ .op = 200, .payload = LIMIT_FRAME_BYTES + 1 };
	assert_int_equal(decode(&f), -EMSGSIZE);
	f = (struct frame){ .op = FRAME_HELLO, .payload = FRAME_SMALL_BYTES + 1 };
	assert_int_equal(decode(&f), -EMSGSIZE);
}

static void test_wire_errors(void **state)
{
	(void)state;
	assert_int_equal(wire_error_from_errno(0), 0);
	assert_int_equal(wire_error_to_errno(0), 0);
	for (int wire = 1; wire <= 47; wire++)
		assert_int_equal(wire_error_from_errno(wire_error_to_errno(wire)), wire);
	assert_int_equal(wire_error_from_errno(-ENODATA), 4);
	assert_int_equal(wire_error_from_errno(-ETIMEDOUT), 11);
	assert_int_equal(wire_error_to_errno(99999), -EIO);
	assert_int_equal(wire_error_to_errno(-3), -EIO);
	assert_int_equal(wire_error_from_errno(-ETXTBSY), 1); /* not in the table */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_wire_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
