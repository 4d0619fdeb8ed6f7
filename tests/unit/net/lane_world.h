/*
 * Both ends of a lane on one loop, with any implementation, and answers over it: what TLS would carry is a call here.
 *
 * Each destination is filled with poison when it is free, and compared with it before it is used again: a byte that was written when
 * none could be is counted in `late`.
 */
#pragma once

#include <pthread.h>
#include "net/lane_asker.h"

#define LANE_WORLD_SLOTS 16u
#define LANE_WORLD_BYTES (1u << 20) /* of a slot */

enum lane_world_order {
	LANE_HEADER_FIRST,
	LANE_HEADER_WITH,
	LANE_HEADER_AFTER,
	LANE_N_ORDERS,
};

struct lane_world_slot {
	struct lane_world *world;
	struct lane_destination destination;
	struct loop_task header;
	bool header_posted;
	uint32_t index; /* of the answer */
	uint32_t bytes;
	enum lane_world_order order;
	bool used;    /* a destination */
	bool writing; /* its bytes are the lane's */
	bool cancelled;
};

struct lane_world {
	const struct lane_ops *ops;
	struct loop *loop;
	struct sockaddr_storage local[2]; /* of asker and answerer */
	struct lane_memory land;
	struct lane_memory serve;
	struct lane_asker *asker;
	struct lane *answerer; /* NULL: none */
	struct lane_end ends[2];
	uint8_t number; /* of the lane */
	struct lane_world_slot slots[LANE_WORLD_SLOTS];
	struct loop_task task;
	bool posted;
	void (*todo)(struct lane_world *world);
	bool answerer_ready;
	bool answerer_closing;
	bool answerer_broken;
	enum lane_cause answerer_cause;
	bool asker_gone;
	bool open_failed;
	uint64_t breaks; /* before it was to open */
	/* The run. */
	unsigned int cancel; /* chance in 1,000 per request */
	unsigned int wanted; /* replies, of lane_world_replies() */
	unsigned int left;
	unsigned int next;
	unsigned int orders; /* a mask; 0: all */
	uint32_t seed;
	unsigned int opened_again; /* so often too often */
	uint32_t probe;            /* the cookie of the first write */
	unsigned int by_lane;
	unsigned int by_tcp;
	unsigned int cancelled;
	unsigned int wrong; /* answers with other bytes */
	unsigned int late;  /* destinations that were written when they were free */
	/* For the thread of the test. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned int turns;
};

/* `local`: addresses of the two ends; NULL for an implementation that needs none. */
void lane_world_start(struct lane_world *w, const struct lane_ops *ops, const char *const local[2]);
void lane_world_stop(struct lane_world *w);

/* Opens and proves a lane; false: it is not to be had (asker's state has the cause). Real or test time may pass. */
bool lane_world_open(struct lane_world *w);
/* Answers of 1 byte to 1 MiB, until n were delivered, over the lane or, when it is broken, as if by TCP. */
void lane_world_replies(struct lane_world *w, unsigned int n);
/* Ends the asker's connection while all slots are being written, waits for the fence, and for the end of the answerer's lane;
 * then there is a new connection without a lane. */
void lane_world_cut(struct lane_world *w);
/* Compares what is free with the poison. */
void lane_world_check(struct lane_world *w);

/* Runs fn on the loop and waits until condition(w) holds, which is evaluated on the loop after each upcall. */
void lane_world_until(struct lane_world *w, void (*fn)(struct lane_world *w),
	bool (*condition)(struct lane_world *w));
