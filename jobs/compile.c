/* From a job spec to objects: the frame that all kinds share. See compile.h. */
#include "base/cleanup.h"
#include "jobs/compile_internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading the spec ------------------------------------------------------------------------ */

static void out_of_memory(struct compile *c)
{
	if (c->error == 0)
		c->error = err_set(c->e, -ENOMEM, "out of memory");
}

void spec_refuse(struct compile *c, const char *path, const char *format, ...)
{
	va_list ap;

	if (c->error != 0)
		return;
	va_start(ap, format);
	(void)err_vset(c->e, -EINVAL, format, ap); /* the code */
	va_end(ap);
	c->error = job_spec_locate(c->spec, path, c->e);
}

void note(struct compile *c, const char *text)
{
	if (json_array_append_new(c->objects->notes, json_string(text)) < 0)
		out_of_memory(c);
}

const json_t *spec_get(struct compile *c, const char *path)
{
	const json_t *value = field_path_get(c->spec->root, path);

	if (value && json_object_set_new(c->used, path, json_true()) < 0)
		out_of_memory(c);
	return value;
}

const char *spec_text(struct compile *c, const char *path, const char *otherwise)
{
	const char *text = json_string_value(spec_get(c, path));

	return text ? text : otherwise;
}

long long spec_number(struct compile *c, const char *path, long long otherwise)
{
	const json_t *value = spec_get(c, path);

	return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

bool spec_true(struct compile *c, const char *path)
{
	return json_is_true(spec_get(c, path));
}

bool spec_has(struct compile *c, const char *path)
{
	const json_t *value = field_path_get(c->spec->root, path);

	if (json_is_object(value) && json_object_size(value) == 0)
		return spec_get(c, path); /* which has no fields to be read */
	return value;
}

long long spec_peek(const struct compile *c, const char *path, long long otherwise)
{
	const json_t *value = field_path_get(c->spec->root, path);

	return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

const json_t *role_own(
	struct compile *c, const struct role *role, const char *field, char *ret_path)
{
	if (!*role->base)
		return NULL;
	return spec_get(c, field_path_key(role->base, field, ret_path));
}

const json_t *role_get(
	struct compile *c, const struct role *role, const char *field, char *ret_path)
{
	const json_t *own = role_own(c, role, field, ret_path);
	const json_t *inherited = NULL;

	if (own)
		return own;
	if (role->inherits)
		inherited = spec_get(c, field_path_key(role->inherits, field, ret_path));
	return inherited ? inherited : spec_get(c, field_path_key("", field, ret_path));
}

/* ---- writing objects ------------------------------------------------------------------------- */

/* Notes that the last step of `path`, in `parent`, has its value from a field of the spec. */
static void add_source(struct compile *c, const json_t *parent, const char *path, const char *from)
{
	struct job_objects *o = c->objects;
	struct field_step step = { 0 };
	struct job_source source = { .parent = parent };

	while (field_path_next(&path, &step) == 1)
		;
	if (o->n_sources == o->max_sources) {
		size_t max = o->max_sources * 2 + 64;
		struct job_source *more = reallocarray(o->sources, max, sizeof(*more));

		if (!more)
			return out_of_memory(c);
		o->sources = more;
		o->max_sources = max;
	}
	source.path = strdup(from);
	source.key = step.key ? strndup(step.key, step.len) : NULL;
	source.index = step.index == SIZE_MAX ? json_array_size(parent) - 1 : step.index;
	o->sources[o->n_sources++] = source;
	if (!source.path || (step.key && !source.key))
		out_of_memory(c);
}

void put(struct compile *c, json_t *at, const char *path, json_t *value, const char *from)
{
	json_t *parent = NULL;
	int r;

	if (c->error != 0) {
		json_decref(value);
		return;
	}
	r = field_path_set(at, path, value, &parent);
	ensure(r == 0 || r == -ENOMEM);
	if (r < 0)
		out_of_memory(c);
	else if (from)
		add_source(c, parent, path, from);
}

void put_text(struct compile *c, json_t *at, const char *path, const char *text, const char *from)
{
	put(c, at, path, json_string(text), from);
}

void put_number(struct compile *c, json_t *at, const char *path, long long n, const char *from)
{
	put(c, at, path, json_integer(n), from);
}

bool copy(struct compile *c, json_t *at, const char *path, const char *from)
{
	const json_t *value = spec_get(c, from);

	if (value)
		put(c, at, path, json_deep_copy(value), from);
	return value != NULL;
}

void copy_rows(struct compile *c, json_t *at, const struct copy_row *rows)
{
	for (; rows->from; rows++)
		(void)copy(c, at, rows->to, rows->from); /* optional, all of them */
}

static json_t *put_container(struct compile *c, json_t *at, const char *path, json_t *value)
{
	json_t *parent = NULL;

	if (value && c->error == 0 && field_path_set(at, path, value, &parent) == 0)
		return value;
	if (c->error == 0)
		out_of_memory(c);
	else
		json_decref(value);
	return at;
}

json_t *put_object(struct compile *c, json_t *at, const char *path)
{
	json_t *there = field_path_get(at, path);

	return there ? there : put_container(c, at, path, json_object());
}

json_t *put_array(struct compile *c, json_t *at, const char *path)
{
	json_t *there = field_path_get(at, path);

	return there ? there : put_container(c, at, path, json_array());
}

json_t *add_object(struct compile *c, const char *api, const char *kind, const char *suffix)
{
	json_t *object = put_container(c, c->objects->list, "[]", json_object());
	char name[FIELD_PATH_BYTES];

	if (c->error != 0)
		return object;
	(void)snprintf(name, sizeof(name), "%s%s", c->name, suffix); /* fits: checked */
	put_text(c, object, "apiVersion", api, NULL);
	put_text(c, object, "kind", kind, NULL);
	put_text(c, object, "metadata.name", name, "name");
	(void)copy(c, object, "metadata.namespace", "namespace"); /* optional */
	if (!*suffix)
		(void)copy(c, object, "metadata.labels", "labels"); /* likewise */
	if (!field_path_get(object, "metadata.labels[" MANAGED_LABEL "]"))
		put_text(c, object, "metadata.labels[" MANAGED_LABEL "]", "cachectl", NULL);
	put_text(c, object, "metadata.labels[" INSTANCE_LABEL "]", c->name, "name");
	if (!*suffix) {
		(void)copy(c, object, "metadata.annotations", "annotations");
		(void)copy(
			c, object, "metadata.annotations[granary.io/description]", "description");
	}
	return object;
}

/* ---- what several kinds decide alike --------------------------------------------------------- */

bool by_volcano(const struct compile *c)
{
	const char *by = json_string_value(field_path_get(c->spec->root, "scheduling.gang.by"));

	return c->engine == ENGINE_VOLCANO ||
	       (json_is_true(field_path_get(c->spec->root, "scheduling.gang.enabled")) &&
		       (!by || strcmp(by, "volcano") == 0));
}

long long gang_size(struct compile *c, long long all)
{
	bool enabled = c->engine == ENGINE_VOLCANO || spec_true(c, "scheduling.gang.enabled");
	const json_t *least;

	if (!enabled)
		return 0;
	if (c->engine != ENGINE_VOLCANO)
		(void)spec_get(c, "scheduling.gang.by"); /* by_volcano() */
	least = spec_get(c, "scheduling.gang.min");
	return least ? json_integer_value(least) : spec_number(c, "elastic.min", all);
}

void put_queue(struct compile *c, json_t *object, const char *suspend)
{
	bool labelled = field_path_get(object, "metadata.labels[" KUEUE_QUEUE_LABEL "]");

	if (!by_volcano(c) &&
		copy(c, object, "metadata.labels[" KUEUE_QUEUE_LABEL "]", "scheduling.queue") &&
		labelled) {
		spec_refuse(c, "scheduling.queue",
			"the label " KUEUE_QUEUE_LABEL " names a queue, too: give one of them");
	}
	if (!suspend)
		return;
	if (copy(c, object, suspend, "lifecycle.suspend"))
		return;
	if (field_path_get(object, "metadata.labels[" KUEUE_QUEUE_LABEL "]"))
		put(c, object, suspend, json_true(),
			spec_get(c, "scheduling.queue") ? "scheduling.queue" : "labels");
}

/* ---- all of it ------------------------------------------------------------------------------- */

void spec_check_name(struct compile *c, const char *path, const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len > 253 || strspn(name, DNS_LABEL ".") != len || strchr("-.", name[0]) ||
		strchr("-.", name[len - 1]))
		spec_refuse(c, path,
			"invalid name '%s': use a-z, 0-9, '-' and '.', starting and ending with a "
			"letter or digit",
			name);
}

/* Those of other objects of the cluster, which each pod names. */
static void check_names(struct compile *c)
{
	static const char *const paths[] = { "service_account", "scheduling.priority_class_name",
		"scheduling.scheduler_name" };
	const json_t *secrets = field_path_get(c->spec->root, "image_pull_secrets");
	const json_t *name;
	char path[FIELD_PATH_BYTES];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		name = field_path_get(c->spec->root, paths[i]);
		if (name)
			spec_check_name(c, paths[i], json_string_value(name));
	}
	json_array_foreach (secrets, i, name)
		spec_check_name(c, field_path_index("image_pull_secrets", i, path),
			json_string_value(name));
}

/* Fields that no object can have, and those that a later version acts on. */
static void refuse_always(struct compile *c)
{
	static const struct {
		const char *path;
		const char *unless; /* a value that is accepted */
		const char *why;
	} rows[] = {
		{ "scheduling.locality", "off",
			"is not available in this version: leave it out, or use node_selector" },
		{ "scheduling.warm", "off",
			"is not available in this version: leave it out, or use node_selector" },
		{ "scheduling.priority", NULL,
			"the cluster takes the number from the class: use priority_class_name" },
		{ "labels[" INSTANCE_LABEL "]", NULL,
			INSTANCE_LABEL " is the name of the job: leave it out" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const json_t *value = spec_get(c, rows[i].path);
		const char *text = json_string_value(value);

		if (value && !(text && rows[i].unless && strcmp(text, rows[i].unless) == 0))
			spec_refuse(c, rows[i].path, "%s", rows[i].why);
	}
}

static bool was_used(const struct compile *c, const char *path)
{
	char around[FIELD_PATH_BYTES];
	size_t len;

	(void)snprintf(around, sizeof(around), "%s", path); /* fits */
	while (!json_object_get(c->used, around)) {
		len = strlen(around);
		while (len > 0 && around[len - 1] != '.' && around[len - 1] != '[')
			len--;
		if (len == 0)
			return false;
		around[len - 1] = '\0';
	}
	return true;
}

/* The first scalar, or empty object or list, of the spec that no object has; true: it failed. */
static bool refuse_unused(struct compile *c, const json_t *value, const char *path)
{
	char below[FIELD_PATH_BYTES];
	const char *key;
	json_t *item;
	size_t i;

	if (*path && json_object_size(value) == 0 && json_array_size(value) == 0) {
		const char *origin = job_spec_origin(c->spec, path);

		if (was_used(c, path) || (origin && strcmp(origin, JOB_DEFAULT_ORIGIN) == 0))
			return false;
		spec_refuse(c, path, "has no effect on %s with engine %s: leave it out",
			c->type->name, job_engine_name(c->engine));
		return true;
	}
	json_object_foreach ((json_t *)(uintptr_t)value, key, item) /* only read */
		if (refuse_unused(c, item, field_path_key(path, key, below)))
			return true;
	json_array_foreach (value, i, item)
		if (refuse_unused(c, item, field_path_index(path, i, below)))
			return true;
	return false;
}

static int check_namespace(struct compile *c)
{
	const char *name = spec_text(c, "namespace", "default");
	size_t len = strlen(name);

	if (len > 0 && len <= 63 && strspn(name, DNS_LABEL) == len && *name != '-' &&
		name[len - 1] != '-')
		return 0;
	(void)err_set(c->e, -EINVAL,
		"invalid namespace '%s': use a-z, 0-9 and '-', starting and ending with a letter "
		"or digit, at most 63 characters",
		name);
	return job_spec_locate(c->spec, "namespace", c->e);
}

static int check_name(struct compile *c)
{
	const char *name = c->name;
	size_t len = name ? strlen(name) : 0;

	if (!name)
		return err_set(
			c->e, -EINVAL, "the job has no name: give --name NAME, or name: NAME");
	if (len <= JOB_NAME_MAX && strspn(name, DNS_LABEL) == len && name[0] >= 'a' &&
		name[0] <= 'z' && name[len - 1] != '-')
		return 0;
	(void)err_set(c->e, -EINVAL,
		"invalid name '%s': use a-z, 0-9 and '-', starting with a letter, ending with a "
		"letter or "
		"digit, at most %u characters",
		name, JOB_NAME_MAX);
	return job_spec_locate(c->spec, "name", c->e);
}

static int find_type(struct compile *c)
{
	const char *framework = spec_text(c, "framework.name", NULL);

	(void)spec_get(c, "version"); /* of the spec alone */
	if (!framework)
		return err_set(c->e, -EINVAL,
			"the job has no framework: write framework: {name: pytorch}");
	c->type = job_type_of_framework(framework);
	ensure(c->type); /* one of the choices */
	if (job_engine_find(c->type, spec_text(c, "engine", NULL), &c->engine, c->e) < 0)
		return job_spec_locate(c->spec, "engine", c->e);
	c->name = spec_text(c, "name", NULL);
	return check_name(c) < 0 ? -EINVAL : check_namespace(c);
}

static void compile_kind(struct compile *c)
{
	static void (*const kinds[ENGINES])(struct compile *) = {
		[ENGINE_KUBEFLOW] = compile_kubeflow,
		[ENGINE_MPI] = compile_mpi,
		[ENGINE_ET] = compile_et,
		[ENGINE_VOLCANO] = compile_volcano,
		[ENGINE_TRAINER] = compile_trainer,
		[ENGINE_KUBERNETES] = compile_batch,
	};

	ensure(c->type);
	if (c->type->id == JOB_NOTEBOOK)
		compile_notebook(c);
	else
		kinds[c->engine](c);
	add_files(c);
	add_tensorboard(c);
	refuse_always(c);
	check_names(c);
}

int job_compile(const struct job_spec *spec, struct job_objects *ret_objects, struct err *e)
{
	struct job_objects objects = { .list = json_array(), .notes = json_array() };
	struct compile c = { .spec = spec, .objects = &objects, .used = json_object(), .e = e };

	if (!objects.list || !objects.notes || !c.used)
		out_of_memory(&c);
	if (c.error == 0) {
		int r = find_type(&c);

		c.error = c.error == 0 ? r : c.error; /* what it read may not have been marked */
	}
	if (c.error == 0)
		compile_kind(&c);
	if (c.error == 0)
		(void)refuse_unused(&c, spec->root, ""); /* sets error */
	json_decref(c.used);
	if (c.error < 0)
		job_objects_release(&objects);
	else
		*ret_objects = objects;
	return c.error;
}

void job_objects_release(struct job_objects *objects)
{
	for (size_t i = 0; i < objects->n_sources; i++) {
		free(objects->sources[i].key);
		free(objects->sources[i].path);
	}
	free(objects->sources);
	json_decref(objects->list);
	json_decref(objects->notes);
	*objects = (struct job_objects){ 0 };
}
