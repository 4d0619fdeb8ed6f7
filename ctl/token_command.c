/*
 * cachectl token: a token lets who has it read one dataset, or (--admin) do all that an administrator may. The master
 * makes it; it is checked by every worker on its own.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/option.h"
#include "base/units.h"
#include "client/client_token.h"
#include "ctl/command.h"
#include "ctl/dataset_command.h"
#include "ctl/secret.h"
#include "ctl/subcommand.h"

#include <stdio.h>
#include <string.h>

struct token_options {
	struct master_where where;
	uint64_t ttl_ns;
	bool admin;
	const char *out;
};

static const struct option_spec create_specs[] = {
	OPTION_ROW(struct token_options, ttl_ns, "ttl", OPTION_DURATION, .min = CLOCK_SECOND,
		.help = "how long it is good for; 30d"),
	OPTION_BOOL_ROW(struct token_options, admin, "admin",
		"for an administrator: changes datasets, workers and preloads, reads no data"),
	OPTION_STRING_ROW(struct token_options, out, "out", "FILE",
		"a new file, which only its owner may read; standard output"),
	MASTER_OPTION_ROWS(struct token_options, where),
};

static const struct option_set create_set = {
	.program = "cachectl token create",
	.arguments = "[NAME]",
	.about = "Makes a token with which the dataset NAME can be mounted, and nothing else be "
		 "had: on a node "
		 "that\nis to have one, it is named as `token` there. It ends by itself, or with "
		 "the cluster "
		 "key of the day.",
	.specs = create_specs,
	.n = ARRAY_SIZE(create_specs),
	.max_args = 1,
};

static const struct option_set show_set = {
	.program = "cachectl token show",
	.arguments = "FILE",
	.about = "Says what the token in a file is for, and until when.",
	.min_args = 1,
	.max_args = 1,
};

static int ask(const struct token_options *o, const char *name, json_t **ret_json, struct err *e)
{
	json_t *body = json_object();
	int status;

	if (o->ttl_ns)
		(void)json_object_set_new(body, "ttl_s",
			json_integer((json_int_t)(o->ttl_ns / CLOCK_SECOND))); /* counted */
	if (name)
		status = dataset_call(&o->where, "POST", name, "/tokens", body, ret_json, e);
	else
		status = dataset_exit(master_call(
			&o->where, "POST", "/v1/tokens", body, MASTER_CALL_NS, ret_json, e));
	json_decref(body);
	return status;
}

static int token_create(int argc, char **argv)
{
	struct token_options o = { 0 };
	struct err e = ERR_INIT;
	json_t *json = NULL;
	const char *text;
	char line[TOKEN_TEXT_MAX + 2];
	int status;

	int n = option_parse_or_exit(&create_set, argc, argv, &o);

	if (o.admin == (n > 0)) {
		(void)err_set(&e, -EINVAL,
			"a token is for the dataset NAME, or with --admin for an administrator: "
			"say one of the two");
		return command_fail(EXIT_USAGE, &e);
	}
	status = ask(&o, n > 0 ? argv[1] : NULL, &json, &e);
	text = json_string_value(json_object_get(json, "token"));
	if (status == EXIT_OK && !text) {
		(void)err_set(&e, -EPROTO, "the master gave no token: do versions differ?");
		status = EXIT_RUNTIME;
	}
	if (status == EXIT_OK) {
		(void)snprintf(line, sizeof(line), "%s\n", text); /* fits: TOKEN_TEXT_MAX */
		if (!o.out)
			(void)fputs(line, stdout);
		else if (secret_write(o.out, line, &e) < 0)
			status = EXIT_RUNTIME;
		explicit_bzero(line, sizeof(line));
	}
	if (status == EXIT_OK && o.out)
		(void)printf("token %s is in %s, good until %s\n",
			json_string_value(json_object_get(json, "serial")), o.out,
			json_string_value(json_object_get(json, "expires")));
	json_decref(json);
	return status == EXIT_OK ? EXIT_OK : command_fail(status, &e);
}

static void show(const struct token_claims *claims, const uint8_t pin[PIN_BYTES])
{
	char hex[2 * PIN_BYTES + 1];
	char serial[2 * sizeof(claims->serial) + 1];
	char expires[CLOCK_TEXT_MAX];
	const char *prefix = claims->prefixes;

	hash_hex(claims->serial, sizeof(claims->serial), serial);
	hash_hex(claims->dataset, sizeof(claims->dataset), hex);
	(void)printf("token    %s\n", serial);
	(void)printf("for      %s\n", claims->admin ? "an administrator" : "a dataset");
	if (!claims->admin)
		(void)printf("dataset  %s\n", hex);
	for (uint32_t i = 0; i < claims->n_volumes; i++) {
		hash_hex(claims->volumes[i].bytes, VOLUME_ID_LEN, hex);
		(void)printf("volume   %s%s%.*s\n", hex, claims->prefix_bytes[i] ? " " : "",
			(int)claims->prefix_bytes[i], prefix);
		prefix += claims->prefix_bytes[i];
	}
	hash_hex(pin, PIN_BYTES, hex);
	(void)printf("key      %08x\n", claims->key_id);
	(void)printf("pin      %s\n", hex);
	(void)printf("expires  %s%s\n", clock_text(claims->expires_s, expires),
		claims->expires_s <= clock_wall_ns() / CLOCK_SECOND ? " (it has)" : "");
}

static int token_show(int argc, char **argv)
{
	struct token_claims claims;
	uint8_t pin[PIN_BYTES];
	struct err e = ERR_INIT;

	(void)option_parse_or_exit(&show_set, argc, argv, NULL);
	if (token_read(argv[1], &claims, pin, &e) < 0)
		return command_fail(EXIT_RUNTIME, &e);
	show(&claims, pin);
	return EXIT_OK;
}

int command_token(int argc, char **argv)
{
	static const struct subcommand commands[] = {
		{ "create", token_create, "make a token" },
		{ "show", token_show, "say what a token is for" },
	};

	return subcommand_run("cachectl token",
		"What lets a node mount one dataset, or a person administer all, without the "
		"cluster's key.",
		commands, ARRAY_SIZE(commands), argc, argv);
}
