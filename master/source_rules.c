/* What others than local callers may name in a source. See source_rules.h. */
#include "master/source_rules.h"
#include "base/cleanup.h"
#include "net/rights.h"
#include "ufs/protected.h"

#include <stdlib.h>
#include <string.h>

/* Is the file or directory at or below one of `dirs`? Something that does not exist is not. */
static bool is_in(const struct option_list *dirs, const char *path)
{
	_cleanup_free_ char *real = realpath(path, NULL);

	for (unsigned int i = 0; real && i < dirs->n; i++) {
		_cleanup_free_ char *dir = realpath(dirs->values[i], NULL);

		if (dir && protected_is_below(real, dir))
			return true;
	}
	return false;
}

/* What is checked is what is opened: the directory has its path without links from now on. */
static int check_directory(
	const struct source_rules *rules, struct ufs_config *config, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config real = { 0 };
	int r = ufs_config_copy(config, &real);

	if (r < 0)
		return err_set(e, r, "out of memory");
	r = ufs_config_resolve(&real);
	if (rules && (r < 0 || !is_in(&rules->file_roots, real.prefix)))
		return err_set(e, -EPERM,
			"file://%s: permission denied: not an existing directory at or below one "
			"of the master's file-roots; add one there, or name it as root on the "
			"master's host",
			config->prefix);
	if (r == 0) {
		ufs_config_release(config);
		*config = real;
		real = (struct ufs_config){ 0 };
	}
	return 0; /* what does not exist is refused when it is opened */
}

static bool is_same(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

/* "file:/PATH#SECTION" */
static int check_credentials(const struct source_rules *rules, const char *reference, struct err *e)
{
	_cleanup_free_ char *path = NULL;

	if (strncmp(reference, "file:", 5) != 0)
		return 0; /* what the operator gave to the daemons */
	path = strndup(reference + 5, strcspn(reference + 5, "#"));
	if (!path)
		return err_set(e, -ENOMEM, "out of memory");
	if (is_in(&rules->credential_dirs, path))
		return 0;
	return err_set(e, -EPERM,
		"credentials file:%s: permission denied: not an existing file below one of the "
		"master's credential-dirs; put it there, or name it as root on the master's host",
		path);
}

static int check_ca(const struct source_rules *rules, const char *path, struct err *e)
{
	if (is_in(&rules->credential_dirs, path))
		return 0;
	return err_set(e, -EPERM,
		"CA file %s: permission denied: not an existing file below one of the master's "
		"credential-dirs; put it there, or name it as root on the master's host",
		path);
}

static int check_endpoint(
	const struct source_rules *rules, const struct ufs_config *config, struct err *e)
{
	int r = rules->local_endpoints ? 0 : ufs_check_endpoint(config, e);

	if (r != -EPERM)
		return r;
	return err_set(e, r,
		"endpoint %s: permission denied: it is a loopback or link-local address; set "
		"local-endpoints of the master, or name it as root on the master's host",
		config->endpoint);
}

const struct source_rules *source_rules_of(
	const struct source_rules *rules, const struct peer_identity *peer)
{
	return rights_of(principal_of(peer), RIGHTS_ADMIN, RIGHTS_OP_NAME) == RIGHT_ALL ? NULL
											: rules;
}

int source_rules_check(const struct source_rules *rules, struct ufs_config *config,
	const struct ufs_config *before, struct err *e)
{
	static const struct ufs_config none;
	const struct ufs_config *old = before ? before : &none;
	int r = 0;

	if (config->scheme == UFS_FILE)
		return before ? 0 : check_directory(rules, config, e); /* its URL never changes */
	if (!rules)
		return 0;
	if (config->credentials && !is_same(config->credentials, old->credentials))
		r = check_credentials(rules, config->credentials, e);
	if (r == 0 && config->ca_file && !is_same(config->ca_file, old->ca_file))
		r = check_ca(rules, config->ca_file, e);
	if (r == 0 && config->endpoint &&
		(!is_same(config->endpoint, old->endpoint) ||
			config->path_style != old->path_style))
		r = check_endpoint(rules, config, e);
	if (!before && config->endpoint) /* else it is the operator's */
		config->no_local = !rules->local_endpoints;
	return r;
}
