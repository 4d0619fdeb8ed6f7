/*
 * cachectl key: the key of a cluster (net/identity.h). A file has two while they change: the first is used, both are
 * accepted. A file that is there is never written to: a new key is made beside it, and its line added by hand.
 */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/option.h"
#include "client/client_token.h"
#include "ctl/command.h"
#include "ctl/secret.h"
#include "ctl/subcommand.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define KEY_FORMAT CLUSTER_KEY_WORD " %s %s\n"
#define KEY_HEX    64
#define ID_HEX     8

struct key_command_options {
	const char *out;
};

static const struct option_spec create_specs[] = {
	OPTION_STRING_ROW(struct key_command_options, out, "out", "FILE",
		"a new file, which only its owner may read; standard output"),
};

static const struct option_set create_set = {
	.program = "cachectl key create",
	.arguments = "",
	.about = "Makes the key that masters and workers of a cluster have in common. To change "
		 "keys, "
		 "make another one\nand add its line behind the first in the file of each; then "
		 "change "
		 "the two lines' order; then remove\nthe old one. Nothing needs to be restarted.",
	.specs = create_specs,
	.n = ARRAY_SIZE(create_specs),
};

static const struct option_set show_set = {
	.program = "cachectl key show",
	.arguments = "FILE",
	.about = "Says which keys a file has, by their ids and the pins of the certificates of "
		 "servers "
		 "that have them: never the keys.",
	.min_args = 1,
	.max_args = 1,
};

/* A file that was not there, 0600. */
int secret_write(const char *path, const char *text, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r = fd < 0 ? err_errno() : 0;

	if (r == -EEXIST)
		return err_set(
			e, r, "%s is there already and is left alone: name a new file", path);
	if (r < 0)
		return err_set(e, r, "cannot write %s: %s: name a file in a directory of yours",
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

static int key_create(int argc, char **argv)
{
	struct key_command_options o = { 0 };
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
	if (!o.out)
		(void)fputs(text, stdout);
	else
		r = secret_write(o.out, text, &e);
	explicit_bzero(key, sizeof(key));
	explicit_bzero(key_hex, sizeof(key_hex));
	explicit_bzero(text, sizeof(text));
	if (r < 0)
		return command_fail(EXIT_RUNTIME, &e);
	if (o.out)
		(void)printf("key %s is in %s: copy it to every master and worker of the cluster, "
			     "and name it "
			     "there as cluster-key\n",
			id_hex, o.out);
	return EXIT_OK;
}

static int key_show(int argc, char **argv)
{
	struct key_shown keys[KEYS_MAX];
	char pin[2 * PIN_BYTES + 1];
	struct err e = ERR_INIT;
	int n;

	(void)option_parse_or_exit(&show_set, argc, argv, NULL);
	n = keys_read(argv[1], keys, &e);
	if (n < 0)
		return command_fail(EXIT_RUNTIME, &e);
	for (int i = 0; i < n; i++) {
		hash_hex(keys[i].pin, PIN_BYTES, pin);
		(void)printf("%08x  pin %s  %s\n", keys[i].id, pin,
			i == 0 ? "used and accepted" : "accepted");
	}
	return EXIT_OK;
}

int command_key(int argc, char **argv)
{
	static const struct subcommand commands[] = {
		{ "create", key_create, "make a key" },
		{ "show", key_show, "say which keys a file has" },
	};

	return subcommand_run("cachectl key",
		"The key that masters and workers of a cluster have in common: who has it is one "
		"of them.",
		commands, ARRAY_SIZE(commands), argc, argv);
}
