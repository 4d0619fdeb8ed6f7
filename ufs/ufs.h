/*
 * Origins: an object store or a directory, behind one table of operations.
 *
 * An origin (struct ufs) is opened from a struct ufs_config; decorators (retry, throttle, fault)
 * wrap one origin in another behind the same table, so that a stack reads in one function,
 * ufs_open().
 *
 * Threads: ufs_get() may be called from any thread and never blocks; its callbacks run on the
 * origin's own thread and must not block. ufs_list() and ufs_probe() block their caller. ufs_free()
 * waits until every request has ended (those under way end with -ECANCELED). A listing is ended by
 * its sink or by ufs_list_cancel(): ufs_free() must not run at the same time as ufs_list() or ufs_probe().
 *
 * Errors (see base/err.h): -ENOENT no such object, -ENXIO no such bucket, -EACCES forbidden,
 * -EKEYREJECTED key or signature refused, -ENOKEY no credential found, -EREMCHG other region,
 * -EPERM the object is archived and was not restored, or the file may not be read by this user,
 * -ESTALE the object's tag or size is not the expected one, -EAGAIN overload (503, 429), -EIO
 * server error, short body or other bytes than the checksum is of, -ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT, -EPROTO an answer that is
 * not understood, -ECANCELED. A GET through the whole stack ends with -EPERM, -ESTALE, -ENOENT, -ECANCELED,
 * with -EIO when the same damaged bytes came several times, or at its deadline with -ETIMEDOUT and the line of what it met; never earlier.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/counter.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/list.h"

struct ufs;

enum ufs_scheme {
	UFS_S3,
	UFS_FILE,
	UFS_OBS,
};

/* Whether objects are read by the id of their version. */
enum ufs_versions {
	UFS_VERSIONS_AUTO, /* where the bucket says that it keeps versions, and lets us list them */
	UFS_VERSIONS_ON,
	UFS_VERSIONS_OFF,
};

/* A source as configured. Strings are owned (ufs_config_release). No secrets: credentials are found
 * by reference (`credentials`, `profile`) in the environment and the files of the process that
 * opens it. */
struct ufs_config {
	enum ufs_scheme scheme;
	/* "http://127.0.0.1:9000"; NULL: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's
	 * endpoint_url, Amazon's. */
	char *endpoint;
	/* NULL: AWS_REGION, AWS_DEFAULT_REGION, the profile's, "us-east-1"; in any case the one
	 * that the service names. */
	char *region;
	char *bucket; /* file: NULL */
	/* Normalised: "" or ends with '/', never starts with it (file: absolute directory). */
	char *prefix;
	char *profile; /* NULL: AWS_PROFILE or "default" */
	/* Where the keys are, not the keys: "env:PREFIX_", "file:/PATH[#SECTION]", "profile:NAME",
	 * "web-identity", "container", "imds", "anonymous" (credentials.h). NULL: the usual search,
	 * in which `profile` counts. */
	char *credentials;
	char *ca_file; /* NULL: AWS_CA_BUNDLE, or the system's */
	/* Who may share what is cached of it: sources that differ in nothing else have bytes of
	 * their own. NULL: all without one. */
	char *scope;
	/* file: the prefix had no symbolic links (ufs_config_resolve()); those added to it later are not followed. */
	bool resolved;
	/* Connections to loopback and link-local addresses are refused, whatever the endpoint's name leads to at that
	 * moment: the endpoint was named by a caller that may not name such addresses. */
	bool no_local;
	bool path_style;
	bool anonymous;      /* requests are not signed; no credential is looked for */
	bool requester_pays; /* who asks pays for the requests, which such a bucket wants to hear */
	enum ufs_versions versions;
};

void ufs_config_release(struct ufs_config *config);
int ufs_config_copy(const struct ufs_config *from, struct ufs_config *ret_config) __must_check;

/* "auto", "on", "off"; NULL: auto. -EINVAL with a line. */
int ufs_versions_parse(
	const char *text, enum ufs_versions *ret_versions, struct err *e) __must_check;

/* Checks how a reference to credentials is written, not what is there. -EINVAL with a line that
 * says what there is. */
int ufs_credentials_check(const char *reference, struct err *e) __must_check;

/*
 * "s3://bucket/prefix", "obs://bucket/prefix" or "file:///dir" to scheme, bucket, normalised prefix. -EINVAL with a line
 * that says what a URL looks like. Endpoint and the rest are left NULL for the caller.
 */
int ufs_config_parse(const char *url, struct ufs_config *ret_config, struct err *e) __must_check;

/* Gives a directory its path without symbolic links; nothing of other schemes. -ENOENT and other errors of realpath(). */
int ufs_config_resolve(struct ufs_config *config) __must_check;

/*
 * The canonical text of a source, hashed to its volume id: "s3|endpoint|bucket|prefix" (or obs) with host
 * lower-cased and default ports dropped; "file|host-id|/real/path/"; then "|scope=..." where there is a
 * scope. out is NUL-terminated. Does not depend on path style.
 */
int ufs_config_source(const struct ufs_config *config, struct buf *out, struct err *e) __must_check;

/* Looks up where requests to the endpoint that an s3 or obs source names are sent. -EPERM, without a line: an address of it is of
 * this host (loopback) or of its link. -ENXIO with a line: it cannot be looked up. Blocks. The name may lead elsewhere later:
 * config->no_local checks each connection. */
int ufs_check_endpoint(const struct ufs_config *config, struct err *e) __must_check;

/* What this process's environment says for a source of that URL (AWS_ENDPOINT_URL_S3, OBS_REGION, ...),
 * for who describes it to another process; NULL: nothing. Borrowed from the environment. */
const char *ufs_environment_endpoint(const char *url);
const char *ufs_environment_region(const char *url);
/* Does this process's environment have keys, or one half of them, for a source of that URL? */
bool ufs_environment_has_keys(const char *url);

struct ufs_limits {
	/* GETs in flight at most, e.g. 128, and fewer while the origin refuses or queues them;
	 * further ones wait by class. */
	unsigned int max_requests;
	unsigned int list_requests;  /* LISTs in flight, e.g. 96 */
	uint64_t request_timeout_ns; /* one attempt without progress, e.g. 30 s */
	uint64_t deadline_ns;        /* a request with all its retries, e.g. 300 s */
	uint64_t bytes_per_s;        /* of objects, this process; 0: no bound */
	uint64_t requests_per_s;     /* GETs and LISTs; 0: no bound */
};
#define UFS_LIMITS_DEFAULT                            \
	((struct ufs_limits){ .max_requests = 128,    \
		.list_requests = 96,                  \
		.request_timeout_ns = 30000000000ull, \
		.deadline_ns = 300000000000ull })

/* Opens origin + decorators: s3, obs or file, then, in debug programs, one that fails on command
 * (tests/debug), then throttle, then retry. The origin is not asked yet, but who gives credentials
 * may be, for some seconds at most. Fails with a line on a missing credential or a bad endpoint. */
int ufs_open(const struct ufs_config *config, const struct ufs_limits *limits, struct ufs **ret_ufs,
	struct err *e) __must_check;
void ufs_free(struct ufs *ufs); /* NULL is allowed */

/* Other bounds from now on, 0: none; requests that wait, LISTs too, wait by the new ones at once. GETs
 * wait by class, demand first, and take turns with LISTs. What is owed when a bound is taken away is
 * forgiven. Bounds and queues are this origin's own. Any thread. -ENOMEM: they are as they were. */
int ufs_set_rates(struct ufs *ufs, uint64_t bytes_per_s, uint64_t requests_per_s) __must_check;

/*
 * Asks the origin whether it is there and may be listed: one LIST of one key. The line in `e` names
 * which of endpoint, region, bucket, key or clock is wrong and what to do. -ENOENT: nothing under
 * the prefix.
 */
int ufs_probe(struct ufs *ufs, struct err *e) __must_check;

/* One object of a listing; borrowed for the duration of the sink call. `key` is relative to the
 * prefix and may hold any byte but NUL; not NUL-terminated. `tag` is the etag without quotes (a weak
 * one as W/"ETAG"), "lm:SECONDS" without an etag, "v:VERSION:" before them where the bucket keeps versions, or
 * "f:DEV:INO:SIZE:MTIME_NS:CTIME_NS" for a directory. */
struct ufs_object {
	const char *key;
	uint32_t key_len;
	uint64_t size;
	int64_t mtime_ns;
	const char *tag;
	uint32_t tag_len;
	bool archived; /* cannot be read before it was restored */
};

/* Takes objects in any order. A key comes twice only from an origin that lists in disorder or
 * twice: the newest counts. Calls do not overlap. A negative return ends the listing with that
 * error, within a second. */
typedef int (*ufs_list_sink)(void *arg, const struct ufs_object *objects, uint32_t n);

/* Lists everything under the prefix with up to list_requests LISTs in flight (key space split by
 * prefix and by start-after ranges). Blocks. Complete or an error, never half. */
int ufs_list(struct ufs *ufs, ufs_list_sink sink, void *arg, struct err *e) __must_check;

/* The first name, in byte order and relative to the prefix, that the last listing counted as `unreadable`: one line of
 * UTF-8, cut; "": none. After ufs_list(), not during it. */
const char *ufs_first_unreadable(const struct ufs *ufs);

/* What the tags of the listing before had, of the same source. */
enum ufs_before {
	UFS_BEFORE_NOTHING, /* there was none, or it was empty */
	UFS_BEFORE_PLAIN,
	UFS_BEFORE_VERSIONS, /* ids of versions, some of them at least */
};
/* What an origin asks of the listing before, which may be a table. */
struct ufs_listed {
	/* For a bucket that does not say whether it keeps versions: it is listed as before then. Called at most once a
	 * listing, by the thread of ufs_list(). */
	enum ufs_before (*before)(void *arg);
	/* For a name that this user may not read: had it an object of this name, or one below it? In doubt, yes. Any
	 * thread. */
	bool (*had)(void *arg, const char *name, uint32_t len);
	void *arg;
};
/* Without this call nothing was listed before. `listed` is copied. Not while ufs_list() runs. */
void ufs_list_after(struct ufs *ufs, const struct ufs_listed *listed);
/* Whether a tag has the id of a version. */
bool ufs_tag_has_version(const char *tag, uint32_t tag_len);

/* Ends ufs_list() and ufs_probe() under way, and those to come, with -ECANCELED within a second; a
 * directory that does not answer may take longer. Any thread. */
void ufs_list_cancel(struct ufs *ufs);

/*
 * Why an attempt failed, distinguished for counters and logs: (C)(X, name in capitals, name, help).
 * The first row is no failure.
 */
#define UFS_CAUSES(C, X)                                                                  \
	C(X, DNS, dns, "Host name of the endpoint not known")                             \
	C(X, CONNECT, connect, "No connection to the endpoint")                           \
	C(X, TLS, tls, "TLS handshake or certificate refused")                            \
	C(X, PROXY, proxy, "The proxy refused, or could not be reached")                  \
	C(X, RESET, reset, "Connections lost before the answer was complete")             \
	C(X, STALL, stall, "No byte, or too few of them, within the time of an attempt")  \
	C(X, SHORT_BODY, short_body, "Answers with fewer bytes than requested")           \
	C(X, LONG_BODY, long_body, "Answers with more bytes than requested")              \
	C(X, SLOW_DOWN, slow_down, "503 and 429 answers")                                 \
	C(X, SERVER_ERROR, server_error, "Other 5xx answers")                             \
	C(X, WRONG_RANGE, wrong_range, "Answers with another range than requested")       \
	C(X, WRONG_ETAG, wrong_etag, "Answers with another version of the object")        \
	C(X, CHECKSUM, checksum, "Answers that do not match the object's checksum")       \
	C(X, ENCODING, encoding, "Answers with encoded (compressed) bytes")               \
	C(X, BAD_XML, bad_xml, "LIST answers that are cut, or not understood")            \
	C(X, NOT_S3, not_s3, "Answers that are none of an S3 service, as a proxy's page") \
	C(X, REDIRECT, redirect, "Answers that name another region or endpoint")          \
	C(X, EXPIRED, expired, "Session tokens refused")                                  \
	C(X, KEY, key, "Access keys or signatures refused")                               \
	C(X, CLOCK, clock, "Requests refused because the clocks differ")                  \
	C(X, FORBIDDEN, forbidden, "Other 401 and 403 answers")                           \
	C(X, ARCHIVED, archived, "Objects in an archive class, not restored")             \
	C(X, NOT_FOUND, not_found, "No such object or bucket")                            \
	C(X, OTHER, other, "What is none of the other causes")

#define UFS_CAUSE_ENUM(X, NAME, name, help) UFS_CAUSE_##NAME,
enum ufs_cause { UFS_CAUSE_NONE, UFS_CAUSES(UFS_CAUSE_ENUM, ) UFS_CAUSE_COUNT };

/* "slow_down"; "none". */
const char *ufs_cause_name(enum ufs_cause cause);

enum ufs_class {
	UFS_DEMAND,   /* a reader waits */
	UFS_FILL,     /* neighbours of what was asked for */
	UFS_PREFETCH, /* ahead of a stream, preload */
	UFS_CLASSES,
};

/* A checksum of a whole object; of several the first is compared. */
enum ufs_sum_kind {
	UFS_SUM_NONE,
	UFS_SUM_CRC32C,
	UFS_SUM_CRC64NVME,
	UFS_SUM_CRC32,
	UFS_SUM_SHA1,
	UFS_SUM_SHA256,
	UFS_SUM_ETAG, /* MD5 */
};

#define UFS_SUM_BYTES 32u

struct ufs_sum {
	enum ufs_sum_kind kind;
	uint8_t bytes[UFS_SUM_BYTES]; /* as many as the kind has; big-endian for CRCs */
};

/* Where the next bytes of a GET belong. */
struct ufs_room {
	char *buf;
	uint64_t length; /* of buf, >= 1 unless `left` is 0 */
	uint64_t left;   /* bytes that are still wanted, those of buf included; 0: none */
};

/*
 * One ranged read. The caller owns the struct and everything it points to until on_done was called,
 * exactly once per successful ufs_get() (never from inside ufs_get itself). Bytes land in `buf` in
 * order; `on_progress` (optional) says how many are there, and they do not change afterwards. `buf`
 * needs no alignment. Every response is checked: status, Content-Range start and total, ETag or
 * Last-Modified against `tag` and `size`: -ESTALE. If an object is fetched whole and its answer
 * has a checksum, no progress is reported: the bytes are used once they match.
 *
 * A GET may fill several buffers (ufs_range_bytes()): `buf` is NULL then, and on_room() says where the bytes from `at`
 * on belong, `at` counted from `offset`; negative: the attempt fails with that. It is called by an origin's thread that
 * has no locks, with the first byte that is not received, not before ufs_get() has returned, and again for the same
 * bytes by another attempt. The caller may want less from one call to the next, of what no call has named: the GET ends
 * then with status 0 and `got` where the wanted bytes end. Such a GET is not compared with a checksum.
 */
struct ufs_get {
	struct list link; /* the origin's */
	const char *key;  /* relative to the prefix */
	uint32_t key_len;
	const char *tag; /* expected version, as listed */
	uint32_t tag_len;
	uint64_t size;   /* expected total size of the object */
	uint64_t offset; /* offset + length <= size, length >= 1 */
	uint64_t length;
	void *buf;
	enum ufs_class class;
	/* Monotonic: nobody waits for it later, so that no attempt begins later, but for those of the first
	 * limits.request_timeout_ns: bytes that are on their way serve the next reader. 0: as long as limits.deadline_ns. */
	uint64_t until_ns;
	int (*on_room)(struct ufs_get *get, uint64_t at, struct ufs_room *ret_room);
	void (*on_progress)(struct ufs_get *get, uint64_t bytes);
	void (*on_done)(struct ufs_get *get, int status, const struct err *e);
	void *arg;    /* the caller's */
	void *priv;   /* the origin's */
	uint64_t got; /* bytes in buf so far; maintained by the origin and its decorators */
	uint64_t
		deadline_ns; /* monotonic; the request ends by then, whatever came; 0: by limits.deadline_ns, as others do */
	/* Between the layers of a stack; callers leave them 0. */
	struct ufs_room room;    /* the origin's: of the bytes that come next */
	uint64_t retry_after_ns; /* how long the origin asked to wait */
	/* Of the last attempt, monotonic, also for callers: when it was sent, and when its first byte came. 0: not known. */
	uint64_t sent_ns;
	uint64_t first_ns;
	enum ufs_cause cause; /* why the last attempt failed */
	bool final;           /* another attempt would fail alike, whatever the errno */
	uint32_t refused;     /* how often the origin said that the object was changed or removed */
	bool remembered;      /* it failed without a request, as earlier ones were refused */
	_Atomic bool cancelled; /* by ufs_cancel() */
	/* Kept from one attempt to the next, of a whole object: */
	uint64_t before;      /* bytes in front of buf that earlier attempts received */
	struct ufs_sum sum;   /* the checksum expected; UFS_SUM_NONE: no answer had one */
	struct ufs_sum wrong; /* what the last complete attempt had instead */
	unsigned int wrongs;  /* complete attempts in a row that had it */
};

/* 0: on_done will follow. -ECANCELED while closing. */
int ufs_get(struct ufs *ufs, struct ufs_get *get) __must_check;

/* How many bytes of an object one GET should ask for at most where no reader waits for the last of them; 0: on_room() is
 * not understood, and there is no reason for more than one buffer. Changes with the bounds. Any thread. */
uint64_t ufs_range_bytes(struct ufs *ufs);

/* Raises the class of a waiting request (a reader has come to wait for a prefetch). Any thread;
 * harmless when late. */
void ufs_promote(struct ufs *ufs, struct ufs_get *get, enum ufs_class class);

/* What a request that has not ended is waiting for, for people. */
struct ufs_wait {
	uint64_t waited_ns;
	unsigned int failures; /* attempts that have failed; 0: no answer yet */
	enum ufs_cause cause;  /* of the last of them */
	char reason[512];      /* its line, cut where it is longer */
};

/* The oldest GET under way of that object. False: there is none. Any thread. */
bool ufs_find_wait(struct ufs *ufs, const char *key, uint32_t key_len, struct ufs_wait *ret_wait);

/* Ends a request soon, by its on_done, with -ECANCELED unless it was done already. Any thread;
 * harmless when late; what an origin has begun and cannot end goes on. */
void ufs_cancel(struct ufs *ufs, struct ufs_get *get);

/*
 * Is it remembered that the origin refused that version of the object, so that a GET that no reader waits for ends without a
 * request? Any thread; never blocks.
 */
bool ufs_refused(
	struct ufs *ufs, const char *key, uint32_t key_len, const char *tag, uint32_t tag_len);

/* Another process got this answer, so many times, since the objects were listed. Any thread; never blocks. */
void ufs_note_refused(struct ufs *ufs, const char *key, uint32_t key_len, const char *tag,
	uint32_t tag_len, uint32_t times);

/* The objects were listed again: what was refused before is asked for again. Any thread; never blocks. */
void ufs_forget(struct ufs *ufs);

#define UFS_COUNTERS(X)                                                                            \
	X(gets, "granary_origin_gets_total", COUNTER, "requests", "GETs sent to the origin")       \
	X(lists, "granary_origin_lists_total", COUNTER, "requests", "LISTs sent to the origin")    \
	X(bytes, "granary_origin_bytes_total", COUNTER, "bytes", "Object bytes received")          \
	X(in_flight, "granary_origin_in_flight", GAUGE, "requests", "GETs in flight")              \
	X(queued, "granary_origin_queued", GAUGE, "requests", "GETs waiting for a place")          \
	X(retries, "granary_origin_retries_total", COUNTER, "requests",                            \
		"Attempts after the first")                                                        \
	X(errors, "granary_origin_errors_total", COUNTER, "requests", "Attempts that failed")      \
	X(overloads, "granary_origin_overloads_total", COUNTER, "requests", "503 and 429 answers") \
	X(timeouts, "granary_origin_timeouts_total", COUNTER, "requests", "Attempts timed out")    \
	X(stale, "granary_origin_stale_total", COUNTER, "requests",                                \
		"Answers of another version of the object")                                        \
	X(throttled, "granary_origin_throttled_total", COUNTER, "requests",                        \
		"GETs that waited for an operator's bound on bytes or requests")                   \
	X(lists_throttled, "granary_origin_lists_throttled_total", COUNTER, "requests",            \
		"LISTs that waited for an operator's bound on requests")                           \
	X(bound_bytes, "granary_origin_bound_bytes_per_second", GAUGE, "bytes",                    \
		"Operator's bounds on bytes a second, of all sources together; 0: none")           \
	X(bound_requests, "granary_origin_bound_requests_per_second", GAUGE, "requests",           \
		"Operator's bounds on requests a second, of all sources together; 0: none")        \
	X(window, "granary_origin_window", GAUGE, "requests",                                      \
		"Limit of GETs in flight, by latency and 503 or 429 answers")                      \
	X(list_window, "granary_origin_list_window", GAUGE, "requests",                            \
		"Limit of LISTs in flight, as granary_origin_window")                              \
	X(window_cuts, "granary_origin_window_cuts_total", COUNTER, "times",                       \
		"Reductions of the two windows")                                                   \
	X(background, "granary_origin_background", GAUGE, "requests",                              \
		"GETs in flight that saturate the origin; more are sent for readers only")         \
	X(compared, "granary_origin_compared_total", COUNTER, "objects",                           \
		"Objects fetched whole whose bytes match the origin's checksum or MD5 ETag")       \
	X(waits, "granary_origin_waits_total", COUNTER, "requests", "GETs that waited for 10 s")   \
	X(archived, "granary_origin_archived", GAUGE, "objects",                                   \
		"Objects of the last listing that are in an archive class and not restored")       \
	X(left_out, "granary_origin_left_out", GAUGE, "entries",                                   \
		"Links, special files and files of Granary that the last listing of a directory "  \
		"left out")                                                                        \
	X(unreadable, "granary_origin_unreadable", GAUGE, "entries",                               \
		"Files and directories of the last listing that the daemon's user may not read")   \
	X(keys_renewed, "granary_origin_keys_renewed_total", COUNTER, "times",                     \
		"New keys in use: before the old ones expired, or after a refusal")                \
	X(keys_failed, "granary_origin_keys_failed_total", COUNTER, "times",                       \
		"Searches for keys without a result; the present keys stay in use")                \
	UFS_CAUSES(UFS_CAUSE_ROW, X)

#define UFS_CAUSE_ROW(X, NAME, name, help) \
	X(cause_##name, "granary_origin_cause_" #name "_total", COUNTER, "attempts", help)

COUNTER_STRUCT(ufs_counters, UFS_COUNTERS);
const struct ufs_counters *ufs_counters(const struct ufs *ufs);
const struct counter_info *ufs_counter_table(uint32_t *ret_n);
