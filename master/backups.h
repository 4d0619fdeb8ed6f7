/*
 * The backups that a master keeps next to its state: one a day, and the last one that somebody asked
 * for.
 *
 *	STATE/backups/daily-YYYYMMDD.granary	the newest `keep` of them
 *	STATE/backups/asked.granary
 *
 * They guard against a mistake and a damaged store, not against the loss of the disk: copy them
 * elsewhere, or fetch one from elsewhere (`cachectl backup`).
 *
 * Threads: the daily ones are periodic work; the API on those of the admin server.
 */
#pragma once

#include "admin/admin.h"
#include "master/backup.h"

#define BACKUPS_KEEP_MAX 366u

struct backups;

struct backups_config {
	struct store *store; /* borrowed, as all of these, until backups_free() */
	const char *state;
	const char *tables;
	uint64_t keep; /* daily ones; 0: none is made */
};

int backups_new(const struct backups_config *config, struct backups **ret_backups,
	struct err *e) __must_check;
void backups_free(struct backups *b); /* waits for one under way; NULL is allowed */

/* ---- HTTP: the argument is the struct service ------------------------------------------------ */

/* POST /v1/backups -> {"file", "bytes", "records", "tables", "time", "cluster", "epoch"} */
int backups_api_create(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
/* GET /v1/backups -> {"backups": [{"file", "bytes", "time"}]}, the newest first */
int backups_api_list(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e);
