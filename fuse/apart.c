/* See apart.h. */
#include "fuse/apart.h"
#include "base/capabilities.h"
#include "base/hash.h"
#include "base/log.h"
#include "fuse/follow.h"
#include "fuse/live.h"
#include "fuse/mounter.h"

#include <inttypes.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/*
 * Mount points and credentials of users whose files root may read; what the daemon writes is
 * root's.
 */
#define KEPT CAPABILITY(CAP_DAC_READ_SEARCH)

/* Not by the number of a process, which are given again. */
static void only_own(struct cachefuse *c)
{
	uint64_t number;

	hash_random(&number, sizeof(number));
	(void)snprintf(c->key, sizeof(c->key), "only %016" PRIx64, number);
}

void apart_set_key(struct cachefuse *c)
{
	const char *name = slots_mount(c->slots)->image;
	const char *label = c->options.context ? c->options.context : "";
	/* One that moves on under its superblock is the same in all generations of a lineage, whatever it
	 * shows by now. Where a certain one is asked for, it is not what is asked for. */
	bool live = follow_is_live(c);
	bool own = c->options.refresh_behind || /* its generation changes on its own */
		   (live && (c->options.replace || c->options.rolled_back));
	int len = live ? (int)strcspn(name, ".") : (int)strlen(name);
	int n = snprintf(c->key, sizeof(c->key), "%s %s %.*s %s", c->engine->name,
		c->options.integrity, len, name, label);

	if (live && n < (int)sizeof(c->key))
		n += snprintf(c->key + n, sizeof(c->key) - (size_t)n, " lineage=%" PRIx64,
			slots_mount(c->slots)->lineage);

	if (c->options.prime_max != CACHEFUSE_UNSET && n < (int)sizeof(c->key)) /* asked for */
		n += snprintf(c->key + n, sizeof(c->key) - (size_t)n, " prime=%" PRIu64,
			c->options.prime_max);
	if (n < (int)sizeof(c->key))
		n += (int)follow_key(c, c->key + n, sizeof(c->key) - (size_t)n);
	if (own || n >= (int)sizeof(c->key)) /* or too long for a key: nobody's but its own */
		only_own(c);
}

int apart_drop_rights(struct err *e)
{
	int r;

	if (!mounter_is_apart())
		return 0;
	r = capabilities_keep(KEPT);
	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		r = err_errno();
	return r < 0 ? err_set(e, r,
			       "cannot drop privileges: %s: allow capset(2) if a sandbox forbids "
			       "it",
			       err_str(r))
		     : 0;
}

int apart_share(struct cachefuse *c, bool *ret_shared, struct err *e)
{
	const struct mounter_attach attach = {
		.mount_fd = -1,
		.point_fd = c->point_fd,
		.mountpoint = c->mountpoint,
		.key = c->key,
		.replace = c->options.replace,
	};
	int r = mounter_share(&attach, e);

	*ret_shared = r == 0;
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		log_info("shared", "mountpoint=\"%s\" key=\"%s\"", c->mountpoint, c->key);
	return r;
}
