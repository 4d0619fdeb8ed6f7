/* What a smaller quota evicts. See quota.h. */
#include "ctl/quota.h"
#include "base/exit.h"
#include "base/units.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* What one worker has of a source beyond `quota`. A full replica that exceeds the quota also drops its copies. */
static uint64_t excess_of(const json_t *worker, uint64_t quota)
{
	uint64_t owned = (uint64_t)json_integer_value(json_object_get(worker, "cached_bytes"));
	uint64_t copies = (uint64_t)json_integer_value(json_object_get(worker, "copy_bytes"));

	if (owned + copies <= quota)
		return 0;
	if (json_is_true(json_object_get(worker, "whole")) && copies > 0)
		return copies + owned - min(owned, quota);
	return owned + copies - quota;
}

/* Each source is counted once. */
static uint64_t excess_bytes(const json_t *sources, uint64_t quota)
{
	const json_t *source;
	const json_t *worker;
	uint64_t sum = 0;
	size_t i;
	size_t k;

	json_array_foreach (sources, i, source) {
		const json_t *volume = json_object_get(source, "volume");
		size_t first = 0;

		while (first < i &&
			!json_equal(
				json_object_get(json_array_get(sources, first), "volume"), volume))
			first++;
		if (first < i)
			continue;
		json_array_foreach (json_object_get(source, "workers"), k, worker)
			sum += excess_of(worker, quota);
	}
	return sum;
}

/* An older master does not report workers, and none does without memory: more may be evicted than is known. */
static bool is_unknown(const json_t *sources, uint64_t quota)
{
	const json_t *source;
	size_t i;

	json_array_foreach (sources, i, source)
		if (!json_object_get(source, "workers") &&
			(uint64_t)json_integer_value(json_object_get(source, "cached_bytes")) >
				quota)
			return true;
	return false;
}

int quota_confirm(
	const json_t *sources, uint64_t quota, const char *what, const char *done, struct err *e)
{
	uint64_t bytes = excess_bytes(sources, quota);
	char answer[16] = "";
	char size[16];

	if (is_unknown(sources, quota)) {
		(void)err_set(e, -EBUSY,
			"%s not %s: the master does not report how much each worker has cached; "
			"give --yes to evict what exceeds the quota",
			what, done);
		return EXIT_BUSY;
	}
	if (bytes == 0)
		return EXIT_OK;
	(void)units_size(bytes, size, sizeof(size));
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
		(void)err_set(e, -EBUSY,
			"%s not %s: the quota will evict %s; give --yes to evict it", what, done,
			size);
		return EXIT_BUSY;
	}
	(void)fprintf(stderr, "The quota will evict %s of %s. Continue? [y/N] ", size, what);
	if (!fgets(answer, sizeof(answer), stdin))
		(void)fputc('\n', stderr); /* after the question */
	if (strcasecmp(answer, "y\n") == 0 || strcasecmp(answer, "yes\n") == 0)
		return EXIT_OK;
	(void)err_set(e, -ECANCELED, "%s not %s", what, done);
	return EXIT_RUNTIME;
}
