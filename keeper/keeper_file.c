/* The mounts' copy of the configuration file. See keeper_file.h. */
#include "keeper/keeper_file.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/yaml_tree.h"
#include "mount/cachefuse_options.h"

#include <stdio.h>

const char *keeper_file_copy(const struct keeper_config *config, char out[SOCKET_PATH_MAX])
{
	if (!config->file || !config_has_sections(config->file))
		return NULL;
	(void)snprintf(
		out, SOCKET_PATH_MAX, "%s/mounts.yaml", config->run); /* its sockets' are longer */
	return out;
}

int keeper_file_take(const struct keeper_config *config, struct err *e)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(YAML_TREE_BYTES);
	struct cachefuse_options defaults;
	char path[SOCKET_PATH_MAX];
	const char *copy = keeper_file_copy(config, path);
	int r;

	if (!copy)
		return 0;
	r = file_read_all(config_file(config->file), &text);
	if (r < 0)
		return err_set(e, r, "%s: cannot be read: %s; give a file that exists",
			config_file(config->file), err_str(r));
	cachefuse_options_init(&defaults);
	r = config_check_text(&cachefuse_option_set, config_file(config->file), buf_str(&text),
		text.len, &defaults, sizeof(defaults), e);
	if (r < 0)
		return r;
	r = file_mkdirs(config->run, 0700);
	if (r == 0)
		r = file_write_atomic(copy, text.data, text.len, 0600);
	return r < 0 ? err_set(e, r, "%s cannot be written: %s: give another --run", copy,
			       err_str(r))
		     : 0;
}
