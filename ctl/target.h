/*
 * What a command acts on, in one form for all commands:
 *
 *	NAME	a dataset of the master
 *	URL	s3://BUCKET/PREFIX, obs://BUCKET/PREFIX or file:///DIRECTORY: the dataset, or the mounts, of that source
 *	DIR	a mount point: what is mounted there
 *
 * A word that begins as "s3:/" does is a URL; "." and "..", and a word with '/', are a DIR; any other word is a NAME, unless
 * the command is about mounts and the word is a mount point in the working directory. "./DIR" is always a DIR.
 *
 * Threads: one.
 */
#pragma once

#include "ctl/fleet.h"
#include "ctl/master_call.h"

enum target_kind { TARGET_NAME, TARGET_URL, TARGET_DIR };
enum target_kind target_kind(const char *word);

/*
 * Replaces *word by the name of the matching dataset, which lives until the next call. A NAME stays as it is, and is not asked
 * for. An exit status, with a line: no dataset has that source, or several have.
 */
int target_dataset(const struct master_where *where, char **word, struct err *e) __must_check;

/* The volumes and subtrees of a target; of a URL, which need not be known to a master, its text. */
struct target;

/*
 * Resolves `word`. With a DIR, or a word that is a mount point: that mount. With a NAME the master is asked. An exit status
 * with a line. target_free() releases it.
 */
int target_new(const struct master_where *where, const char *word, struct target **ret_target,
	struct err *e) __must_check;
void target_free(struct target *target);

/* Has the dataset, as the master shows it, what a mount with this status shows, and nothing else? */
bool target_shows(const json_t *status, const json_t *dataset);
/* Does the target match the mount in this row of fleet_state()? */
bool target_is(const struct target *target, const json_t *mount);
/* The same, with the answer of its daemon, which then is not asked; NULL: it did not answer. */
bool target_is_answer(const struct target *target, const json_t *mount, const json_t *answer);
/* The line of a target of which no mount is found here; an exit status. */
int target_not_found(const struct target *target, struct err *e);

/* The only mount that matches `word`. An exit status with a line: none, or which ones. */
int target_mount(const struct master_where *where, const char *word, struct fleet_mount *ret_mount,
	struct err *e) __must_check;
