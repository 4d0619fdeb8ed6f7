/* What a daemon counts and whether it is ready, for those who watch. See server_internal.h. */
#include "admin/server_internal.h"
#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

#define METRICS_BYTES (4u << 20)

int admin_server_add_counters(struct admin_server *server, const struct counter_info *table,
	uint32_t n, const void *counters)
{
	uint32_t at = atomic_load(&server->n_tables);

	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	if (at == ADMIN_TABLES_MAX)
		return -ENOBUFS;
	server->tables[at] = (struct admin_table){ .rows = table, .n = n, .counters = counters };
	atomic_store(&server->n_tables, at + 1);
	return 0;
}

void admin_server_on_metrics(struct admin_server *server, void (*refresh)(void *arg), void *arg)
{
	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	server->refresh_arg = arg;
	atomic_store(&server->refresh, refresh);
}

json_t *admin_counters_json(const struct counter_info *table, uint32_t n, const void *counters)
{
	json_t *json = json_object();

	for (uint32_t i = 0; json && i < n; i++)
		if (json_object_set_new(json, table[i].symbol,
			    json_integer((json_int_t)counter_read(&table[i], counters))) != 0) {
			json_decref(json);
			return NULL;
		}
	return json;
}

int admin_server_add_histograms(struct admin_server *server, const struct histogram_info *table,
	uint32_t n, const void *histograms)
{
	uint32_t at = atomic_load(&server->n_histogram_tables);

	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	if (at == ADMIN_TABLES_MAX)
		return -ENOBUFS;
	server->histogram_tables[at] =
		(struct admin_histogram_table){ .rows = table, .n = n, .histograms = histograms };
	atomic_store(&server->n_histogram_tables, at + 1);
	return 0;
}

int admin_server_add_metrics(
	struct admin_server *server, void (*write)(void *arg, struct metrics *m), void *arg)
{
	uint32_t at = atomic_load(&server->n_writers);

	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	if (at == ADMIN_WRITERS_MAX)
		return -ENOBUFS;
	server->writers[at] = (struct admin_writer){ write, arg };
	atomic_store(&server->n_writers, at + 1);
	return 0;
}

void admin_server_on_ready(
	struct admin_server *server, void (*ready)(void *arg, json_t *reasons), void *arg)
{
	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	server->ready_arg = arg;
	atomic_store(&server->ready, ready);
}

static void own_metrics(struct admin_server *server, struct metrics *m)
{
	static const struct counter_info counters[] = {
#define ROW(symbol, name, kind, unit, help) \
	COUNTER_ROW(admin_counters, symbol, name, kind, unit, help)
		ADMIN_COUNTERS(ROW)
#undef ROW
	};
	static const struct histogram_info histograms[] = {
#define ROW(symbol, name, label, value, help) \
	HISTOGRAM_ROW(admin_histograms, symbol, name, label, value, help)
		ADMIN_HISTOGRAMS(ROW)
#undef ROW
	};

	counter_set(&server->counters.audit_lost, audit_lost());
	metrics_counters(m, counters, ARRAY_SIZE(counters), &server->counters);
	metrics_histograms(m, histograms, ARRAY_SIZE(histograms), &server->histograms);
	admin_bounds_metrics(m);
	admin_process_metrics(m);
}

enum MHD_Result admin_respond_metrics(
	struct admin_server *server, struct MHD_Connection *connection)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(METRICS_BYTES);
	const char *accept =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
	struct metrics m = { .out = &out,
		.open = accept && strstr(accept, "application/openmetrics-text") };

	void (*refresh)(void *arg) = atomic_load(&server->refresh);

	if (refresh)
		refresh(server->refresh_arg);
	for (uint32_t i = 0; i < server->n_tables; i++)
		metrics_counters(&m, server->tables[i].rows, server->tables[i].n,
			server->tables[i].counters);
	for (uint32_t i = 0; i < server->n_histogram_tables; i++)
		metrics_histograms(&m, server->histogram_tables[i].rows,
			server->histogram_tables[i].n, server->histogram_tables[i].histograms);
	for (uint32_t i = 0; i < server->n_writers; i++)
		server->writers[i].write(server->writers[i].arg, &m);
	own_metrics(server, &m);
	metrics_end(&m);
	if (m.error < 0)
		return admin_respond_error(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, m.error,
			"no memory for the metrics", NULL);
	return admin_respond(connection, MHD_HTTP_OK,
		m.open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
		       : "text/plain; version=0.0.4; charset=utf-8",
		buf_str(&out), out.len, NULL);
}

/* {"ready": false, "reasons": ["..."]} */
enum MHD_Result admin_respond_ready(
	const struct admin_server *server, struct MHD_Connection *connection, bool trusted)
{
	void (*tell)(void *arg, json_t *reasons) = atomic_load(&server->ready);
	json_t *reasons = json_array();
	json_t *json;
	enum MHD_Result r;
	bool ready;

	if (reasons && tell)
		tell(server->ready_arg, reasons);
	ready = reasons && json_array_size(reasons) == 0;
	if (!trusted)
		(void)json_array_clear(reasons); /* never fails */
	json = json_pack("{s:b, s:o}", "ready", ready, "reasons", reasons);
	r = json ? admin_respond_json(connection,
			   ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, json, NULL)
		 : MHD_NO;
	json_decref(json);
	return r;
}
