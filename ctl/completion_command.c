/* cachectl completion, and what its scripts ask. See completion.h. */
#include "base/mount_table.h"
#include "base/option.h"
#include "ctl/command.h"
#include "ctl/completion.h"
#include "ctl/fleet.h"
#include "ctl/master_call.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_NS 500000000ull
#define WORDS_MAX 64

/* Subcommands, which no table of options has. */
static const struct named {
	const char *command;
	const char *subcommands; /* separated by '|' */
	bool alone;              /* takes arguments of its own, too */
} known[] = {
	{ "dataset", "create|list|show|update|rename|delete|generations|diff|rollback", false },
	{ "preload", "list|show|cancel|watch", true },
	{ "worker", "list|show|drain|undrain|remove", false },
	{ "config", "check|show", false },
	{ "key", "create|show", false },
	{ "token", "create|show", false },
	{ "job", "submit|run|list|get|events|logs|why|wait|suspend|resume|scale|delete|lint|schema",
		false },
};

/* The words of one question. */
struct question {
	const struct subcommand *commands;
	size_t n_commands;
	const char *words[WORDS_MAX]; /* after "cachectl"; the last is the one to complete */
	unsigned int n;
	const struct named *named; /* of the command; NULL: it has no subcommands */
	unsigned int first;        /* word after command and subcommand */
};

static const char *current(const struct question *q)
{
	return q->words[q->n - 1];
}

static void offer(const struct question *q, const char *word)
{
	if (strncmp(word, current(q), strlen(current(q))) == 0)
		(void)printf("%s\n", word);
}

/* Each of "a|b|c", after `before`. */
static void offer_each(const struct question *q, const char *before, const char *list)
{
	for (const char *p = list; p; p = strchr(p, '|'), p = p ? p + 1 : NULL) {
		char word[256];

		(void)snprintf(word, sizeof(word), "%s%.*s", before, (int)strcspn(p, "|"), p);
		offer(q, word); /* short: written here */
	}
}

/* ---- names of what runs ---------------------------------------------------------------------- */

static int offer_mounts(void *arg, const char *run)
{
	const struct question *q = arg;
	json_t *state = fleet_state(run);
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, mount) {
		const char *point = json_string_value(json_object_get(mount, "mountpoint"));

		if (point && !strchr(point, '\n'))
			offer(q, point);
	}
	json_decref(state);
	return 0;
}

/* The `key` of each object in the master's list. */
static void offer_of_master(
	const struct question *q, const char *path, const char *list, const char *key)
{
	const struct master_where where = { 0 };
	struct err e = ERR_INIT;
	json_t *answer = NULL;
	const json_t *all;
	const json_t *one;
	size_t i;

	if (master_call(&where, NULL, path, NULL, ANSWER_NS, &answer, &e) < 0)
		return;
	all = json_is_array(answer) ? answer : json_object_get(answer, list);
	json_array_foreach (all, i, one) {
		const json_t *value = json_object_get(one, key);
		char number[32];

		if (json_is_string(value)) {
			offer(q, json_string_value(value));
		} else if (json_is_integer(value)) {
			(void)snprintf(number, sizeof(number), "%lld",
				(long long)json_integer_value(value));
			offer(q, number);
		}
	}
	json_decref(answer);
}

static void offer_commands(const struct question *q)
{
	for (size_t i = 0; i < q->n_commands; i++)
		if (q->commands[i].help)
			offer(q, q->commands[i].name);
}

static bool is_one_of(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; p; p = strchr(p, '|'), p = p ? p + 1 : NULL)
		if (strcspn(p, "|") == len && strncmp(p, word, len) == 0)
			return true;
	return false;
}

/* ---- options --------------------------------------------------------------------------------- */

static const struct option_spec *find_option(const struct option_set *set, const char *word)
{
	size_t len = strcspn(word, "=");

	for (unsigned int i = 0; i < set->n; i++) {
		const struct option_spec *spec = &set->specs[i];

		if (strncmp(word, "--", 2) == 0 && strlen(spec->name) == len - 2 &&
			strncmp(spec->name, word + 2, len - 2) == 0)
			return spec;
		if (word[0] == '-' && len == 2 && spec->letter && spec->letter == word[1])
			return spec;
	}
	return NULL;
}

/* `before` stands in front of the value in the same word. */
static void offer_values(
	const struct question *q, const struct option_spec *spec, const char *before)
{
	const char *meta = spec->metavar ? spec->metavar : "";

	if (spec->kind == OPTION_CHOICE)
		offer_each(q, before, spec->choices);
	else if (*before)
		return; /* the shell would take the whole word for a path */
	else if (strncmp(meta, "DIR", 3) == 0)
		(void)printf(":dirs\n");
	else if (strcmp(meta, "FILE") == 0 || strcmp(meta, "PATH") == 0 ||
		 strncmp(meta, "SOCKET", 6) == 0)
		(void)printf(":files\n");
}

static void offer_options(const struct question *q, const struct option_set *set)
{
	char word[128];

	for (unsigned int i = 0; i < set->n; i++) {
		if (set->specs[i].hidden)
			continue;
		(void)snprintf(word, sizeof(word), "--%s", set->specs[i].name); /* short */
		offer(q, word);
	}
	offer(q, "--help");
}

/* What one word of a usage line stands for: "NAME", "DIR"; in small letters it is the word itself. */
static void offer_argument(
	const struct question *q, const struct option_set *set, const char *word, size_t len)
{
	static const struct {
		const char *word;
		const char *answer;
	} paths[] = { { "DIR", ":dirs" }, { "FILE", ":files" }, { "PATH", ":files" } };
	char text[32];

	(void)snprintf(
		text, sizeof(text), "%.*s", (int)len, word); /* cut: then it is none of them */
	if (text[0] >= 'a' && text[0] <= 'z') {
		offer(q, text);
	} else if (strcmp(text, "NAME") == 0 &&
		   strcmp(set->program, "cachectl dataset create") != 0) {
		offer_of_master(q, "/v1/datasets", "datasets", "name");
	} else if (strcmp(text, "WORKER") == 0) {
		offer_of_master(q, "/v1/workers", "workers", "name");
	} else if (strcmp(text, "ID") == 0) {
		offer_of_master(q, "/v1/preloads", "preloads", "id");
	} else if (strcmp(text, "DIR") == 0 && strstr(set->arguments, "URL|DIR")) {
		if (fleet_each_run(offer_mounts, (void *)(uintptr_t)q) < 0)
			return; /* none is known */
	} else {
		for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
			if (strcmp(text, paths[i].word) == 0)
				(void)printf("%s\n", paths[i].answer);
	}
}

static void offer_arguments(const struct question *q, const struct option_set *set)
{
	if (q->named && q->n == 2)
		offer_each(q, "", q->named->subcommands);
	for (const char *p = set->arguments; *p;) {
		size_t len = strcspn(p, " |[]");

		offer_argument(q, set, p, len);
		p += len;
		p += strspn(p, " |[]");
	}
}

/* The table of the command that the words name. */
static void answer_with(void *arg, const struct option_set *set)
{
	const struct question *q = arg;
	const struct option_spec *spec = find_option(set, current(q));
	const char *equals = strchr(current(q), '=');
	char before[128];

	if (spec && equals) {
		(void)snprintf(before, sizeof(before), "%.*s", (int)(equals - current(q)) + 1,
			current(q)); /* short */
		offer_values(q, spec, before);
	} else if (q->n > q->first + 1 && !strchr(q->words[q->n - 2], '=') &&
		   (spec = find_option(set, q->words[q->n - 2])) && spec->kind != OPTION_BOOL) {
		offer_values(q, spec, "");
	} else if (current(q)[0] == '-') {
		offer_options(q, set);
	} else {
		offer_arguments(q, set);
	}
	(void)fflush(stdout); /* the caller exits */
}

/* ---- questions ------------------------------------------------------------------------------- */

/* bash makes three words of `--output=json`: they are one again. */
static void take_words(struct question *q, int argc, char **argv, char *joined, size_t size)
{
	for (int i = 1; i < argc && q->n < WORDS_MAX; i++) {
		const char *before = q->n ? q->words[q->n - 1] : "";
		bool part = strcmp(argv[i], "=") == 0 || strcmp(argv[i - 1], "=") == 0;
		int used;

		if (!part || strncmp(before, "--", 2) != 0) {
			q->words[q->n++] = argv[i];
			continue;
		}
		used = snprintf(joined, size, "%s%s", before, argv[i]);
		if (used < 0 || (size_t)used >= size)
			return; /* nobody types that */
		q->words[q->n - 1] = joined;
		joined += used + 1;
		size -= (size_t)used + 1;
	}
}

static const struct subcommand *find_command(const struct question *q)
{
	for (size_t i = 0; i < q->n_commands; i++)
		if (strcmp(q->commands[i].name, q->words[0]) == 0)
			return &q->commands[i];
	return NULL;
}

static void find_named(struct question *q)
{
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(known[i].command, q->words[0]) == 0)
			q->named = &known[i];
	q->first = 1;
	if (q->named && q->n > 2 && is_one_of(q->named->subcommands, q->words[1]))
		q->first = 2;
}

int completion_answer(const struct subcommand *commands, size_t n, int argc, char **argv)
{
	static char joined[8192];
	struct question q = { .commands = commands, .n_commands = n };
	const struct subcommand *command;
	char *words[3] = { NULL };
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	(void)dup2(null, STDERR_FILENO); /* a line would stand in the middle of what is typed */
	take_words(&q, argc, argv, joined, sizeof(joined));
	if (q.n == 0)
		q.words[q.n++] = "";
	if (q.n == 1) {
		offer_commands(&q);
		return EXIT_OK;
	}
	command = find_command(&q);
	if (!command)
		return EXIT_OK;
	find_named(&q);
	if (q.named && q.first == 1 && q.n == 2 && !q.named->alone) {
		offer_each(&q, "", q.named->subcommands);
		return EXIT_OK;
	}
	if (strcmp(command->name, "help") == 0)
		offer_commands(&q);
	if (strcmp(command->name, "restore") == 0) { /* another program's */
		(void)printf(":files\n");
		return EXIT_OK;
	}
	if (strcmp(command->name, "help") == 0)
		return EXIT_OK; /* no options */
	words[0] = (char *)(uintptr_t)q.words[0];
	words[1] = q.first == 2 ? (char *)(uintptr_t)q.words[1] : NULL;
	option_look(answer_with, &q);
	return command->run((int)q.first, words);
}

int completion_list(const struct subcommand *commands, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct named *named = NULL;

		if (!commands[i].help)
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(known); k++)
			if (strcmp(known[k].command, commands[i].name) == 0)
				named = &known[k];
		if (!named || named->alone)
			(void)printf("%s\n", commands[i].name);
		for (const char *p = named ? named->subcommands : NULL; p;
			p = strchr(p, '|'), p = p ? p + 1 : NULL)
			(void)printf("%s %.*s\n", commands[i].name, (int)strcspn(p, "|"), p);
	}
	return EXIT_OK;
}

/* ---- scripts --------------------------------------------------------------------------------- */

static const char bash_script[] =
	"# Completion of cachectl for bash: source <(cachectl completion bash)\n"
	"_cachectl()\n"
	"{\n"
	"	local IFS=$'\\n' answer typed=${COMP_WORDS[COMP_CWORD]}\n"
	"	COMPREPLY=()\n"
	"	for answer in $(cachectl __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" "
	"2>/dev/null); do\n"
	"		case $answer in\n"
	"		:dirs) compopt -o filenames; COMPREPLY+=($(compgen -d -- \"$typed\")) ;;\n"
	"		:files) compopt -o filenames; COMPREPLY+=($(compgen -f -- \"$typed\")) ;;\n"
	"		--*=*) COMPREPLY+=(\"${answer#*=}\") ;;\n"
	"		*) COMPREPLY+=(\"$answer\") ;;\n"
	"		esac\n"
	"	done\n"
	"}\n"
	"complete -F _cachectl cachectl\n";

static const char zsh_script[] =
	"#compdef cachectl\n"
	"# Completion of cachectl for zsh: source <(cachectl completion zsh)\n"
	"_cachectl()\n"
	"{\n"
	"	local -a answer\n"
	"	answer=(\"${(@f)$(cachectl __complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
	"	(( ${answer[(I):dirs]} )) && _files -/\n"
	"	(( ${answer[(I):files]} )) && _files\n"
	"	answer=(${answer:#:*})\n"
	"	compadd -a answer\n"
	"}\n"
	"compdef _cachectl cachectl\n";

static const char fish_script[] =
	"# Completion of cachectl for fish: cachectl completion fish | source\n"
	"function __cachectl_complete\n"
	"	set -l words (commandline -opc) (commandline -ct)\n"
	"	for answer in (cachectl __complete $words[2..-1] 2>/dev/null)\n"
	"		switch $answer\n"
	"			case :dirs\n"
	"				__fish_complete_directories (commandline -ct)\n"
	"			case :files\n"
	"				__fish_complete_path (commandline -ct)\n"
	"			case '*'\n"
	"				echo $answer\n"
	"		end\n"
	"	end\n"
	"end\n"
	"complete -c cachectl -f -a '(__cachectl_complete)'\n";

static const struct option_set set = {
	.program = "cachectl completion",
	.arguments = "bash|zsh|fish",
	.about = "Prints a script that completes commands, options and names of cachectl in that "
		 "shell.\nFor one session: source <(cachectl completion bash)",
	.min_args = 1,
	.max_args = 1,
};

int command_completion(int argc, char **argv)
{
	static const struct {
		const char *shell;
		const char *script;
	} shells[] = { { "bash", bash_script }, { "zsh", zsh_script }, { "fish", fish_script } };
	struct err e = ERR_INIT;

	(void)option_parse_or_exit(&set, argc, argv, NULL); /* exactly one argument */
	for (size_t i = 0; i < ARRAY_SIZE(shells); i++)
		if (strcmp(argv[1], shells[i].shell) == 0) {
			(void)fputs(shells[i].script, stdout);
			return fflush(stdout) == 0 ? EXIT_OK : EXIT_RUNTIME;
		}
	(void)err_set(&e, -EINVAL, "unsupported shell '%s': use bash, zsh or fish", argv[1]);
	return command_fail(EXIT_USAGE, &e);
}
