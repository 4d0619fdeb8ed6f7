/*
 * The options of a daemon from all places, the later over the earlier: what the program has without,
 * the file named by --config, the environment, the command line.
 *
 *	log-level: info			at the top: keys of all daemons, config_shared()
 *	worker:				a section per daemon (option_set.section)
 *	  tier: [ /data/a, "/data/b,kind=hdd" ]
 *	  memory: 4GiB
 *
 * A key is an option's name. A file without sections is all of the daemon that reads it. Other
 * daemons' sections are not looked at. The environment has GRANARY_WORKER_MEMORY for `memory` of
 * `worker` (items of a list separated by blanks), and GRANARY_LOG_LEVEL for what is shared; other variables are not looked up, for
 * Kubernetes makes some that begin alike.
 *
 * What is wrong is one line: FILE:LINE: KEY: reason; allowed: what.
 *
 * SIGHUP: config_reload() reads file and environment again. Of what changed, options marked `reload` get their
 * new value in the caller's struct; for the rest the log says that they need a restart. With
 * anything wrong all stays as it is.
 *
 * Lifetime: texts from the file and the environment belong to the config, those of the command
 * line to argv. A text of an option marked `reload` lives until the next config_reload(). Threads:
 * main() only; what other threads read is set by the caller's `changed`.
 */
#pragma once

#include <signal.h>
#include <stddef.h>
#include "base/cleanup.h"
#include "base/option.h"

struct config;

/*
 * Parses argv and what it leads to into `values` (`size` bytes, filled with the defaults, kept by the
 * caller for as long as the config). Takes no arguments besides options. 0; OPTION_HELP; -EINVAL,
 * -E2BIG, -ENOMEM or -errno of the file with a line.
 */
int config_open(const struct option_set *set, int argc, char **argv, void *values, size_t size,
	struct config **ret_config, struct err *e) __must_check;
void config_free(struct config *config);
DEFINE_CLEANUP(struct config *, config_free);

/*
 * The same for a program's main(): prints the help or the line and exits, and answers what cachectl
 * asks of a daemon's configuration: with --config-check as the first word it exits 0 when all is
 * right, files that it names included (option_set.look), with --config-show it prints all values (config_show()) and exits.
 */
struct config *config_open_or_exit(
	const struct option_set *set, int argc, char **argv, void *values, size_t size);

/* Reads file and environment again; see above. The number of options that changed, or as config_open(). */
int config_reload(struct config *config, struct err *e) __must_check;

/* The same without changing anything: 0, when config_reload() would not fail. */
int config_check(const struct config *config, struct err *e) __must_check;

/* Is what `text` (of file `name`) says to the daemons of `set` right, as far as it goes? `defaults`
 * are `size` bytes. 0, or as config_open(). */
int config_check_text(const struct option_set *set, const char *name, const char *text, size_t len,
	const void *defaults, size_t size, struct err *e) __must_check;

/* The file; NULL: none was named, and there is nothing to reload. */
const char *config_file(const struct config *config);

/* It has sections: it is also for other daemons. */
bool config_has_sections(const struct config *config);

/* A line per option that may stand in a file: name, value, where it came from ("default",
 * "FILE:LINE", "GRANARY_WORKER_MEMORY", "command line"), separated by tabs. */
void config_show(const struct config *config, FILE *out);

/* Sections of all daemons, and keys that may stand outside of them; both end with NULL. */
const char *const *config_sections(void);
const char *const *config_shared(void);

/* The name of `names` (n of them) most like `word`, or NULL when none is near. */
const char *config_nearest(const char *word, const char *const *names, size_t n);
