/*
 * What every origin and every decorator is made of; does not leave this folder.
 *
 * A stack is a chain of struct ufs through `lower`. ufs.c checks what callers owe, calls the table
 * of the uppermost one, and that is all: a decorator is an ordinary ufs that calls the functions of
 * ufs.h on its lower one.
 */
#pragma once

#include <stdatomic.h>
#include "ufs/ufs.h"

#define UFS_MAGIC 0x55465331u

/* How often a LIST under way looks whether somebody still waits for it. */
#define UFS_LIST_LOOK_NS 100000000ull

#define UFS_TOKEN_BYTES (8u * 1024)

/* One LIST. Borrowed strings, relative to the prefix of the origin. */
struct ufs_page_request {
	bool begin;      /* a listing begins: asks for no page, but what it is to be made with */
	const char *dir; /* only keys that begin with it */
	uint32_t dir_len;
	const char *after; /* only keys beyond it in byte order; NULL: from the start */
	uint32_t after_len;
	bool delimiter; /* roll keys up to their next '/' into `prefixes` */
	/* Go on behind the page that said it; NULL: by `after`. */
	const char *token;
	/* Keys beyond it are not needed: the page may end, truncated, with the first of them. */
	const char *upto;
	uint32_t upto_len;
	const _Atomic bool *given_up; /* becomes true: -ECANCELED within a second; NULL: never */
};

/* The answer. Filled by the origin, released by the caller; reusable. Of one key that comes twice
 * in a row the newest is there. */
struct ufs_page {
	struct buf bytes; /* what the keys and tags point into */
	struct ufs_object *objects;
	uint32_t n_objects;
	uint32_t objects_cap;
	struct ufs_object *prefixes; /* key only, ends with '/' */
	uint32_t n_prefixes;
	uint32_t prefixes_cap;
	bool truncated;          /* more keys follow */
	bool disorder;           /* not in byte order: `after` cannot be used to go on */
	struct buf token;        /* of the next page, to go on by; empty: it was not said */
	uint64_t retry_after_ns; /* sent by the origin with a failure, else 0 */
};

void ufs_page_init(struct ufs_page *page);
void ufs_page_clear(struct ufs_page *page);
void ufs_page_release(struct ufs_page *page);

struct ufs_ops {
	const char *name;

	/* As ufs_get(). May call on_done only after it returned 0, never from inside; sets get->got
	 * to 0 first. On failure sets get->retry_after_ns when the origin asked for a pause. Ends
	 * by get->deadline_ns. */
	int (*get)(struct ufs *ufs, struct ufs_get *get);

	/* As ufs_range_bytes(). May be NULL: as the lower one, or 0. */
	uint64_t (*range_bytes)(struct ufs *ufs);

	/* As ufs_promote(). May be NULL: nothing waits here. */
	void (*promote)(struct ufs *ufs, struct ufs_get *get, enum ufs_class class);

	/* As ufs_find_wait(). May be NULL: not known here. */
	bool (*find_wait)(
		struct ufs *ufs, const char *key, uint32_t key_len, struct ufs_wait *ret_wait);

	/* As ufs_cancel(). May be NULL: what was begun goes on. */
	void (*cancel)(struct ufs *ufs, struct ufs_get *get);

	/* As ufs_refused(). May be NULL: nothing is remembered here. */
	bool (*refused)(struct ufs *ufs, const char *key, uint32_t key_len, const char *tag,
		uint32_t tag_len);

	/* As ufs_note_refused() and ufs_forget(). May be NULL, too. */
	void (*note_refused)(struct ufs *ufs, const char *key, uint32_t key_len, const char *tag,
		uint32_t tag_len, uint32_t times);
	void (*forget)(struct ufs *ufs);

	/* One page, blocking; any number of threads. NULL for an origin that has no pages. */
	int (*list_page)(struct ufs *ufs, const struct ufs_page_request *request,
		struct ufs_page *page, struct err *e);

	/* list_page wants to be called with `begin` before each listing. */
	bool begins_lists;

	/* As ufs_list(), for an origin without pages; else NULL and ufs_list() works by
	 * list_page. */
	int (*list)(struct ufs *ufs, ufs_list_sink sink, void *arg, struct err *e);

	/* As ufs_probe(). Quick: tells a person what is wrong, so it does not try for long. */
	int (*probe)(struct ufs *ufs, struct err *e);

	/* Ends what is under way with -ECANCELED, waits for it, frees. A decorator frees its
	 * lower one. */
	void (*free)(struct ufs *ufs);
};

/* First member of every implementation. */
struct ufs {
	uint32_t magic;
	const struct ufs_ops *ops;
	struct ufs *lower;             /* owned; NULL for an origin */
	struct ufs_counters *counters; /* one per stack, owned by the origin at its bottom */
	struct ufs_limits limits;
	_Atomic bool lists_cancelled; /* by ufs_list_cancel(), in every layer */
	/* By ufs_list_after(), in every layer; of NULLs: nothing was listed before. */
	struct ufs_listed listed;
	/* The origin's: of what the last listing could not read the first, as text. */
	char first_unreadable[128];
};

/* Whether a LIST has no waiter any more; `request` may be NULL. */
static inline bool ufs_list_is_over(const struct ufs *ufs, const struct ufs_page_request *request)
{
	return atomic_load(&ufs->lists_cancelled) ||
	       (request && request->given_up && atomic_load(request->given_up));
}

/* By the functions that ufs_list_after() got. */
static inline enum ufs_before ufs_list_before(const struct ufs *ufs)
{
	return ufs->listed.before ? ufs->listed.before(ufs->listed.arg) : UFS_BEFORE_NOTHING;
}

static inline bool ufs_list_had(const struct ufs *ufs, const char *name, size_t len)
{
	return ufs->listed.had && ufs->listed.had(ufs->listed.arg, name, (uint32_t)len);
}

/* Waits between two attempts of a LIST; ends early when it has no waiter. */
void ufs_list_sleep(const struct ufs *ufs, const struct ufs_page_request *request, uint64_t ns);

/* For constructors: of an origin (lower NULL, allocates the counters: -ENOMEM) or of a
 * decorator. */
int ufs_base_init(struct ufs *ufs, const struct ufs_ops *ops, struct ufs *lower,
	const struct ufs_limits *limits) __must_check;
/* For destructors, last: also frees the counters of an origin. */
void ufs_base_release(struct ufs *ufs);

/* Counts how an attempt of an origin ended; `got` object bytes came with it. */
void ufs_count_end(struct ufs *ufs, int status, enum ufs_cause cause, uint64_t got);

int ufs_list_page(struct ufs *ufs, const struct ufs_page_request *request, struct ufs_page *page,
	struct err *e) __must_check;

/* Origins. */
int s3_open(const struct ufs_config *config, const struct ufs_limits *limits, struct ufs **ret_ufs,
	struct err *e) __must_check;
int ufs_file_open(const struct ufs_config *config, const struct ufs_limits *limits,
	struct ufs **ret_ufs, struct err *e) __must_check;

/* Decorators; they own `lower` when they succeed. */
int ufs_retry_new(struct ufs *lower, struct ufs **ret_ufs) __must_check;
int ufs_throttle_new(struct ufs *lower, struct ufs **ret_ufs) __must_check;
int ufs_throttle_set(
	struct ufs *throttle, uint64_t bytes_per_s, uint64_t requests_per_s) __must_check;
bool ufs_is_throttle(const struct ufs *ufs);

/* What debug programs put over every origin, below retry; NULL in production. Owns `lower` when it
 * succeeds. Set before the first origin is opened. */
extern int (*ufs_debug_wrap)(struct ufs *lower, struct ufs **ret_ufs, struct err *e);
