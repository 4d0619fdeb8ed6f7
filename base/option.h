/*
 * Command-line options, declared once as a table: parsing, the line for a bad one, and --help come
 * from it.
 *
 *	struct my_options { const char *listen; uint64_t memory; };
 *	static const struct option_spec specs[] = {
 *		OPTION_STRING_ROW(struct my_options, listen, "listen", "ADDR", "where to serve"),
 *		OPTION_SIZE_ROW(struct my_options, memory, "memory", 64 * MiB, 0, "bytes at most"),
 *	};
 *
 * "--name value" and "--name=value"; a bool is "--name" or "--no-name", also "--name=true"; "--" ends the options;
 * options and arguments may mix. An option given twice takes the last value, one of a list adds it; the first
 * one replaces the list's default. Names are never abbreviated. The values point into argv and live as long as it
 * does. Daemons take values from a file and the environment, too (base/config.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/err.h"

enum option_kind {
	OPTION_STRING,   /* const char * */
	OPTION_CHOICE,   /* const char *: one of `choices`, separated by '|' */
	OPTION_SIZE,     /* uint64_t, bytes (base/units.h) */
	OPTION_RATE,     /* uint64_t, bytes per second */
	OPTION_DURATION, /* uint64_t, nanoseconds */
	OPTION_UINT,     /* uint64_t */
	OPTION_OCTAL,    /* uint64_t, digits read as octal: a umask */
	OPTION_FD,       /* int, a file descriptor number */
	OPTION_BOOL,     /* bool */
	OPTION_LIST,     /* struct option_list: may be given several times */
};

#define OPTION_LIST_MAX   64u
#define OPTION_LIST_USUAL 16u

struct option_list {
	const char *values[OPTION_LIST_MAX]; /* in the order given */
	unsigned int n;
};

struct option_spec {
	const char *name; /* without the dashes */
	char letter;      /* "-o"; 0: none */
	enum option_kind kind;
	bool hidden;         /* not in --help */
	bool required;       /* must be given */
	bool reload;         /* of a daemon: takes effect at SIGHUP (base/config.h) */
	size_t offset;       /* of the value in the caller's struct */
	uint64_t min;        /* smallest number allowed */
	uint64_t max;        /* largest; 0: no bound */
	unsigned int most;   /* values of an OPTION_LIST; 0: OPTION_LIST_USUAL */
	const char *metavar; /* "DIR"; NULL: by kind */
	const char *choices; /* OPTION_CHOICE: "table|json" */
	const char *help;    /* one line, no full stop */
	/* What else must hold of the value: 0, or -EINVAL with reason and what is allowed. May be NULL. */
	int (*check)(const char *text, struct err *e);
};

/* The end of the help of a cache's capacity: tier_default_capacity(). */
#define OPTION_CAPACITY_DEFAULT \
	"(default: 90% of the free space, leaving at least 2GiB, or a quarter of a small disk)"
#define OPTION_SPECS_MAX 256u
#define OPTION_EXITS_MAX 8u

#define OPTION_ROW(type, member, optname, optkind, ...)                                 \
	{                                                                               \
		.name = (optname), .kind = (optkind), .offset = offsetof(type, member), \
		__VA_ARGS__                                                             \
	}
#define OPTION_STRING_ROW(type, member, name, meta, text) \
	OPTION_ROW(type, member, name, OPTION_STRING, .metavar = (meta), .help = (text))
#define OPTION_SIZE_ROW(type, member, name, least, most, text) \
	OPTION_ROW(type, member, name, OPTION_SIZE, .min = (least), .max = (most), .help = (text))
#define OPTION_BOOL_ROW(type, member, name, text) \
	OPTION_ROW(type, member, name, OPTION_BOOL, .help = (text))
#define OPTION_FD_ROW(type, member, name, text) \
	OPTION_ROW(type, member, name, OPTION_FD, .help = (text))

/* What a program or command accepts. */
struct option_set {
	const char *program;   /* "cachectl mount" */
	const char *arguments; /* "URL DIR", or "" */
	const char *about;     /* what it does; may have several lines; may be NULL */
	const char *section;   /* of a daemon: its part of a configuration file, "worker" */
	unsigned char exits
		[OPTION_EXITS_MAX]; /* of a command: its statuses of base/exit.h above EXIT_USAGE, ascending */
	bool started;               /* by another daemon, which gives it what is required */
	/* Of a daemon: what --config-check checks in addition to the values: files that they name. 0, or -errno with a line and the
	 * option that it is about. May be NULL. */
	int (*look)(const void *values, const char **ret_option, struct err *e);
	const struct option_spec *specs;
	unsigned int n;
	unsigned int min_args;
	unsigned int max_args;
	/* Number of the argument that begins a command, 0: none. Options end with it when it is one word; a line with blanks is the
	 * whole command, and options may follow. */
	unsigned int command;
};

/* Is `text` one of `choices`, "a|b"? NULL has none. */
bool option_is_choice(const char *choices, const char *text);

/* Returned by option_parse() when --help was asked for. */
#define OPTION_HELP 1

/*
 * Parses argv[1..argc) into `values`, which the caller has filled with the defaults. Arguments that
 * are no options are moved to argv[1], argv[2], ... in order, *ret_args of them. 0, OPTION_HELP, or
 * -EINVAL with a line that names what is allowed.
 */
int option_parse(const struct option_set *set, int argc, char **argv, void *values, int *ret_args,
	struct err *e) __must_check;

/* The same for a program's main(): prints the help and exits 0, or the line and exits EXIT_USAGE.
 * Returns the number of arguments. */
int option_parse_or_exit(const struct option_set *set, int argc, char **argv, void *values);

void option_help(const struct option_set *set, FILE *out);

/* From now on option_parse_or_exit() calls look(arg, set) and exits 0: what a command accepts, for
 * completion. NULL: no more. */
void option_look(void (*look)(void *arg, const struct option_set *set), void *arg);
