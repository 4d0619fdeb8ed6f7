/*
 * What a job and the mount's order feed say to each other over a unix stream socket
 * (docs/order.md). Little-endian. A message is
 *
 *	0 kind u32    4 bytes of the body u32    8 body
 *
 *	HELLO	 version u32; a descriptor of anything below the mount comes with the first byte
 *	LIST	 samples u32, SHA-256 over the bodies of the SAMPLES that follow, 32 bytes
 *	SAMPLES	 per sample: offset u64, length u64 (0: to the file's end), path's bytes u32,
 *		 path
 *	LISTED	 nothing: the samples as they are listed
 *	NUMBERS	 places in all u32, then numbers of samples u32, as many as fit
 *	FORGET	 nothing
 *	HITS	 nothing: changes nothing
 *	REPLY	 (to all but the SAMPLES and NUMBERS that are not the last) status i32: 0 or a negative
 *		 errno of Linux, 1 while the order is suspended u32, samples u64, files that are not
 *		 there u64, READs of what was announced u64, hits among them u64, text for a person
 *
 * LIST is answered -ENOENT when the list is not known: then SAMPLES follow. One is in use at a
 * time; LISTED, NUMBERS and FORGET end what was announced before. Spoken by fuse/order/order_job.c,
 * client/granary_order.c and sdk/python/granary.
 */
#pragma once

#include <stdint.h>

#define ORDER_VERSION    3u
#define ORDER_HEAD_BYTES 8u
#define ORDER_BODY_MAX   65536u
#define ORDER_FRAME_MAX  (ORDER_HEAD_BYTES + ORDER_BODY_MAX)
#define ORDER_SAMPLE_MIN 20u
#define ORDER_PATH_MAX   4096u
#define ORDER_REPLY_MIN  40u /* of the body */
#define ORDER_REPLY_MAX  (ORDER_HEAD_BYTES + ORDER_REPLY_MIN + 256u)

enum order_kind {
	ORDER_HELLO = 1,
	ORDER_LIST,
	ORDER_SAMPLES,
	ORDER_LISTED,
	ORDER_NUMBERS,
	ORDER_FORGET,
	ORDER_HITS,
	ORDER_REPLY = 128,
};
