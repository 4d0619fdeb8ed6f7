/*
 * What a dataset is to be: options of `cachectl dataset create` and `update`, and the body of the
 * request that comes of them.
 *
 * Strings are borrowed from the arguments. Threads: one.
 */
#pragma once

#include "base/clock.h"
#include "base/policy.h"
#include "ctl/command.h"
#include "ctl/master_call.h"
#include "ctl/origin_options.h"

#define DATASET_UNSET UINT64_MAX

struct dataset_options {
	struct master_where where;
	const char *output;
	/* what it is made of */
	struct origin_options origin;
	const char *scope;
	struct option_list mounts;
	const char *path; /* of the mount that is meant; NULL: there is one only */
	bool check;
	/* what is wanted of it; DATASET_UNSET, NULL: not said */
	uint64_t quota;
	uint64_t priority;
	const char *pin;
	const char *evict;
	uint64_t bandwidth;
	const char *requests;
	const char *copies;
	const char *direct;
	uint64_t idle;
	uint64_t ttl;
	const char *consistency;
	uint64_t interval;
	struct option_list allow;
	struct option_list reset;
	bool force;
	bool yes;
};

#define DATASET_POLICY_ROWS                                                                        \
	OPTION_SIZE_ROW(struct dataset_options, quota, "quota", 0, INT64_MAX,                      \
		"Quota of each of its sources on each worker, such as 200GiB, or none "            \
		"(default: none)"),                                                                \
		OPTION_ROW(struct dataset_options, priority, "priority", OPTION_UINT,              \
			.max = PRIORITY_MAX,                                                       \
			.help = "Priority: the dataset with the lowest makes room first "          \
				"(default: 0)"),                                                   \
		OPTION_ROW(struct dataset_options, pin, "pin", OPTION_CHOICE, .choices = "yes|no", \
			.help = "Do not evict it for another dataset (default: no)"),              \
		OPTION_ROW(struct dataset_options, evict, "evict", OPTION_CHOICE,                  \
			.choices = TIER_EVICT_CHOICES,                                             \
			.help = "What to do when the cache is full: bypass it (never), or "        \
				"evict the least recently used chunks (lru) (default: never)"),    \
		OPTION_ROW(struct dataset_options, bandwidth, "origin-bandwidth", OPTION_RATE,     \
			.max = INT64_MAX,                                                          \
			.help = "Maximum rate at which a worker fetches each of its sources, "     \
				"such as "                                                         \
				"500MB/s, or none (default: none)"),                               \
		OPTION_STRING_ROW(struct dataset_options, requests, "origin-requests", "N/s",      \
			"Requests per second that a worker sends to each of its origins at "       \
			"most, such as 200/s, or none (default: none)"),                           \
		OPTION_STRING_ROW(struct dataset_options, copies, "copies", "N",                   \
			"Workers that keep each byte: the owner and those with readers "           \
			"and room for all of it (auto), the owner (shared), 1 to 3, or "           \
			"all (everywhere) (default: auto)"),                                       \
		OPTION_ROW(struct dataset_options, direct, "direct", OPTION_CHOICE,                \
			.choices = "yes|no",                                                       \
			.help = "Let mounts read from the origin when no worker answers, with "    \
				"the keys of their host (default: no)"),                           \
		OPTION_ROW(struct dataset_options, idle, "idle", OPTION_DURATION,                  \
			.help = "Time without a mount after which it is evicted before all "       \
				"others, such as 7d, or none (default: none)"),                    \
		OPTION_ROW(struct dataset_options, ttl, "ttl", OPTION_DURATION,                    \
			.help = "Time without a mount after which its cached data is dropped, "    \
				"such as 30d, or none (default: none)"),                           \
		OPTION_ROW(struct dataset_options, consistency, "consistency", OPTION_CHOICE,      \
			.choices = "pinned|follow",                                                \
			.help = "Show one generation until a refresh (pinned), or the sources "    \
				"as they change (follow) (default: pinned)"),                      \
		OPTION_ROW(struct dataset_options, interval, "interval", OPTION_DURATION,          \
			.min = CLOCK_SECOND, .max = 86400 * CLOCK_SECOND,                          \
			.help = "Interval at which sources are listed again, with follow "         \
				"(default: 60s)"),                                                 \
		OPTION_ROW(struct dataset_options, allow, "allow", OPTION_LIST, .metavar = "LIST", \
			.help = "Users and groups that may mount and preload it: uid:NAME, "       \
				"gid:NAME, * or none, separated by commas; replaces the list "     \
				"(default: none)")

struct dataset_options dataset_options_default(void);

/* "mounts", "name" and the rest of a new one; `url`: of the source at "/", or NULL. Failures of JSON
 * are counted (admin_json_failures()). */
int dataset_body_create(json_t *body, const struct dataset_options *o, const char *name,
	const char *url, struct err *e) __must_check;
/* What is to change. An empty body: nothing was said. */
int dataset_body_update(json_t *body, const struct dataset_options *o, struct err *e) __must_check;
