/* See job_cluster.h. */
#include "ctl/job_cluster.h"
#include "ctl/command.h"
#include "ctl/yaml_out.h"
#include "jobs/field_path.h"

#include <string.h>

int job_cluster_open(const struct job_cluster_options *o, struct kube **ret_kube, struct err *e)
{
	const struct kube_choice choice = {
		.config = o->config, .context = o->context, .as = o->as
	};

	return kube_new(&choice, NULL, ret_kube, e);
}

int job_cluster_exit(int r)
{
	switch (-r) {
	case EINVAL:
		return EXIT_LINT;
	case ENOENT:
		return EXIT_JOB_NOT_FOUND;
	case EEXIST:
	case EBUSY:
	case ESTALE:
		return EXIT_JOB_CONFLICT;
	case EACCES:
	case EKEYREJECTED:
	case ENOKEY:
		return EXIT_JOB_DENIED;
	case ENOMEM:
		return EXIT_RUNTIME;
	default:
		return EXIT_JOB_CLUSTER;
	}
}

int job_cluster_fail(int r, struct err *e)
{
	return command_fail(job_cluster_exit(r), e);
}

int job_cluster_open_fail(int r, struct err *e)
{
	return command_fail(r == -EINVAL ? EXIT_USAGE : job_cluster_exit(r), e);
}

const char *job_text(const json_t *object, const char *path)
{
	const char *text = json_string_value(field_path_get(object, path));

	return text ? text : "";
}

int job_cluster_kind(struct kube *kube, const char *api_version, const char *kind,
	struct kube_resource *ret_found, struct kube_kind *ret_kind, struct err *e)
{
	int r = kube_find_kind(kube, api_version, kind, ret_found, e);

	if (r < 0)
		return r;
	*ret_kind = (struct kube_kind){ .api_version = api_version,
		.plural = ret_found->plural,
		.cluster_wide = ret_found->cluster_wide };
	return 0;
}

void job_found_release(struct job_found *job)
{
	json_decref(job->object);
	job->object = NULL;
}

static bool is_of_type(const struct job_kind *kind, const struct job_type *type)
{
	const struct job_kind *one;

	for (unsigned int i = 0; (one = job_kind_of_type(type, i)); i++)
		if (one == kind)
			return true;
	return false;
}

/* 1: found; 0: not of this kind. */
static int look(struct kube *kube, const char *name_space, const char *name,
	const struct job_kind *kind, struct job_found *job, struct err *e)
{
	struct err none = ERR_INIT;
	struct kube_kind in_kube;
	int r = job_cluster_kind(
		kube, kind->api_version, kind->kind, &job->resource, &in_kube, &none);

	if (r == 0)
		r = kube_get(kube, &in_kube, name_space, name, &job->object, &none);
	if (r == -ENOENT)
		return 0;
	if (r < 0) {
		*e = none;
		return r;
	}
	job->kind = kind;
	return 1;
}

int job_cluster_find(struct kube *kube, const char *name_space, const char *name, const char *type,
	struct job_found *ret_job, struct err *e)
{
	const struct job_type *of = NULL;
	const struct job_kind *kind;
	struct job_found found = { 0 };
	int r = type ? job_type_find(type, &of, e) : 0;

	for (unsigned int i = 0; r == 0 && (kind = job_kind_at(i)); i++) {
		struct job_found one = { 0 };

		if (of && !is_of_type(kind, of))
			continue;
		r = look(kube, name_space, name, kind, &one, e);
		if (r == 1 && found.object) {
			r = err_set(e, -EEXIST,
				"a %s of %s and a %s of %s are named '%s': add --type",
				found.kind->kind, found.kind->api_version, kind->kind,
				kind->api_version, name);
			job_found_release(&one);
		} else if (r == 1) {
			found = one;
			r = 0;
		}
	}
	if (r == 0 && !found.object)
		r = err_set(e, -ENOENT,
			"no such job '%s' in namespace '%s'; see `cachectl job list`", name,
			name_space ? name_space : kube_namespace(kube));
	if (r < 0) {
		job_found_release(&found);
		return r;
	}
	*ret_job = found;
	return 0;
}

/* ---- commands on one job --------------------------------------------------------------------- */

int job_one_open(const struct job_one_options *o, const char *name, struct job_one *ret_one)
{
	struct job_one one = { 0 };
	struct err e = ERR_INIT;
	int r = job_cluster_open(&o->cluster, &one.kube, &e);

	if (r < 0)
		return job_cluster_open_fail(r, &e);
	r = job_cluster_find(one.kube, o->cluster.name_space, name, o->type, &one.job, &e);
	if (r < 0) {
		kube_free(one.kube);
		return job_cluster_open_fail(r, &e);
	}
	*ret_one = one;
	return EXIT_OK;
}

void job_one_close(struct job_one *one)
{
	job_found_release(&one->job);
	kube_free(one->kube);
}

int job_one_print(const struct job_one_options *o, const struct job_found *job, const char *status)
{
	const char *name = job_text(job->object, "metadata.name");

	if (!output_is_table(o->output))
		return yaml_out_made(o->output,
			json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "name", name, "namespace",
				job_text(job->object, "metadata.namespace"), "kind",
				job->kind->kind, "api_version", job->kind->api_version, "uid",
				job_text(job->object, "metadata.uid"), "status", status));
	(void)printf("%s '%s': %s\n", job->kind->kind, name, status);
	return EXIT_OK;
}

static int add_pod(void *array, json_t *pod)
{
	if (strcmp(job_text(pod, "metadata.labels[app.kubernetes.io/component]"), "tensorboard") ==
		0)
		return 0;
	return json_array_append(array, pod) < 0 ? -ENOMEM : 0;
}

int job_cluster_pods(
	struct kube *kube, const struct job_found *job, json_t **ret_pods, struct err *e)
{
	const struct kube_kind pods = { .api_version = "v1", .plural = "pods" };
	json_t *found = json_array();
	char labels[FIELD_PATH_BYTES];
	int r;

	(void)snprintf(labels, sizeof(labels), "app.kubernetes.io/instance=%s",
		job_text(job->object, "metadata.name")); /* fits: a name of an object */
	r = found ? kube_list(kube, &pods,
			    &(struct kube_query){
				    .name_space = job_text(job->object, "metadata.namespace"),
				    .labels = labels },
			    add_pod, NULL, found, NULL, e)
		  : -ENOMEM;
	if (r < 0) {
		json_decref(found);
		return err_default(e, r, "cannot list pods");
	}
	*ret_pods = found;
	return 0;
}
