/* How a bucket is reached. See origin_options.h. */
#include "ctl/origin_options.h"
#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *origin_options_given(const struct origin_options *o)
{
	const struct {
		bool given;
		const char *name;
	} options[] = {
		{ o->endpoint != NULL, "--endpoint" },
		{ o->region != NULL, "--region" },
		{ o->path_style, "--path-style" },
		{ o->profile != NULL, "--profile-name" },
		{ o->credentials != NULL, "--credentials" },
		{ o->anonymous, "--anonymous" },
		{ o->requester_pays, "--requester-pays" },
		{ o->versions != NULL, "--versions" },
		{ o->ca_file != NULL, "--ca-file" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		if (options[i].given)
			return options[i].name;
	return NULL;
}

static int check_credentials(const struct origin_options *o, struct err *e)
{
	if (o->credentials && (o->profile || o->anonymous))
		return err_set(e, -EINVAL,
			"--credentials %s and %s exclude each other: leave one of them out",
			o->credentials, o->profile ? "--profile-name" : "--anonymous");
	if (o->anonymous && o->profile)
		return err_set(e, -EINVAL,
			"--anonymous and --profile-name %s exclude each other: leave one "
			"of them out",
			o->profile);
	return o->credentials ? ufs_credentials_check(o->credentials, e) : 0;
}

int origin_options_check(
	const struct origin_options *o, const char *url, enum ufs_scheme scheme, struct err *e)
{
	int r;

	if (scheme == UFS_FILE && (o->endpoint || o->region || o->profile || o->anonymous ||
					  o->credentials || o->requester_pays || o->versions))
		return err_set(e, -EINVAL,
			"--endpoint, --region, --profile-name, --credentials, --anonymous, "
			"--requester-pays and --versions do not apply to %s: leave them out",
			url);
	r = check_credentials(o, e);
	if (r < 0)
		return r;
	if (o->endpoint && strncmp(o->endpoint, "http://", 7) != 0 &&
		strncmp(o->endpoint, "https://", 8) != 0)
		return err_set(e, -EINVAL,
			"--endpoint '%s' is not a URL: write http://HOST:PORT or https://HOST",
			o->endpoint);
	return 0;
}

int origin_options_resolve(struct origin_options *o, char real[PATH_MAX], struct err *e)
{
	if (!o->ca_file)
		return 0;
	if (!realpath(o->ca_file, real) || access(real, R_OK) != 0)
		return err_set(e, err_errno(),
			"cannot read --ca-file %s: %m; give a file or a directory that "
			"this user can read",
			o->ca_file);
	o->ca_file = real;
	return 0;
}

static void add_text(json_t *to, const char *name, const char *text)
{
	if (text)
		(void)json_object_set_new(to, name, json_string(text)); /* counted */
}

static void add_flag(json_t *to, const char *name, bool flag)
{
	if (flag)
		(void)json_object_set_new(to, name, json_true()); /* counted */
}

void origin_options_json(json_t *to, const struct origin_options *o, const char *url)
{
	add_text(to, "endpoint", o->endpoint || !url ? o->endpoint : ufs_environment_endpoint(url));
	add_text(to, "region", o->region || !url ? o->region : ufs_environment_region(url));
	add_text(to, "profile", o->profile);
	add_text(to, "credentials", o->credentials);
	add_text(to, "versions", o->versions);
	add_text(to, "ca_file", o->ca_file);
	add_flag(to, "path_style", o->path_style);
	add_flag(to, "anonymous", o->anonymous);
	add_flag(to, "requester_pays", o->requester_pays);
}

static int copy(const char *text, char **field, struct err *e)
{
	if (!text)
		return 0;
	free(*field);
	*field = strdup(text);
	return *field ? 0 : err_set(e, -ENOMEM, "out of memory");
}

int origin_options_config(const struct origin_options *o, const char *url,
	struct ufs_config *ret_config, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config config = { 0 };
	int r = ufs_config_parse(url, &config, e);

	if (r == 0)
		r = copy(o->endpoint, &config.endpoint, e);
	if (r == 0)
		r = copy(o->region, &config.region, e);
	if (r == 0)
		r = copy(o->profile, &config.profile, e);
	if (r == 0)
		r = copy(o->ca_file, &config.ca_file, e);
	if (r == 0)
		r = copy(o->credentials, &config.credentials, e);
	if (r == 0 && o->credentials)
		r = ufs_credentials_check(o->credentials, e);
	if (r == 0)
		r = ufs_versions_parse(o->versions, &config.versions, e);
	config.path_style = o->path_style;
	config.anonymous = o->anonymous;
	config.requester_pays = o->requester_pays;
	if (r < 0)
		return r;
	*ret_config = config;
	config = (struct ufs_config){ 0 };
	return 0;
}

void origin_options_of_dataset(const json_t *mount, struct origin_options *ret)
{
	*ret = (struct origin_options){
		.endpoint = json_string_value(json_object_get(mount, "endpoint")),
		.region = json_string_value(json_object_get(mount, "region")),
		.path_style = json_is_true(json_object_get(mount, "path_style")),
		.profile = json_string_value(json_object_get(mount, "profile")),
		.anonymous = json_is_true(json_object_get(mount, "anonymous")),
		.credentials = json_string_value(json_object_get(mount, "credentials")),
		.requester_pays = json_is_true(json_object_get(mount, "requester_pays")),
		.versions = json_string_value(json_object_get(mount, "versions")),
		.ca_file = json_string_value(json_object_get(mount, "ca_file")),
	};
}

/* The value behind `name`; NULL: it is not among them. */
static const char *argument(const json_t *args, const char *name)
{
	for (size_t i = 0; i < json_array_size(args); i++) {
		const char *arg = json_string_value(json_array_get(args, i));

		if (arg && strcmp(arg, name) == 0)
			return json_string_value(json_array_get(args, i + 1));
	}
	return NULL;
}

static bool has_argument(const json_t *args, const char *name)
{
	for (size_t i = 0; i < json_array_size(args); i++) {
		const char *arg = json_string_value(json_array_get(args, i));

		if (arg && strcmp(arg, name) == 0)
			return true;
	}
	return false;
}

void origin_options_of_args(const json_t *args, struct origin_options *ret)
{
	*ret = (struct origin_options){
		.endpoint = argument(args, "--endpoint"),
		.region = argument(args, "--region"),
		.path_style = has_argument(args, "--path-style"),
		.profile = argument(args, "--profile"),
		.anonymous = has_argument(args, "--anonymous"),
		.credentials = argument(args, "--credentials"),
		.requester_pays = has_argument(args, "--requester-pays"),
		.versions = argument(args, "--versions"),
		.ca_file = argument(args, "--ca-file"),
	};
}
