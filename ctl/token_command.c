/*
 * cachectl token: a token lets who has it read one dataset, or (--admin) do all that an administrator may. The master
 * makes it; it is checked by every worker on its own.
 */
#include "admin/admin.h"
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
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <stdio.h>
#include <string.h>

struct token_options {
	struct master_where where;
	uint64_t ttl_ns;
	bool admin;
	const char *out;
	const char *output;
};

static const struct option_spec create_specs[] = {
	OPTION_ROW(struct token_options, ttl_ns, "ttl", OPTION_DURATION, .min = CLOCK_SECOND,
		.help = "Time until the token expires (default: 30d)"),
	OPTION_BOOL_ROW(struct token_options, admin, "admin",
		"For an administrator, who may change datasets, workers and preloads, and read no "
		"data "
		"(default: for the dataset NAME)"),
	OPTION_STRING_ROW(struct token_options, out, "out", "FILE",
		"New file, readable by its owner only (default: standard output)"),
	MASTER_OPTION_ROWS(struct token_options, where),
	OUTPUT_OPTION_ROW(struct token_options, output, OUTPUT_CHOICES),
};

static const struct option_set create_set = {
	.program = "cachectl token create",
	.exits = { EXIT_MOUNTPOINT, EXIT_CACHE },
	.arguments = "[NAME|URL|DIR]",
	.about = "Creates a token that allows mounts of one dataset and nothing else. On a node "
		 "that uses it, set\n`token` to its file. It ends when it expires, or when the "
		 "cluster key is replaced.",
	.specs = create_specs,
	.n = ARRAY_SIZE(create_specs),
	.max_args = 1,
};

static const struct option_spec show_specs[] = {
	OUTPUT_OPTION_ROW(struct token_options, output, OUTPUT_CHOICES),
};

static const struct option_set show_set = {
	.program = "cachectl token show",
	.arguments = "FILE",
	.about = "Shows what the token in a file allows, and until when.",
	.specs = show_specs,
	.n = ARRAY_SIZE(show_specs),
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
		status = command_exit(master_call(
			&o->where, "POST", "/v1/tokens", body, MASTER_CALL_NS, ret_json, e));
	json_decref(body);
	return e->code == -ENOKEY ? EXIT_RUNTIME : status; /* of the master, not of an origin */
}

static int write_token(const struct token_options *o, const char *text, struct err *e)
{
	char line[TOKEN_TEXT_MAX + 2];
	int r;

	(void)snprintf(line, sizeof(line), "%s\n", text); /* fits: TOKEN_TEXT_MAX */
	r = secret_write(o->out, line, e);
	explicit_bzero(line, sizeof(line));
	return r == 0 ? EXIT_OK : r == -EEXIST ? EXIT_USAGE : EXIT_RUNTIME;
}

/* An older master sends a text. */
static const char *expires_text(const json_t *json, char out[CLOCK_TEXT_MAX])
{
	const json_t *expires = json_object_get(json, "expires");

	return json_is_string(expires) ? json_string_value(expires)
				       : clock_text((uint64_t)json_integer_value(expires), out);
}

/* An exit status. */
static int print_created(const struct token_options *o, json_t *json)
{
	char expires[CLOCK_TEXT_MAX];

	if (!output_is_table(o->output)) {
		if (o->out) {
			(void)json_object_del(json, "token"); /* is there */
			(void)json_object_set_new(
				json, "file", admin_json_string(o->out)); /* shown */
		}
		return yaml_out_answer(o->output, json);
	}
	if (o->out)
		(void)printf("token %s written to %s, valid until %s\n",
			json_string_value(json_object_get(json, "serial")), o->out,
			expires_text(json, expires));
	else
		(void)printf("%s\n", json_string_value(json_object_get(json, "token")));
	return EXIT_OK;
}

static int token_create(int argc, char **argv)
{
	struct token_options o = { .output = "table" };
	struct err e = ERR_INIT;
	json_t *json = NULL;
	const char *text;
	int status = EXIT_OK;
	int n = option_parse_or_exit(&create_set, argc, argv, &o);

	if (o.admin == (n > 0)) {
		(void)err_set(&e, -EINVAL, "no dataset: give NAME, or --admin, but not both");
		return command_fail(EXIT_USAGE, &e);
	}
	if (n > 0)
		status = target_dataset(&o.where, &argv[1], &e);
	if (status == EXIT_OK)
		status = ask(&o, n > 0 ? argv[1] : NULL, &json, &e);
	text = json_string_value(json_object_get(json, "token"));
	if (status == EXIT_OK && !text) {
		(void)err_set(
			&e, -EPROTO, "no token in the answer of the master: check its version");
		status = EXIT_RUNTIME;
	}
	if (status == EXIT_OK && o.out)
		status = write_token(&o, text, &e);
	if (status != EXIT_OK)
		(void)command_fail(status, &e); /* returns it */
	else
		status = print_created(&o, json);
	json_decref(json);
	return status;
}

static bool has_expired(const struct token_claims *claims)
{
	return claims->expires_s <= clock_wall_ns() / CLOCK_SECOND;
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
		has_expired(claims) ? " (expired)" : "");
}

/* The same for programs. */
static json_t *show_json(const struct token_claims *claims, const uint8_t pin[PIN_BYTES])
{
	uint64_t failures = admin_json_failures();
	json_t *volumes = json_array();
	const char *prefix = claims->prefixes;
	char hex[2 * PIN_BYTES + 1];
	json_t *json;

	for (uint32_t i = 0; i < claims->n_volumes; i++) {
		hash_hex(claims->volumes[i].bytes, VOLUME_ID_LEN, hex);
		(void)json_array_append_new(volumes, /* counted */
			json_pack("{s:s, s:s%}", "volume", hex, "prefix", prefix,
				(size_t)claims->prefix_bytes[i]));
		prefix += claims->prefix_bytes[i];
	}
	hash_hex(pin, PIN_BYTES, hex);
	json = json_pack("{s:b, s:s, s:I, s:b}", "admin", (int)claims->admin, "pin", hex, "expires",
		(json_int_t)min(claims->expires_s, (uint64_t)INT64_MAX), "expired",
		(int)has_expired(claims));
	hash_hex(claims->serial, sizeof(claims->serial), hex);
	(void)json_object_set_new(json, "token", json_string(hex));                   /* counted */
	(void)json_object_set_new(json, "key", json_sprintf("%08x", claims->key_id)); /* counted */
	(void)json_object_set_new(json, "volumes", volumes);                          /* counted */
	if (!claims->admin) {
		hash_hex(claims->dataset, sizeof(claims->dataset), hex);
		(void)json_object_set_new(json, "dataset", json_string(hex)); /* counted */
	}
	if (json && admin_json_failures() == failures)
		return json;
	json_decref(json);
	return NULL;
}

static int token_show(int argc, char **argv)
{
	struct token_options o = { .output = "table" };
	struct token_claims claims;
	uint8_t pin[PIN_BYTES];
	struct err e = ERR_INIT;

	(void)option_parse_or_exit(&show_set, argc, argv, &o);
	if (token_read(argv[1], &claims, pin, &e) < 0)
		return command_fail(EXIT_USAGE, &e);
	if (!output_is_table(o.output))
		return yaml_out_made(o.output, show_json(&claims, pin));
	show(&claims, pin);
	return EXIT_OK;
}

int command_token(int argc, char **argv)
{
	static const struct subcommand commands[] = {
		{ "create", token_create, "Create a token" },
		{ "show", token_show, "Show what a token allows" },
	};

	return subcommand_run("cachectl token",
		"Tokens let a node mount one dataset, or a person administer all, without the "
		"cluster "
		"key.",
		commands, ARRAY_SIZE(commands), argc, argv);
}
