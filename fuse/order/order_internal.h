/*
 * What the files of an order feed share: order.c (life, its thread, connections), order_job.c (what a
 * job says), order_greeting.c (the descriptor that it shows), order_feed.c (reads, what is asked for next).
 *
 * order.lock guards feeds, windows and which lists there are. The thread alone adds and removes
 * them and touches connections, so it reads without the lock what only it changes.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include "base/hash.h"
#include "base/layout.h"
#include "client/order_proto.h"
#include "fuse/order/order.h"
#include "fuse/order/order_samples.h"
#include "fuse/order/order_window.h"

#define ORDER_JOBS  64u   /* connections */
#define ORDER_FILES 8192u /* asked for and not read, of all jobs together */
/* The window is this part of the node's tiers, and not so long that what is needed now waits for what is needed later: a
 * worker fetches what is announced in the order of the requests. */
#define ORDER_TIER_SHARE 16u
#define ORDER_WINDOW_MAX (1ull << 30)
#define ORDER_DEVS       16u /* device numbers that the mount had */

#define ORDER_HELLO_BYTES (ORDER_HEAD_BYTES + 4)
/* Processes that look at a descriptor, or cannot get rid of one; and of one user. */
#define ORDER_GREETERS      128u
#define ORDER_USER_GREETERS 32u

struct order_range {
	uint64_t place;
	uint64_t offset;
	uint32_t length; /* 0: none */
	uint32_t from;   /* blocks of the sample before it */
};

/* One rank's order, fed. */
struct order_feed {
	struct list link; /* order.feeds */
	struct order_sequence *sequence;
	struct order_window window;
	struct order_asked asked;
	struct order_array passed;  /* a bit for each place */
	struct order_range held;    /* could not be asked for yet; the thread's */
	enum order_follows follows; /* the read that is looked at */
};

enum order_job_state {
	ORDER_JOB_NEW,     /* has not said hello */
	ORDER_JOB_READY,   /* may say anything */
	ORDER_JOB_SAMPLES, /* its list is being sent */
	ORDER_JOB_WAITS,   /* another job sends the list that it has named */
	ORDER_JOB_NUMBERS, /* its numbers are being sent */
};

struct order_job {
	struct order *order;
	int fd; /* -1: free */
	enum order_job_state state;
	uint64_t since; /* when it came */
	pid_t pid;
	uid_t uid;
	uint32_t have; /* bytes in `in` */
	uint8_t *in;   /* ORDER_FRAME_MAX */
	uint32_t out_len;
	uint32_t out_sent;
	uint8_t out[ORDER_REPLY_MAX];
	uint8_t digest[SHA256_BYTES]; /* WAITS, SAMPLES: of the list */
	uint32_t expected;            /* its samples */
	uint32_t filled;
	struct hash_sha256 *sha;
	struct order_samples *loading;
	char missing[128]; /* the first file that is not there */
	uint32_t *numbers;
	uint32_t n_numbers;
	struct order_array numbers_array;
	struct order_samples *samples;
	struct order_feed *feed;
};

struct order_greeter {
	pid_t pid;
	uid_t uid; /* whose descriptor it has */
};

struct order {
	struct order_config config;
	struct order_counters counters;
	struct order_space space; /* the thread's */
	pthread_mutex_t lock;
	struct list lists;        /* struct order_samples that are whole */
	struct list feeds;        /* in turn */
	uint64_t window_bytes;    /* asked for and not read, of all jobs together */
	uint32_t n_jobs;          /* that share what is asked for without hits */
	_Atomic uint32_t n_feeds; /* 0: there is nothing to look for */
	uint64_t devs[ORDER_DEVS];
	uint32_t n_devs; /* ever; the last ORDER_DEVS are known */

	pthread_t thread;
	bool started;
	int wake_fd;
	_Atomic bool woken;
	_Atomic bool stopping;
	int listen_fd;
	char *directory;
	char *path;                                    /* of the socket */
	dev_t path_dev;                                /* the file that was made there, */
	ino_t path_ino;                                /* until listen_fd is closed */
	_Atomic bool changed;                          /* the jobs' lists are out of date */
	_Atomic bool replaced;                         /* by the mount's next daemon */
	char *shown;                                   /* the link to it; under the lock */
	struct order_greeter greeters[ORDER_GREETERS]; /* the thread's, as the next */
	uint32_t n_greeters;
	struct order_job jobs[ORDER_JOBS];
};

/* order_feed.c; any thread. The thread looks around. */
void order_wake(struct order *order);
/* order_feed.c; on the thread. A new feed is the order's; -ENOMEM. The sequence is taken over. */
int order_feed_add(struct order *order, struct order_sequence *sequence,
	struct order_feed **ret_feed) __must_check;
void order_feed_remove(struct order *order, struct order_feed *feed); /* NULL is allowed */
enum order_pumped {
	ORDER_PUMPED_ALL,  /* there is no room, or nothing left */
	ORDER_PUMPED_SOME, /* there may be more */
	ORDER_PUMPED_BUSY, /* nobody takes more now */
};
/* Asks for what comes next, a piece for each feed in turn. */
enum order_pumped order_pump(struct order *order);

/* What came with a greeting. */
struct order_shown {
	int bytes;    /* of the greeting */
	bool given;   /* a descriptor that is open */
	uint64_t dev; /* of its file */
};
/* order_greeting.c; on the thread. Takes the greeting, of which ORDER_HELLO_BYTES are there, off the
 * connection. -EBUSY: too many processes hang over what they were given. */
int order_greeting(struct order *order, const struct order_job *job,
	struct order_shown *ret_shown) __must_check;
/* How many such processes there are, once the others are buried. */
uint32_t order_greeters(struct order *order);

/* order_job.c; on the thread. */
void order_job_begin(struct order *order, struct order_job *job, int fd);
void order_job_end(struct order_job *job);
/* Answers a connection that is not served; the caller closes it. */
void order_job_refuse(int fd, int status, const char *text);
/* It has sent something, or can be sent something: false when it is to be ended. */
bool order_job_receive(struct order_job *job);
bool order_job_send(struct order_job *job);
