/*
 * cachectl key: the key of a cluster (net/identity.h). A file has two while they change: the first is used, both are
 * accepted. A file that is there is never written to: a new key is made beside it, and its line added by hand.
 */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/option.h"
#include "ctl/command.h"
#include "ctl/secret.h"
#include "ctl/subcommand.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define KEY_FORMAT "granary-key %s %s\n"
#define KEY_HEX    64
#define ID_HEX     8
#define FILE_MAX   16384

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
	.about = "Says which keys a file has, by their ids: never the keys.",
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

/* Prints the ids; how many there are, or -EINVAL. */
static int show_lines(char *text)
{
	char *save = NULL;
	int n = 0;

	for (char *line = strtok_r(text, "\r\n", &save); line;
		line = strtok_r(NULL, "\r\n", &save)) {
		char id[ID_HEX + 1];
		int at = 0;

		line += strspn(line, " \t");
		if (*line == '\0' || *line == '#')
			continue;
		if (sscanf(line, "granary-key %8[0-9a-fA-F] %n", id, &at) != 1 || at == 0 ||
			strspn(line + at, "0123456789abcdefABCDEF") != KEY_HEX)
			return -EINVAL;
		(void)printf("%s  %s\n", id, n == 0 ? "used and accepted" : "accepted");
		n++;
	}
	return n > 0 ? n : -EINVAL;
}

static int key_show(int argc, char **argv)
{
	struct buf b = BUF_INIT(FILE_MAX);
	struct err e = ERR_INIT;
	int r;

	(void)option_parse_or_exit(&show_set, argc, argv, NULL);
	r = file_read_all(argv[1], &b);
	if (r < 0)
		(void)err_set(&e, r, "cannot read %s: %s: name a file that this user may read",
			argv[1], err_str(r));
	if (r == 0 && (!b.data || show_lines(b.data) < 0))
		r = err_set(&e, -EINVAL,
			"%s has a line that is no key: make one with `cachectl key create`",
			argv[1]);
	if (b.data)
		explicit_bzero(b.data, b.len);
	buf_release(&b);
	return r < 0 ? command_fail(EXIT_RUNTIME, &e) : EXIT_OK;
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
