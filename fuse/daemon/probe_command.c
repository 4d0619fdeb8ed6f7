/* What can be had here, without a mount point. See probe_command.h. */
#include "fuse/daemon/probe_command.h"
#include "base/cleanup.h"
#include "base/exit.h"
#include "base/option.h"
#include "fuse/engine/engine.h"
#include "mount/kernel/kernel.h"

#include <jansson.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define INIT_BYTES   (FUSE_MIN_READ_BUFFER * 2) /* the kernel asks for room for the largest */
#define INIT_WAIT_MS 2000

struct probe_options {
	struct engine_query query;
	bool probe;
};

static const struct option_spec specs[] = {
	OPTION_BOOL_ROW(struct probe_options, probe, "probe",
		"Print the available engines, and end (default: no)"),
	OPTION_ROW(struct probe_options, query.image_dir, "image-dir", OPTION_STRING,
		.metavar = "DIR", .required = true, .help = "Directory for images; it must exist"),
	OPTION_BOOL_ROW(struct probe_options, query.allow_other, "allow-other",
		"Check that other users can read the mount (default: no)"),
};

static const struct option_set set = {
	.program = "cachefuse --probe",
	.arguments = "",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

/* The kernel's first request says which protocol it speaks. */
static bool read_init(int dev_fd, struct fuse_init_in *ret_init)
{
	_cleanup_free_ char *request = malloc(INIT_BYTES);
	struct pollfd p = { .fd = dev_fd, .events = POLLIN };
	struct fuse_in_header header;
	ssize_t n;

	if (!request || poll(&p, 1, INIT_WAIT_MS) != 1)
		return false;
	n = read(dev_fd, request, INIT_BYTES);
	/* Of later members older kernels send none. */
	if (n < (ssize_t)(sizeof(header) + 2 * sizeof(uint32_t)))
		return false;
	memcpy(&header, request, sizeof(header));
	memcpy(ret_init, request + sizeof(header), 2 * sizeof(uint32_t));
	return header.opcode == FUSE_INIT;
}

/* By a mount that is attached nowhere, and gone with its descriptors. */
static json_t *protocol_json(void)
{
	struct fuse_init_in init = { 0 };
	_cleanup_close_ int dev_fd = -1;
	_cleanup_close_ int mount_fd = -1;
	dev_t dev = 0;

	if (!kernel_may_mount() || kernel_open_fuse(&dev_fd, NULL) < 0 ||
		kernel_mount_fuse(dev_fd, "granary-probe", &mount_fd, &dev, NULL) < 0 ||
		!read_init(dev_fd, &init))
		return NULL;
	return json_sprintf("%u.%u", init.major, init.minor);
}

int probe_command(int argc, char **argv)
{
	struct probe_options options = { .query = { .engine = "auto" } };
	json_t *list = json_array();
	const char *first = NULL;
	json_t *json;
	bool written;

	(void)option_parse_or_exit(&set, argc, argv, &options); /* takes no arguments */
	for (const struct engine *const *at = engine_list; *at; at++) {
		const struct engine *engine = *at;
		struct err e = ERR_INIT;
		bool ok = engine->probe(&options.query, &e) == 0;

		if (ok && !first)
			first = engine->name;
		(void)json_array_append_new(list,
			json_pack("{s:s, s:b, s:s}", "name", engine->name, "ok", (int)ok, "text",
				ok ? engine->auto_why : e.text)); /* fails without memory only */
	}
	json = json_pack(
		"{s:o, s:s*, s:o*}", "engines", list, "auto", first, "protocol", protocol_json());
	written = json && json_dumpf(json, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER) == 0 &&
		  putchar('\n') != EOF && fflush(stdout) == 0;
	json_decref(json);
	return written ? EXIT_OK : EXIT_RUNTIME;
}
