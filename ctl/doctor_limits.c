/* doctor: descriptors, memory, and a place for sockets. */
#include "base/limits.h"
#include "base/memory.h"
#include "base/units.h"
#include "ctl/cache_dir.h"
#include "ctl/doctor.h"

#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void check_descriptors(struct doctor *d)
{
	struct rlimit limit = { 0 };
	const uint64_t wanted = 4ull * LIMIT_CHUNK_FDS; /* a quarter goes to chunk files */

	(void)getrlimit(RLIMIT_NOFILE, &limit); /* cannot fail with these arguments */
	if (limit.rlim_max >= wanted)
		doctor_ok(d, "limits", "open files: up to %llu, %llu are enough",
			(unsigned long long)limit.rlim_max, (unsigned long long)wanted);
	else
		doctor_warn(d, "limits",
			"open files: limited to %llu, so that %llu chunk files stay open instead "
			"of %u and the rest are opened again for each read: raise the limit with "
			"ulimit -Hn or in /etc/security/limits.conf",
			(unsigned long long)limit.rlim_max, (unsigned long long)limit.rlim_max / 4,
			LIMIT_CHUNK_FDS);
}

static void check_memory(struct doctor *d)
{
	uint64_t wants = d->options->memory;
	uint64_t there = memory_there();
	uint64_t free_now = memory_available();
	bool group = memory_group_limit() == there;
	char w[16];
	char t[16];
	char f[16];

	(void)units_size(wants, w, sizeof(w));
	(void)units_size(there, t, sizeof(t));
	(void)units_size(free_now, f, sizeof(f));
	if (there && wants > there)
		doctor_fail(d, EXIT_USAGE, "limits",
			"memory: --memory %s exceeds %s: give less with --memory", w, t);
	else if (group && wants > there / 2)
		doctor_warn(d, "limits",
			"memory: the control group allows %s, of which the daemons take %s: little "
			"is left for pages of the dataset: raise memory.max",
			t, w);
	else if (free_now && wants > free_now)
		doctor_warn(d, "limits",
			"memory: --memory %s exceeds the %s available now: give less, or free some",
			w, f);
	else
		doctor_ok(d, "limits", "memory: %s for the daemons, %s available of %s%s", w, f, t,
			group ? " (control group)" : "");
}

static void check_sockets(struct doctor *d)
{
	char bases[CACHE_RUN_BASES][PATH_MAX];
	unsigned int n;

	cache_dir_run_bases(bases, &n);
	if (n > 0)
		doctor_ok(d, "limits", "sockets: in %s", bases[0]);
	else
		doctor_fail(d, EXIT_CACHE, "limits",
			"sockets: neither $XDG_RUNTIME_DIR nor /run/user/%u nor /tmp/granary-%u is "
			"private to this user: set XDG_RUNTIME_DIR to a private directory of yours",
			geteuid(), geteuid());
}

void doctor_limits(struct doctor *d)
{
	check_descriptors(d);
	check_memory(d);
	check_sockets(d);
}
