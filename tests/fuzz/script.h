/*
 * Scripts of requests by several principals to a whole daemon: the cluster, a token for a part of a volume, an
 * administrator's token. A fuzzer's input is a script; the state that requests leave behind stays for the next one, as in
 * a daemon that lives long: an input alone may not show again what it found.
 *
 * A step is 8 bytes: request, principal, frame flags, kind, offset in blocks (u16), length, oddities; and a
 * payload, of KIND_RAW. Requests go through the fake transport, whose listeners say who the peer is (doors): how a
 * principal proves what it is has a fuzzer of its own.
 *
 * Threads: the fuzzer's.
 */
#pragma once

#include "net/net.h"

#define STEP_BYTES   8u
#define STEPS_MAX    32u
#define STEP_PAYLOAD 256u

enum who {
	WHO_CLUSTER,
	WHO_PART,
	WHO_ADMIN,
	WHO_COUNT,
};

enum step_kind {
	KIND_VOLUME = 1,     /* another one */
	KIND_LINEAGE = 2,    /* another one */
	KIND_GENERATION = 4, /* the one before */
	KIND_RAW = 8,        /* the payload is of the script */
	KIND_AT_ONCE = 16,   /* not waited for */
	KIND_CANCEL = 32,    /* cancelled at once */
	KIND_CLASS = 64,     /* not for a reader that waits */
	KIND_SHOWS = 128,    /* the daemon's: with more in its message */
};

struct step_request {
	uint8_t op;
	bool part;  /* a token for data may ask, and maybe gets something */
	bool admin; /* an administrator's may */
};

struct step {
	struct rpc_call call;
	const struct step_request *request;
	enum who who;
	uint8_t kind;
	bool done;
	int status;
	uint8_t payload[STEP_PAYLOAD];
};

struct script {
	const char *name; /* of the daemon */
	const struct step_request *requests;
	uint32_t n_requests;
	/* What is asked about; set before script_connect(). */
	struct volume_id volume;
	uint64_t lineage;
	uint64_t generation;
	uint64_t blocks;        /* of the volume */
	const char *prefix;     /* of the part's token */
	const uint8_t *dataset; /* likewise: TOKEN_DATASET_BYTES; NULL: no matter which */
	/* Of another part: in no answer to a token. */
	const char *others;
	/* Changes the frame, and packs the step's message; returns its bytes. NULL: there is none. */
	size_t (*pack)(struct step *step);
	/* What came of it, failed or not, besides what holds for all. */
	void (*check)(const struct step *step);
};

/* "fake:NAME-PRINCIPAL", where the daemon is to listen. From then on listeners there are doors. */
const char *script_address(const struct script *p, enum who who);
void script_connect(const struct script *p, struct loop *loop);
void script_close(void);

/* Runs the script, and checks every answer. */
void script_run(const struct script *p, const uint8_t *data, size_t size);

/* Every request of every principal; and ranges of the whole volume, by turns. */
void script_seeds(const struct script *p);
