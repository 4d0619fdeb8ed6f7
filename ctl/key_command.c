/*
 * cachectl key: the key of a cluster (net/identity.h). A file has two while they change: the first is used, both are
 * accepted. A file that is there is never written to: a new key is made beside it, and its line added by hand.
 */
#include "admin/admin.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/option.h"
#include "client/client_token.h"
#include "ctl/command.h"
#include "ctl/secret.h"
#include "ctl/subcommand.h"
#include "ctl/yaml_out.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define KEY_FORMAT CLUSTER_KEY_WORD " %s %s\n"
#define KEY_HEX    64
#define ID_HEX     8

struct key_command_options {
	const char *out;
	const char *output;
};

static const struct option_spec create_specs[] = {
	OPTION_STRING_ROW(struct key_command_options, out, "out", "FILE",
		"New file, readable by its owner only (default: standard output)"),
	OUTPUT_OPTION_ROW(struct key_command_options, output, OUTPUT_CHOICES),
};

static const struct option_set create_set = {
	.program = "cachectl key create",
	.arguments = "",
	.about = "Creates the key that masters and workers of a cluster share. To change keys, "
		 "create "
		 "another one\nand add its line below the first in the file of each; then swap the "
		 "two lines; then remove\nthe old one. Nothing needs a restart.",
	.specs = create_specs,
	.n = ARRAY_SIZE(create_specs),
};

static const struct option_spec show_specs[] = {
	OUTPUT_OPTION_ROW(struct key_command_options, output, OUTPUT_CHOICES),
};

static const struct option_set show_set = {
	.program = "cachectl key show",
	.arguments = "FILE",
	.about = "Shows the ids of the keys in a file, and the pins of the certificates of servers "
		 "that "
		 "have them, never the\nkeys.",
	.specs = show_specs,
	.n = ARRAY_SIZE(show_specs),
	.min_args = 1,
	.max_args = 1,
};

/* A file that was not there, 0600. */
int secret_write(const char *path, const char *text, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r = fd < 0 ? err_errno() : 0;

	if (r == -EEXIST)
		return err_set(e, r, "%s already exists: give another file", path);
	if (r < 0)
		return err_set(e, r, "cannot write %s: %s; give a file in a writable directory",
			path, err_str(r));
	r = file_pwrite_exact(fd, text, strlen(text), 0);
	if (r == 0 && fsync(fd) != 0)
		r = err_errno();
	if (close(fd) != 0 && r == 0)
		r = err_errno();
	if (r < 0)
		(void)unlink(path); /* half a secret is of no use */
	return r < 0 ? err_set(e, r, "cannot write %s: %s", path, err_str(r)) : 0;
}

/* An exit status. */
static int print_created(const struct key_command_options *o, const char *id, char *line)
{
	if (!output_is_table(o->output)) {
		line[strcspn(line, "\n")] = '\0';
		return yaml_out_made(
			o->output, o->out ? json_pack("{s:s, s:o}", "id", id, "file",
						    admin_json_string(o->out))
					  : json_pack("{s:s, s:s}", "id", id, "key", line));
	}
	if (o->out)
		(void)printf(
			"key %s written to %s: copy it to each master and worker of the cluster, "
			"and set cluster-key there\n",
			id, o->out);
	else
		(void)fputs(line, stdout);
	return EXIT_OK;
}

static int key_create(int argc, char **argv)
{
	struct key_command_options o = { .output = "table" };
	struct err e = ERR_INIT;
	uint8_t id[ID_HEX / 2];
	uint8_t key[KEY_HEX / 2];
	char id_hex[ID_HEX + 1];
	char key_hex[KEY_HEX + 1];
	char text[128];
	int r = 0;

	(void)option_parse_or_exit(&create_set, argc, argv, &o);
	hash_random(id, sizeof(id));
	hash_random(key, sizeof(key));
	hash_hex(id, sizeof(id), id_hex);
	hash_hex(key, sizeof(key), key_hex);
	(void)snprintf(text, sizeof(text), KEY_FORMAT, id_hex, key_hex); /* fits */
	if (o.out)
		r = secret_write(o.out, text, &e);
	if (r == 0)
		r = print_created(&o, id_hex, text);
	explicit_bzero(key, sizeof(key));
	explicit_bzero(key_hex, sizeof(key_hex));
	explicit_bzero(text, sizeof(text));
	if (r < 0)
		return command_fail(r == -EEXIST ? EXIT_USAGE : EXIT_RUNTIME, &e);
	return r;
}

static int key_show(int argc, char **argv)
{
	struct key_command_options o = { .output = "table" };
	struct key_shown keys[KEYS_MAX];
	char pin[2 * PIN_BYTES + 1];
	char id[ID_HEX + 1];
	struct err e = ERR_INIT;
	json_t *all;
	int status;
	int n;

	(void)option_parse_or_exit(&show_set, argc, argv, &o);
	n = keys_read(argv[1], keys, &e);
	if (n < 0)
		return command_fail(EXIT_USAGE, &e);
	all = json_array();
	for (int i = 0; i < n; i++) {
		hash_hex(keys[i].pin, PIN_BYTES, pin);
		(void)snprintf(id, sizeof(id), "%08x", keys[i].id); /* fits */
		if (output_is_table(o.output))
			(void)printf("%s  pin %s  %s\n", id, pin,
				i == 0 ? "used and accepted" : "accepted");
		else if (json_array_append_new(all, json_pack("{s:s, s:s, s:b}", "id", id, "pin",
							    pin, "used", i == 0)) < 0)
			n = 0; /* reported below */
	}
	status = output_is_table(o.output)
			 ? EXIT_OK
			 : yaml_out_made(o.output, n ? json_pack("{s:O}", "keys", all) : NULL);
	json_decref(all);
	return status;
}

int command_key(int argc, char **argv)
{
	static const struct subcommand commands[] = {
		{ "create", key_create, "Create a key" },
		{ "show", key_show, "Show the ids of the keys in a file" },
	};

	return subcommand_run("cachectl key",
		"The key that masters and workers of a cluster share. A process that has it is "
		"trusted as "
		"one of them.",
		commands, ARRAY_SIZE(commands), argc, argv);
}
