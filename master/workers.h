/*
 * What workers say of themselves with each question about retention settings: tiers, stalls, version. For people only: who is in
 * the cluster, and in what state, is of membership.h.
 *
 *	GET    /v1/workers		{"workers": [{"number", "name", "state", "tiers": [...], ...}]}
 *	GET    /v1/workers/NAME		one of them, by name, number or id
 *	POST   /v1/workers/NAME/drain	others own what it owns, and pull it from there
 *	POST   /v1/workers/NAME/undrain	it owns its share again
 *	DELETE /v1/workers/NAME?force=1	it is no member any more
 *	GET    /v1/slots		who owns how many, which are hot
 *	GET    /v1/slots/SLOT		one of them
 *
 * Threads: any; the lock is a leaf but for events.
 */
#pragma once

#include "admin/admin.h"
#include "base/clock.h"
#include "master/history.h"
#include "master/membership.h"
#include "proto/granary.pb-c.h"

#define WORKER_TIERS_MAX 64u

struct workers;

/* `membership` is borrowed. NULL without memory. */
struct workers *workers_new(struct membership *membership);
void workers_free(struct workers *w); /* NULL is allowed */

struct membership *workers_membership(const struct workers *w); /* borrowed */

/* Takes down a report. NULL is allowed. */
void workers_report(struct workers *w, const Granary__WorkerReport *m);
/* What all members have, and how often readers stalled; not what these were given. */
void workers_sum(struct workers *w, struct history_cluster *ret_cluster);
/* Bytes in the tiers of the one with this id, by its last report; 0: none came. */
uint64_t workers_used(struct workers *w, uint64_t id);
/* The array of workers; `name`: of that one alone, which is answered itself (-ENOENT, -EEXIST). -ENOMEM. */
int workers_json(
	struct workers *w, const char *name, json_t **ret_json, struct err *e) __must_check;
/* {"epoch", "sequence", "workers": [...], ...}; -ENOMEM. */
int workers_slots_json(struct workers *w, json_t **ret_json, struct err *e) __must_check;
/* {"slot", "owner", ...}; -EINVAL: there is no such slot. */
int workers_slot_json(
	struct workers *w, const char *slot, json_t **ret_json, struct err *e) __must_check;

/* ---- workers_api.c: the routes' handlers; `arg` of each is a struct service ------------------- */

int workers_api_list(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int workers_api_get(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int workers_api_drain(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int workers_api_undrain(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int workers_api_remove(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int workers_api_slots(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
int workers_api_slot(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
