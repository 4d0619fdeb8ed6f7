/* What the HTTP server and its client share. */
#pragma once

#include "admin/admin.h"

#define ADMIN_REQUEST_BYTES (1u << 20)  /* largest body of a request */
#define ADMIN_ANSWER_BYTES  (16u << 20) /* largest answer a client takes */
#define ADMIN_HEADER_BYTES  16384u

/* Routes of every server of a debug program, whose handlers do not look at `arg`; NULL in
 * production. Set before the first server is made. */
extern const struct admin_route *admin_debug_routes;

/* What the process may have and has; NULL without memory. */
json_t *admin_bounds_json(void);
int admin_bounds_metrics(struct buf *out) __must_check;
