/* What a worker tells people: /v1/status, /v1/chunk, /metrics. On threads of the admin server. */
#pragma once

#include "admin/admin.h"
#include "cacheworker/worker.h"

extern const struct admin_route status_routes[]; /* arg: struct worker */
int status_add_counters(struct worker *w) __must_check;
