/* See job_create.h. */
#include "ctl/job_create.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "ctl/job_cluster.h"
#include "jobs/field_path.h"

#include <string.h>

#define SUBMISSION_PATH "metadata.annotations[" JOB_SUBMISSION "]"

struct create {
	struct kube *kube;
	struct kube_write how;
	const char *name_space; /* NULL: the client's */
	const json_t *job;      /* as the server has it; NULL: it is the next */
	json_t *created;
	json_t *states;
	struct err *e;
};

/* ---- the submission -------------------------------------------------------------------------- */

static int mark(json_t *objects, struct err *e)
{
	_cleanup_free_ char *text = json_dumps(objects, JSON_COMPACT | JSON_SORT_KEYS);
	uint8_t digest[SHA256_BYTES];
	char hex[2 * SHA256_BYTES + 1];
	json_t *object;
	size_t i;

	if (!text)
		return err_set(e, -ENOMEM, "out of memory");
	hash_sha256(text, strlen(text), digest);
	hash_hex(digest, sizeof(digest), hex);
	json_array_foreach (objects, i, object)
		if (field_path_set(object, SUBMISSION_PATH, json_string(hex), NULL) < 0)
			return err_set(e, -ENOMEM, "out of memory");
	return 0;
}

/* The job owns its children: they go when it goes. */
static int set_owner(const struct create *c, json_t *object)
{
	json_t *owner = json_pack("[{s:s, s:s, s:s, s:s}]", "apiVersion",
		job_text(c->job, "apiVersion"), "kind", job_text(c->job, "kind"), "name",
		job_text(c->job, "metadata.name"), "uid", job_text(c->job, "metadata.uid"));

	return field_path_set(object, "metadata.ownerReferences", owner, NULL);
}

/* ---- one object ------------------------------------------------------------------------------ */

/* An object of that name exists: is it this one? */
static int take_existing(
	struct create *c, const struct kube_kind *kind, const json_t *object, json_t **ret_object)
{
	const char *name = job_text(object, "metadata.name");
	const char *owner = "metadata.ownerReferences[0].uid";
	json_t *old = NULL;
	int r = kube_get(c->kube, kind, c->name_space, name, &old, c->e);

	if (r < 0)
		return r;
	if (strcmp(job_text(old, SUBMISSION_PATH), job_text(object, SUBMISSION_PATH)) != 0)
		r = err_set(c->e, -EEXIST,
			"%s '%s' exists and is of another submission: choose another --name, or "
			"remove it with `cachectl job delete %s`",
			job_text(object, "kind"), name,
			job_text(c->job ? c->job : object, "metadata.name"));
	else if (c->job && strcmp(job_text(old, owner), job_text(object, owner)) != 0)
		r = err_set(c->e, -EEXIST,
			"%s '%s' is of a deleted job of the same name: repeat the command when the "
			"cluster has removed it",
			job_text(object, "kind"), name);
	if (r < 0)
		json_decref(old);
	else
		*ret_object = old;
	return r;
}

static int create_one(struct create *c, json_t *object)
{
	struct kube_resource resource;
	struct kube_kind kind;
	const char *state = "created";
	json_t *answer = NULL;
	int r = job_cluster_kind(c->kube, job_text(object, "apiVersion"), job_text(object, "kind"),
		&resource, &kind, c->e);

	if (r == 0 && c->job && !c->how.dry_run && set_owner(c, object) < 0)
		r = err_set(c->e, -ENOMEM, "out of memory");
	if (r == 0)
		r = kube_create(c->kube, &kind, c->name_space, object, &c->how, &answer, c->e);
	if (r == -EEXIST) {
		state = "unchanged";
		r = take_existing(c, &kind, object, &answer);
	}
	if (r < 0)
		return r;
	if (!c->job)
		c->job = answer; /* `created` keeps it */
	if (json_array_append_new(c->created, answer) < 0 ||
		json_array_append_new(c->states, json_string(state)) < 0)
		return err_set(c->e, -ENOMEM, "out of memory");
	return 0;
}

int job_create(struct kube *kube, json_t *objects, bool dry_run, json_t **ret_created,
	json_t **ret_states, struct err *e)
{
	const char *name_space = job_text(json_array_get(objects, 0), "metadata.namespace");
	struct create c = { .kube = kube,
		.how = { .manager = JOB_MANAGER, .dry_run = dry_run },
		.name_space = *name_space ? name_space : NULL,
		.created = json_array(),
		.states = json_array(),
		.e = e };
	json_t *object;
	size_t i;
	int r = c.created && c.states ? mark(objects, e) : err_set(e, -ENOMEM, "out of memory");

	json_array_foreach (objects, i, object) {
		if (r == 0)
			r = create_one(&c, object);
		if (r < 0 && c.job && !dry_run && i > 0) {
			r = err_prefix(e,
				"job '%s' was created without all of its objects; repeat the "
				"command to complete it",
				job_text(c.job, "metadata.name"));
			break;
		}
	}
	if (r < 0) {
		json_decref(c.created);
		json_decref(c.states);
		return r;
	}
	*ret_created = c.created;
	*ret_states = c.states;
	return 0;
}

/* ---- the engine ------------------------------------------------------------------------------ */

static int set_engine(struct job_spec *spec, const struct job_type *type,
	const struct job_kind *kind, json_t *notes, struct err *e)
{
	const char *origin = "--engine auto";
	const char *name = job_engine_name(kind->engine);
	bool old_mpi = strcmp(kind->api_version, "kubeflow.org/v1alpha1") == 0;
	int r = job_spec_put(spec, "engine", json_string(name), origin, e);

	if (r == 0 && old_mpi && !field_path_get(spec->root, "framework.options.api_version"))
		r = job_spec_put(
			spec, "framework.options.api_version", json_string("v1alpha1"), origin, e);
	if (r == 0 && notes)
		r = json_array_append_new(notes,
			    json_sprintf("%s runs as %s of %s, which this cluster has (engine %s)",
				    type->name, kind->kind, kind->api_version, name)) < 0
			    ? err_set(e, -ENOMEM, "out of memory")
			    : 0;
	return r;
}

int job_choose_engine(struct kube *kube, struct job_spec *spec, json_t *notes, struct err *e)
{
	const char *framework = json_string_value(field_path_get(spec->root, "framework.name"));
	const struct job_type *type = framework ? job_type_of_framework(framework) : NULL;
	const char *engine = json_string_value(field_path_get(spec->root, "engine"));
	const struct job_kind *kind;

	if (!type || (engine && strcmp(engine, "auto") != 0))
		return 0;
	for (unsigned int i = 0; (kind = job_kind_of_type(type, i)); i++) {
		struct kube_resource found;
		struct err none = ERR_INIT;
		int r = kube_find_kind(kube, kind->api_version, kind->kind, &found, &none);

		if (r == 0)
			return i == 0 ? 0 : set_engine(spec, type, kind, notes, e);
		if (r != -ENOENT) {
			*e = none;
			return r;
		}
	}
	return err_set(e, -ENOENT,
		"no operator of this cluster runs a %s: install one, such as that of %s of %s",
		type->name, job_kind_of_type(type, 0)->kind,
		job_kind_of_type(type, 0)->api_version);
}
