/*
 * What an S3 server said in status line and headers, and whether it is the answer that was asked
 * for. Values; parsing a peer's input: nothing is trusted.
 */
#pragma once

#include "ufs/ufs_internal.h"

struct s3_answer {
	int status;                     /* 0: none yet */
	char etag[LIMIT_TAG_BYTES + 1]; /* without quotes and W/; "" none */
	bool weak;                      /* the etag had W/: perhaps other bytes */
	bool encoded;                   /* Content-Encoding says so: of the object, or on the way */
	bool html;                      /* a page for people */
	bool chunked;                   /* Content-Length says nothing (RFC 9112, 6.3) */
	char region[64];                /* x-amz-bucket-region */
	char request_id[80];
	int64_t modified;   /* seconds; -1 none */
	int64_t date;       /* the server's clock; -1 none */
	int64_t length;     /* Content-Length; -1 none */
	struct ufs_sum sum; /* x-amz-checksum-*, the first kind of those that can be read */
	bool sum_of_parts;  /* the checksums are not of the object's bytes */
	bool etag_is_other; /* the ETag is not an MD5: KMS, or a customer's key */
	bool has_range;
	uint64_t range_start, range_end, range_total;
	uint64_t retry_after_ns;
};

void s3_answer_init(struct s3_answer *answer);

/* One line as it came, with or without its CRLF. A status line starts the answer anew (after 100
 * Continue). */
void s3_answer_line(struct s3_answer *answer, const char *line, size_t len);

/* "bytes 0-9/100"; -EPROTO otherwise, also when the end is not below the total or before the
 * start. */
int s3_content_range(
	const char *s, uint64_t *ret_start, uint64_t *ret_end, uint64_t *ret_total) __must_check;

/* The checksum of the whole object: a header's, or with `etags` its ETag, if that can be an MD5; or UFS_SUM_NONE. */
struct ufs_sum s3_answer_sum(const struct s3_answer *answer, bool etags);

/*
 * Whether a 2xx answer carries exactly the bytes of exactly the version asked for: 0, -ESTALE
 * (another version), -EPROTO (not the range). Everything is checked before the first byte is taken.
 *
 * An encoded answer may be right: objects are stored with a Content-Encoding of their own, and
 * delivered as they are. Its length tells, once it is complete; a part of it is worth nothing.
 */
int s3_answer_check(const struct s3_answer *answer, const struct ufs_get *get,
	enum ufs_cause *ret_cause, struct err *e) __must_check;
