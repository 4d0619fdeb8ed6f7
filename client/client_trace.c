/* Where a read has waited. See client_trace.h. */
#include "client/client_trace.h"
#include "base/err.h"
#include "cluster/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACES 8u /* the last one has what came when there were as many */

struct place {
	char where[CLUSTER_NAME_BYTES];
	int status;
	uint32_t times;
	uint64_t ns;
};

struct client_trace {
	uint32_t n;
	struct place places[PLACES];
};

static struct place *find(struct client_trace *trace, const char *where, int status)
{
	struct place *place = trace->places;

	for (; place < trace->places + trace->n; place++)
		if (place->status == status &&
			strncmp(place->where, where, sizeof(place->where) - 1) == 0)
			return place;
	if (trace->n == PLACES)
		return &trace->places[PLACES - 1];
	if (++trace->n == PLACES) {
		where = "others";
		status = 0;
	}
	(void)snprintf(place->where, sizeof(place->where), "%s", where); /* cut */
	place->status = status;
	return place;
}

void client_trace_note(struct client_trace **trace, const char *where, int status, uint64_t ns)
{
	struct place *place;

	if (ns < CLIENT_TRACE_LEAST)
		return;
	if (!*trace)
		*trace = calloc(1, sizeof(**trace));
	if (!*trace)
		return;
	place = find(*trace, where, status);
	place->times++;
	place->ns += ns;
}

const char *client_trace_text(const struct client_trace *trace, char out[CLIENT_TRACE_TEXT])
{
	size_t len = 0;

	out[0] = '\0';
	for (uint32_t i = 0; trace && i < trace->n && len < CLIENT_TRACE_TEXT; i++) {
		const struct place *place = &trace->places[i];
		char times[24] = "";

		if (place->times > 1)
			(void)snprintf(times, sizeof(times), " %u times", place->times); /* fits */
		len += (size_t)snprintf(out + len, CLIENT_TRACE_TEXT - len,
			"%s%s %llu.%02llus%s%s%s", i ? ", " : "", place->where,
			(unsigned long long)(place->ns / CLOCK_SECOND),
			(unsigned long long)(place->ns % CLOCK_SECOND / (10 * CLOCK_MS)), times,
			place->status ? " " : "", place->status ? err_name(place->status) : "");
	}
	return out;
}

void client_trace_free(struct client_trace *trace)
{
	free(trace);
}
