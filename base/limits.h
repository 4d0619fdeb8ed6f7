/* The maximum of every buffer, queue, table and pool, in one place; options may lower, rarely raise
 * them. */
#pragma once

#define LIMIT_KEY_BYTES      1024u           /* object key, as S3 allows */
#define LIMIT_TAG_BYTES      128u            /* etag or what stands for it */
#define LIMIT_NAME_BYTES     255u            /* one path component */
#define LIMIT_URL_BYTES      4096u           /* URL of a source or an endpoint */
#define LIMIT_HOST_BYTES     253u            /* name of a host, as DNS allows */
#define LIMIT_HOST_NAMES     4096u           /* that one process connects to */
#define LIMIT_FRAME_BYTES    (1024u * 1024u) /* one control message */
#define LIMIT_PAYLOAD_BYTES  (1024u * 1024u) /* payload of one data message */
#define LIMIT_CONNS          16384u          /* connections of one server */
#define LIMIT_CONNS_GREETING 256u            /* of those, for long without saying who they are */
#define LIMIT_CONN_REQUESTS  8192u           /* requests under way on one connection */
#define LIMIT_CONN_OUT_BYTES \
	(64u << 20)                /* reply bytes queued on one connection before it is throttled */
#define LIMIT_POOL_QUEUE 65536u    /* jobs waiting for a pool's threads */
#define LIMIT_FILES      50000000u /* files of one source */
#define LIMIT_XML_BYTES \
	(4u << 20) /* one LIST answer: 1,000 of the longest keys, escaped, are 3.5 MiB */
#define LIMIT_DEVICES           16384u /* devices of one image */
#define LIMIT_FUSE_SLOTS        4096u  /* READ requests held by one mount */
#define LIMIT_CHUNK_FDS         1024u  /* open chunk files of one process */
#define LIMIT_PIPES             32u    /* of 1 MiB, for answers out of the page cache */
#define LIMIT_THREADS           4096u  /* sum of the bounds of pools, and loops, of one process */
#define LIMIT_REQUESTS          65536u /* of all connections to one process; past it each has one */
#define LIMIT_DESCRIPTORS_LEAST 128u   /* a daemon refuses to start with fewer */
#define LIMIT_LOG_BYTES         (16u << 20) /* of a log file; the one before it is kept */
#define LIMIT_LOG_LINES         200u        /* a second, of one process */
#define LIMIT_LOG_BURST         2000u       /* lines at once, after a quiet while */

/* Of one token at one daemon (net/allowance.h), which may be that of a job of thousands of mounts. */
#define LIMIT_TOKEN_CONNS     8192u  /* and half of all connections of a server */
#define LIMIT_TOKEN_REQUESTS  16384u /* under way; past it each connection has two */
#define LIMIT_TOKEN_LEASES    16384u /* half of those of a source */
#define LIMIT_TOKEN_LISTINGS  32u    /* of origins, at once */
#define LIMIT_TOKEN_LISTING_S 10u    /* and one more each time */
