/* MD5s of several messages. See md5.h. */
#include "base/md5.h"
#include "base/little.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#ifdef __x86_64__

#define BLOCK 64u /* bytes that are hashed in 64 steps */

typedef uint32_t lanes __attribute__((vector_size(MD5_LANES * 4)));

/* 2^32 times |sin(i + 1)| */
static const uint32_t sines[64] = { 0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf,
	0x4787c62a, 0xa8304613, 0xfd469501, 0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be,
	0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340, 0x265e5a51,
	0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6,
	0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a, 0xfffa3942,
	0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
	0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8,
	0xc4ac5665, 0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92,
	0xffeff47d, 0x85845dd1, 0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82,
	0xbd3af235, 0x2ad7d2bb, 0xeb86d391 };

struct state {
	lanes a, b, c, d;
};

/* A message in a lane. */
struct lane {
	struct md5_message *message; /* NULL: none */
	const uint8_t *at;           /* the next block */
	size_t blocks;               /* from there on */
	bool in_tail;
	size_t tail_blocks;
	uint8_t tail[2 * BLOCK]; /* last partial block, padding and length */
};

#define ROTATED(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define F(x, y, z)    ((z) ^ ((x) & ((y) ^ (z))))
#define G(x, y, z)    ((y) ^ ((z) & ((x) ^ (y))))
#define H(x, y, z)    ((x) ^ (y) ^ (z))
#define I(x, y, z)    ((y) ^ ((x) | ~(z)))
#define STEP(f, a, b, c, d, i, word, shift) \
	((a) += f(b, c, d) + words[(word) % 16u] + sines[(i)], (a) = (b) + ROTATED(a, shift))
/* Four steps, of which the first has number i. */
#define STEPS(f, i, word, by, s0, s1, s2, s3)                                                   \
	(STEP(f, a, b, c, d, (i), (word), s0), STEP(f, d, a, b, c, (i) + 1, (word) + (by), s1), \
		STEP(f, c, d, a, b, (i) + 2, (word) + 2 * (by), s2),                            \
		STEP(f, b, c, d, a, (i) + 3, (word) + 3 * (by), s3))

/* n blocks of each lane; `steps`: how far the next block of a lane is, 0 in one without a message. */
static inline __attribute__((always_inline)) void hash_blocks(struct state *state,
	const uint8_t *const at[MD5_LANES], const size_t steps[MD5_LANES], size_t n)
{
	lanes words[16];

	for (size_t block = 0; block < n; block++) {
		lanes a = state->a, b = state->b, c = state->c, d = state->d;

		for (unsigned int lane = 0; lane < MD5_LANES; lane++) {
			const uint8_t *p = at[lane] + block * steps[lane];

			for (unsigned int word = 0; word < 16; word++)
				words[word][lane] = little_get32(p + (size_t)word * 4);
		}
		for (unsigned int i = 0; i < 16; i += 4)
			STEPS(F, i, i, 1u, 7, 12, 17, 22);
		for (unsigned int i = 0; i < 16; i += 4)
			STEPS(G, i + 16, 5 * i + 1, 5u, 5, 9, 14, 20);
		for (unsigned int i = 0; i < 16; i += 4)
			STEPS(H, i + 32, 3 * i + 5, 3u, 4, 11, 16, 23);
		for (unsigned int i = 0; i < 16; i += 4)
			STEPS(I, i + 48, 7 * i, 7u, 6, 10, 15, 21);
		state->a += a;
		state->b += b;
		state->c += c;
		state->d += d;
	}
}

__attribute__((target("avx512f"))) static void hash_blocks_512(struct state *state,
	const uint8_t *const at[MD5_LANES], const size_t steps[MD5_LANES], size_t n)
{
	hash_blocks(state, at, steps, n);
}

__attribute__((target("avx2"))) static void hash_blocks_256(struct state *state,
	const uint8_t *const at[MD5_LANES], const size_t steps[MD5_LANES], size_t n)
{
	hash_blocks(state, at, steps, n);
}

static void lane_begin(
	struct lane *lane, struct state *state, unsigned int i, struct md5_message *message)
{
	size_t rest = message->len % BLOCK;

	*lane = (struct lane){ .message = message,
		.at = message->data,
		.blocks = message->len / BLOCK,
		.tail_blocks = rest + 1 + sizeof(uint64_t) <= BLOCK ? 1 : 2 };
	if (rest)
		memcpy(lane->tail, (const uint8_t *)message->data + message->len - rest, rest);
	lane->tail[rest] = 0x80;
	little_put64(lane->tail + lane->tail_blocks * BLOCK - sizeof(uint64_t),
		(uint64_t)message->len * 8);
	state->a[i] = 0x67452301;
	state->b[i] = 0xefcdab89;
	state->c[i] = 0x98badcfe;
	state->d[i] = 0x10325476;
}

/* Its blocks are hashed: goes on with the tail, or ends. */
static void lane_go_on(struct lane *lane, const struct state *state, unsigned int i)
{
	if (!lane->in_tail) {
		lane->in_tail = true;
		lane->at = lane->tail;
		lane->blocks = lane->tail_blocks;
		return;
	}
	little_put32(lane->message->md5, state->a[i]);
	little_put32(lane->message->md5 + 4, state->b[i]);
	little_put32(lane->message->md5 + 8, state->c[i]);
	little_put32(lane->message->md5 + 12, state->d[i]);
	lane->message = NULL;
}

/* Blocks that each lane with a message has at least; 0: there is no message. */
static size_t least_blocks(const struct lane lanes_of[MD5_LANES])
{
	size_t least = 0;

	for (unsigned int i = 0; i < MD5_LANES; i++)
		if (lanes_of[i].message && (least == 0 || lanes_of[i].blocks < least))
			least = lanes_of[i].blocks;
	return least;
}

static void hash_together(bool wide, struct md5_message *messages, uint32_t n)
{
	static const uint8_t nothing[BLOCK];
	struct lane all[MD5_LANES] = { { .message = NULL } };
	struct state state = { 0 };
	uint32_t begun = 0;

	for (;;) {
		const uint8_t *at[MD5_LANES];
		size_t steps[MD5_LANES];
		size_t blocks;

		for (unsigned int i = 0; i < MD5_LANES; i++) {
			struct lane *lane = &all[i];

			if (!lane->message && begun < n)
				lane_begin(lane, &state, i, &messages[begun++]);
			if (lane->message && lane->blocks == 0)
				lane_go_on(lane, &state, i); /* it begins with its tail */
			at[i] = lane->message ? lane->at : nothing;
			steps[i] = lane->message ? BLOCK : 0;
		}
		blocks = least_blocks(all);
		if (blocks == 0)
			return;
		if (wide)
			hash_blocks_512(&state, at, steps, blocks);
		else
			hash_blocks_256(&state, at, steps, blocks);
		for (unsigned int i = 0; i < MD5_LANES; i++) {
			all[i].at += steps[i] * blocks;
			all[i].blocks -= all[i].message ? blocks : 0;
			if (all[i].message && all[i].blocks == 0)
				lane_go_on(&all[i], &state, i);
		}
	}
}

static enum md5_width widest(void)
{
	if (!__builtin_cpu_supports("avx2"))
		return MD5_ONE;
	return __builtin_cpu_supports("avx512f") ? MD5_AVX512 : MD5_AVX2;
}
#else
static void hash_together(bool wide, struct md5_message *messages, uint32_t n)
{
	(void)wide;
	(void)messages;
	(void)n;
}

static enum md5_width widest(void)
{
	return MD5_ONE;
}
#endif

static pthread_once_t asked = PTHREAD_ONCE_INIT;
static int allowed; /* 0, or -ENOTSUP */

static void ask_openssl(void)
{
	uint8_t md5[MD5_BYTES];

	allowed = hash_md5("", 0, md5);
}

int md5_of_all_by(enum md5_width width, struct md5_message *messages, uint32_t n)
{
	int r = 0;

	if (width > widest())
		return -ENOTSUP;
	if (width != MD5_ONE) {
		(void)pthread_once(&asked, ask_openssl);
		if (allowed == 0)
			hash_together(width == MD5_AVX512, messages, n);
		return allowed;
	}
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = hash_md5(messages[i].data, messages[i].len, messages[i].md5);
	return r;
}

int md5_of_all(struct md5_message *messages, uint32_t n)
{
	return md5_of_all_by(n > 1 ? widest() : MD5_ONE, messages, n);
}
