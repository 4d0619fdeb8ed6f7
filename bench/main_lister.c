/*
 * bench-lister: lists a source as the master does, and makes its object table and image.
 *
 *	bench-lister --endpoint URL [--requests N] [--memory SIZE] [--build DIRECTORY] s3://BUCKET/PREFIX
 *
 * Prints one JSON line: keys, LISTs sent, seconds of the listing; with --build also seconds of
 * table and image, their bytes, and the peak of resident memory after each step (what the process
 * took, KiB of /proc/self/status).
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/option.h"
#include "catalog/catalog.h"
#include "ufs/ufs.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTING_BYTES (512ull << 20) /* as the master's */

DEFINE_CLEANUP(struct listing *, listing_free);
DEFINE_CLEANUP(struct ufs *, ufs_free);

struct options {
	const char *endpoint;
	const char *build;
	uint64_t requests;
	uint64_t memory;
};

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct options, endpoint, "endpoint", "URL", "of the S3 server"),
	OPTION_STRING_ROW(struct options, build, "build", "DIR", "makes table and image there"),
	OPTION_ROW(struct options, requests, "requests", OPTION_UINT, .min = 1, .max = 256,
		.help = "LISTs at a time; the default of ufs/ufs.h"),
	OPTION_SIZE_ROW(struct options, memory, "memory", 1 << 20, 0,
		"of the listing, the rest of it goes to the directory of --build; 512MiB"),
};

static const struct option_set option_set = { .program = "bench-lister",
	.arguments = "URL",
	.about = "Lists a source and says how fast.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1 };

static int take(void *arg, const struct ufs_object *objects, uint32_t n)
{
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++)
		r = listing_add(arg, objects[i].key, objects[i].key_len, objects[i].size,
			objects[i].mtime_ns, objects[i].tag, objects[i].tag_len);
	return r;
}

static uint64_t peak_kib(void)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	uint64_t kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "VmHWM:", 6) == 0)
			kib = strtoull(line + 6, NULL, 10);
	return kib;
}

static double seconds_since(uint64_t began)
{
	return (double)(clock_mono_ns() - began) / 1e9;
}

/* Table and image of the listing; prints their part of the line. */
static int build(const char *directory, struct listing *listing, struct err *e)
{
	struct volume_id volume;
	struct image_options options = { .umask = 022 };
	struct image_info info;
	struct table *table = NULL;
	char path[PATH_MAX];
	uint64_t began = clock_mono_ns();
	int fd;
	int r;

	volume_id_of_source("bench", &volume);
	(void)snprintf(path, sizeof(path), "%s/table", directory);
	r = generation_build(&volume, NULL, listing, path, NULL, NULL, e);
	if (r < 0)
		return r;
	(void)printf(", \"table_seconds\": %.4f, \"table_peak_kib\": %" PRIu64,
		seconds_since(began), peak_kib());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, err_errno(), "%s: %m", path);
	began = clock_mono_ns();
	r = table_open(fd, &table, e);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%s/image", directory);
	r = image_build(table, &options, path, NULL, NULL, &info, e);
	if (r == 0)
		(void)printf(", \"image_seconds\": %.4f, \"image_peak_kib\": %" PRIu64
			     ", \"table_bytes\": %" PRIu64 ", \"image_bytes\": %" PRIu64
			     ", \"files\": %" PRIu64,
			seconds_since(began), peak_kib(), table_info(table)->table_bytes,
			info.image_bytes, info.files);
	table_unref(table);
	return r;
}

static int run(const struct options *options, const char *url, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config config = { 0 };
	_cleanup_(listing_free_p) struct listing *listing = listing_new(options->memory);
	_cleanup_(ufs_free_p) struct ufs *ufs = NULL;
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	uint64_t before = peak_kib();
	uint64_t began;
	int r = ufs_config_parse(url, &config, e);

	if (r < 0)
		return r;
	if (options->endpoint && !(config.endpoint = strdup(options->endpoint)))
		return -ENOMEM;
	config.path_style = true;
	limits.list_requests = (unsigned int)options->requests;
	r = listing ? 0 : -ENOMEM;
	if (r == 0 && options->build)
		r = listing_spill_to(listing, options->build, UINT64_MAX);
	if (r == 0)
		r = ufs_open(&config, &limits, &ufs, e);
	if (r < 0)
		return r;
	began = clock_mono_ns();
	r = ufs_list(ufs, take, listing, e);
	if (r < 0)
		return r;
	(void)printf("{\"seconds\": %.4f, \"keys\": %" PRIu64 ", \"lists\": %" PRIu64
		     ", \"start_kib\": %" PRIu64 ", \"list_peak_kib\": %" PRIu64,
		seconds_since(began), listing_count(listing),
		(uint64_t)counter_get(&ufs_counters(ufs)->lists), before, peak_kib());
	if (options->build)
		r = build(options->build, listing, e);
	(void)printf("}\n");
	return r;
}

int main(int argc, char **argv)
{
	struct options options = { .requests = UFS_LIMITS_DEFAULT.list_requests,
		.memory = LISTING_BYTES };
	struct err e = ERR_INIT;
	int r;

	(void)option_parse_or_exit(&option_set, argc, argv, &options); /* exactly one argument */
	r = run(&options, argv[1], &e);
	if (r < 0) {
		(void)fprintf(stderr, "bench-lister: %s\n", e.text[0] ? e.text : err_str(r));
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
