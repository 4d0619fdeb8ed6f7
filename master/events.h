/*
 * The last notable things that happened, for people who look: what somebody changed, generations that
 * were made, listings that failed, workers that came and went, preloads that ended. A bounded list in
 * memory, which begins anew with the master; the log and the audit log are what lasts.
 *
 *	GET /v1/events?after=SEQ&limit=N	those after number SEQ, oldest first; without `after` the last N
 *
 * Numbers grow by one; `run` tells one start of the master from another. One list per process, as
 * there is one log. Texts may hold names that anybody gave: they are data, never markup. No secrets.
 *
 * Threads: any, after events_open(); before it nothing is kept.
 */
#pragma once

#include "admin/admin.h"
#include "admin/audit.h"

#define EVENTS_MAX       1000u
#define EVENT_KIND_BYTES 24u
#define EVENT_ON_BYTES   160u
#define EVENT_TEXT_BYTES 256u

enum event_level {
	EVENT_INFO,
	EVENT_WARN,
	EVENT_ERROR,
};

/* -ENOMEM: nothing is kept. */
int events_open(void) __must_check;
void events_close(void);

/*
 * `kind` is a short fixed word ("generation"); `on` names what it is about (may be NULL). What is
 * said again within some minutes, word for word, is kept once. Longer texts are cut.
 */
void event_note(enum event_level level, const char *kind, const char *on, const char *fmt, ...)
	__printf(4, 5);
/* For audit_watch(): what somebody changed, or tried to. */
void event_audit(void *arg, const struct audit_act *act);

/* The route's handler. -EINVAL: a parameter is no number. */
int events_api_list(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
