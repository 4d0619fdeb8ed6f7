#include "tests/unit/master/fixture.h"

char fixture_dir[64];

static char path_buffer[512];

const char *fixture_in(const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(path_buffer, sizeof(path_buffer), "%s/", fixture_dir);

	va_start(ap, fmt);
	(void)vsnprintf(path_buffer + n, sizeof(path_buffer) - (size_t)n, fmt, ap);
	va_end(ap);
	return path_buffer;
}

void fixture_put(const char *name, const char *text)
{
	assert_int_equal(
		file_write_atomic(fixture_in("origin/%s", name), text, strlen(text), 0644), 0);
}

int fixture_make(void)
{
	(void)snprintf(fixture_dir, sizeof(fixture_dir), "/var/tmp/granary-ma.XXXXXX");
	return mkdtemp(fixture_dir) && file_mkdirs(fixture_in("origin"), 0755) == 0 &&
			       file_mkdirs(fixture_in("other"), 0755) == 0 &&
			       file_mkdirs(fixture_in("state/tables"), 0700) == 0
		       ? 0
		       : -1;
}

int fixture_remove(void)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf %s", fixture_dir);
	return system(command);
}

struct ufs_limits fixture_limits(uint64_t patience_ns)
{
	return (struct ufs_limits){ .max_requests = 4,
		.list_requests = 4,
		.request_timeout_ns = patience_ns,
		.deadline_ns = 2 * patience_ns };
}

struct source_set_config fixture_sources(struct store *store, uint64_t epoch)
{
	static char tables[128];

	(void)snprintf(tables, sizeof(tables), "%s/state/tables", fixture_dir);
	return (struct source_set_config){ .store = store,
		.tables = tables,
		.epoch = epoch,
		.listing_bytes = 64 * MiB,
		.limits = fixture_limits(CLOCK_SECOND),
		.hold_ns = 3600 * CLOCK_SECOND };
}
