/* Command lines of Arena as job specs. See job_flag.h. */
#include "jobs/job_flag_internal.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/utf8.h"
#include "jobs/field_path.h"

#include <stdlib.h>
#include <string.h>

#define FILE_BYTES    (900u << 10) /* a ConfigMap holds 1 MiB */
#define COMMAND_BYTES (256u << 10)
#define DNS_NAME      "abcdefghijklmnopqrstuvwxyz0123456789-."

/* ---- the table ------------------------------------------------------------------------------- */

static bool is_first_of_name(unsigned int i)
{
	return i == 0 || strcmp(job_flags[i].name, job_flags[i - 1].name) != 0;
}

/* Of the rows of a name, from the first one: the type's, or the first. */
static const struct job_flag *row_for(unsigned int first, const struct job_type *type)
{
	unsigned int i = first;

	do
		if (type && job_flags[i].types >> type->id & 1)
			return &job_flags[i];
	while (job_flags[++i].name && !is_first_of_name(i));
	return &job_flags[first];
}

unsigned int job_flag_options(
	const struct job_type *type, struct option_spec out[JOB_FLAGS_MAX], size_t offset)
{
	unsigned int n = 0;

	for (unsigned int i = 0; job_flags[i].name; i++) {
		const struct job_flag *flag = row_for(i, type);

		if (!is_first_of_name(i))
			continue;
		ensure(n < JOB_FLAGS_MAX);
		out[n] = (struct option_spec){ .name = flag->name,
			.letter = flag->letter,
			.kind = flag->kind,
			.required = strcmp(flag->name, "name") == 0,
			.hidden = !flag->take || (type && !(flag->types >> type->id & 1)),
			.offset = offset + n * sizeof(union job_flag_value),
			.most = OPTION_LIST_MAX,
			.metavar = flag->metavar,
			.help = flag->take ? flag->help : "Refused, with what to write instead" };
		n++;
	}
	return n;
}

bool job_flag_at(unsigned int i, const struct job_type *type, const char **ret_name,
	const char **ret_text, enum job_flag_fate *ret_fate)
{
	const struct job_flag *flag = &job_flags[i];

	if (!flag->name)
		return false;
	*ret_name = flag->name;
	*ret_text = flag->take ? flag->path : flag->help;
	*ret_fate = !(flag->types >> type->id & 1) ? JOB_FLAG_OTHER
		    : !flag->take                  ? JOB_FLAG_REFUSED
		    : flag->take == job_flag_take_text || flag->take == job_flag_take_pair ||
				    flag->take == job_flag_take_item
			    ? JOB_FLAG_HONOURED
			    : JOB_FLAG_CONVERTED;
	return true;
}

const char *job_flag_given(const struct taking *a, const char *name)
{
	unsigned int n = 0;

	for (unsigned int i = 0; job_flags[i].name; i++) {
		if (!is_first_of_name(i))
			continue;
		if (strcmp(job_flags[i].name, name) == 0)
			return a->values->of[n].text;
		n++;
	}
	return NULL;
}

/* ---- one value of a flag --------------------------------------------------------------------- */

static int put(struct taking *a, const struct job_flag *flag, const char *path, json_t *value)
{
	char normal[FIELD_PATH_BYTES];
	char origin[64];
	const char *other = json_string_value(
		json_object_get(a->spec->origins, field_path_normal(path, normal)));

	(void)snprintf(origin, sizeof(origin), "--%s", flag->name); /* fits */
	if (other && strcmp(other, origin) != 0) {
		json_decref(value);
		return err_set(a->e, -EINVAL, "%s and %s set the same field: give one of them",
			other, origin);
	}
	return job_spec_put(a->spec, path, value, origin, a->e);
}

static int name_flag(struct taking *a, const struct job_flag *flag)
{
	return err_prefix(a->e, "--%s", flag->name);
}

int job_flag_take_text(struct taking *a, const struct job_flag *flag, const char *value)
{
	return put(a, flag, flag->path, json_string(value));
}

/* With Arena a switch, so that the next word may be anything. */
int job_flag_take_queue(struct taking *a, const struct job_flag *flag, const char *value)
{
	size_t len = strlen(value);

	if (len > 0 && len <= 63 && *value != '-' && strspn(value, DNS_NAME) == len)
		return job_flag_take_text(a, flag, value);
	return err_set(a->e, -EINVAL,
		"--queue: '%s' is not the name of a queue: write --queue=NAME; for kube-queue "
		"(the switch --queue of Arena) write -a scheduling.x-k8s.io/suspend=true",
		value);
}

int job_flag_take_one(struct taking *a, const struct job_flag *flag, const char *value)
{
	(void)value;
	return put(a, flag, flag->path, json_string("1"));
}

int job_flag_take_empty(struct taking *a, const struct job_flag *flag, const char *value)
{
	(void)value;
	return put(a, flag, flag->path, json_object());
}

int job_flag_take_item(struct taking *a, const struct job_flag *flag, const char *value)
{
	char path[FIELD_PATH_BYTES];

	(void)field_path_index(
		flag->path, json_array_size(field_path_get(a->spec->root, flag->path)), path);
	return put(a, flag, path, json_string(value));
}

int job_flag_take_pair(struct taking *a, const struct job_flag *flag, const char *value)
{
	const char *equals = strchr(value, '=');
	char key[FIELD_PATH_BYTES];
	char path[FIELD_PATH_BYTES];

	if (!equals || equals == value || equals - value > (int)FIELD_KEY_MAX ||
		memchr(value, ']', (size_t)(equals - value))) {
		(void)err_set(a->e, -EINVAL, "'%s' is not KEY=VALUE: write it as KEY=VALUE", value);
		return name_flag(a, flag);
	}
	(void)snprintf(key, sizeof(key), "%.*s", (int)(equals - value), value); /* fits */
	return put(a, flag, field_path_key(flag->path, key, path), json_string(equals + 1));
}

/* Appends a storage of two or three members; `mount` may be NULL. */
static int put_storage(struct taking *a, const struct job_flag *flag, const char *kind,
	const char *name, const char *mount, bool read_only)
{
	json_t *storage = json_pack("{s:s, s:s*, s:s*}", kind, name, "mount_path", mount,
		"read_only", read_only ? "true" : NULL);
	char path[FIELD_PATH_BYTES];

	(void)field_path_index(
		"storages", json_array_size(json_object_get(a->spec->root, "storages")), path);
	return put(a, flag, path, storage);
}

/* "A:B" in two; *ret_rest NULL: without ':'. The first part is the caller's to free. */
static char *split(const char *value, const char **ret_rest)
{
	const char *colon = strchr(value, ':');

	*ret_rest = colon ? colon + 1 : NULL;
	return colon ? strndup(value, (size_t)(colon - value)) : strdup(value);
}

/* Takes ":ro" off the end of a mount, which may be NULL. */
static bool take_read_only(char *mount)
{
	size_t len = mount ? strlen(mount) : 0;
	bool read_only = len > 3 && strcmp(mount + len - 3, ":ro") == 0;

	if (read_only)
		mount[len - 3] = '\0';
	return read_only;
}

int job_flag_take_data(struct taking *a, const struct job_flag *flag, const char *value)
{
	const char *rest;
	_cleanup_free_ char *claim = split(value, &rest);
	_cleanup_free_ char *mount = rest ? strdup(rest) : NULL;
	bool read_only = take_read_only(mount);

	if (!claim || !*claim || !mount || *mount != '/') {
		(void)err_set(a->e, -EINVAL,
			"'%s' is not PVC:PATH: write the claim and an absolute path", value);
		return name_flag(a, flag);
	}
	return put_storage(a, flag, "pvc", claim, mount, read_only);
}

int job_flag_take_data_dir(struct taking *a, const struct job_flag *flag, const char *value)
{
	const char *mount;
	_cleanup_free_ char *dir = split(value, &mount);

	if (!dir || *dir != '/' || (mount && *mount != '/')) {
		(void)err_set(a->e, -EINVAL, "'%s' is not DIR[:PATH]: write absolute paths", value);
		return name_flag(a, flag);
	}
	return put_storage(a, flag, "hostpath", dir, mount ? mount : dir, false);
}

int job_flag_take_dataset(struct taking *a, const struct job_flag *flag, const char *value)
{
	const char *rest;
	_cleanup_free_ char *dataset = split(value, &rest);
	_cleanup_free_ char *mount = rest ? strdup(rest) : NULL;

	(void)take_read_only(mount); /* it always is */
	if (!dataset || !*dataset || (mount && (*mount != '/' || strchr(mount, ':')))) {
		(void)err_set(a->e, -EINVAL,
			"'%s' is not NAME[:PATH]: write the dataset and an absolute path", value);
		return name_flag(a, flag);
	}
	return put_storage(a, flag, "dataset", dataset, mount, false);
}

int job_flag_take_shm(struct taking *a, const struct job_flag *flag, const char *value)
{
	return put_storage(a, flag, "shm", value, NULL, false);
}

/* KEY[=VALUE][:EFFECT][,OPERATOR] or all. */
int job_flag_take_toleration(struct taking *a, const struct job_flag *flag, const char *value)
{
	char key[256];
	const char *effect = strchr(value, ':');
	const char *comparison = strchr(value, ',');
	size_t len = strcspn(value, ":,");
	char *equals;
	json_t *all;
	char path[FIELD_PATH_BYTES];

	if (len == 0 || len >= sizeof(key) || (effect && comparison && comparison < effect)) {
		(void)err_set(a->e, -EINVAL,
			"'%s' is not a toleration: write KEY=VALUE:NoSchedule, KEY:NoExecute, KEY "
			"or "
			"all",
			value);
		return name_flag(a, flag);
	}
	(void)snprintf(key, sizeof(key), "%.*s", (int)len, value); /* fits */
	equals = strchr(key, '=');
	if (equals)
		*equals = '\0';
	all = json_object_get(json_object_get(a->spec->root, "scheduling"), "tolerations");
	(void)field_path_index(flag->path, json_array_size(all), path);
	if (strcmp(value, "all") == 0)
		return put(a, flag, path, json_pack("{s:s}", "operator", "Exists"));
	return put(a, flag, path,
		json_pack("{s:s, s:s, s:s*, s:o*}", "key", key, "operator",
			comparison ? comparison + 1
			: equals   ? "Equal"
				   : "Exists",
			"value", equals ? equals + 1 : NULL, "effect",
			effect ? json_stringn(effect + 1, strcspn(effect + 1, ",")) : NULL));
}

static int note(struct taking *a, const char *text)
{
	return json_array_append_new(a->notes, json_string(text)) < 0
		       ? err_set(a->e, -ENOMEM, "out of memory")
		       : 0;
}

/* Of PyTorch: workers that meet by themselves. */
static bool is_elastic(const struct taking *a)
{
	return a->type->id == JOB_PYTORCH &&
	       (job_flag_given(a, "min-workers") || job_flag_given(a, "max-workers"));
}

/* Arena counts the master of PyTorch and XGBoost as a worker. */
int job_flag_take_workers(struct taking *a, const struct job_flag *flag, const char *value)
{
	bool master = a->type->id == JOB_PYTORCH || a->type->id == JOB_XGBOOST;
	char text[96];
	char *end;
	long n = strtol(value, &end, 10);
	int r;

	if (*end || n < 1 || n > 100000) {
		(void)err_set(
			a->e, -EINVAL, "'%s' is not a number of pods; allowed: 1 to 100000", value);
		return name_flag(a, flag);
	}
	if (!master || is_elastic(a))
		return put(a, flag, flag->path, json_string(value));
	(void)snprintf(text, sizeof(text), "--workers %ld: 1 master and %ld worker%s%s", n, n - 1,
		n == 2 ? "" : "s", a->type->id == JOB_PYTORCH ? ", as with Arena" : ""); /* fits */
	r = note(a, text);
	if (r == 0)
		r = put(a, flag, "master.replicas", json_string("1"));
	(void)snprintf(text, sizeof(text), "%ld", n - 1); /* fits */
	return r == 0 && n > 1 ? put(a, flag, flag->path, json_string(text)) : r;
}

int job_flag_take_file(struct taking *a, const struct job_flag *flag, const char *value)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(FILE_BYTES);
	const char *inside;
	_cleanup_free_ char *file = split(value, &inside);
	char path[FIELD_PATH_BYTES];
	int r = !a->files ? -EACCES : !file ? -ENOMEM : file_read_all(file, &text);

	if (r == -EACCES && !a->files)
		(void)err_set(a->e, -EINVAL, "files of the server are not read: give `files`");
	else if (r < 0)
		(void)err_set(a->e, -EINVAL, "cannot read '%s': %s; give a text of at most 900KiB",
			value, err_str(r));
	else if (!utf8_is(buf_str(&text)) || strlen(buf_str(&text)) != text.len)
		(void)err_set(a->e, -EINVAL, "'%s' is not text; give a volume instead", value);
	else if ((inside ? *inside : *file) != '/')
		(void)err_set(a->e, -EINVAL,
			"'%s' is not FILE:PATH: write an absolute path in the containers", value);
	else
		return put(a, flag, field_path_key("files", inside ? inside : file, path),
			json_string(buf_str(&text)));
	return name_flag(a, flag);
}

int job_flag_take_later(struct taking *a, const struct job_flag *flag, const char *value)
{
	(void)a;
	(void)flag;
	(void)value;
	return 0;
}

/* ---- flags that belong together -------------------------------------------------------------- */

/* Arena puts the code in DIR/code. */
static int finish_sync(struct taking *a)
{
	const char *mode = job_flag_given(a, "sync-mode");
	const char *source = job_flag_given(a, "sync-source");
	const char *dir = job_flag_given(a, "working-dir");

	if (!mode && !source && !job_flag_given(a, "sync-image"))
		return 0;
	if (!mode || !source ||
		(strcmp(mode, "git") != 0 && strcmp(mode, "rsync") != 0 &&
			strcmp(mode, "hdfs") != 0))
		return err_set(a->e, -EINVAL,
			"--sync-mode and --sync-source belong together: write --sync-mode "
			"git|rsync|hdfs --sync-source URL");
	return job_spec_put(a->spec, "sync[0]",
		json_pack("{s:s, s:s+, s:s*}", mode, source, "local_path", dir ? dir : "/root",
			"/code", "image", job_flag_given(a, "sync-image")),
		"--sync-source", a->e);
}

static int add_task(struct taking *a, unsigned int i, const char *image, size_t len)
{
	const char *name = job_flag_given(a, "task-name");
	const char *replicas = job_flag_given(a, "task-replicas");
	const char *cpu = job_flag_given(a, "task-cpu");
	const char *memory = job_flag_given(a, "task-memory");
	const char *port = job_flag_given(a, "task-port");
	char path[32];
	char number[80];

	(void)snprintf(path, sizeof(path), "tasks[%u]", i); /* fits */
	(void)snprintf(
		number, sizeof(number), "%s-%u", name ? name : "task", i); /* cut: refused later */
	return job_spec_put(a->spec, path,
		json_pack("{s:s, s:o*, s:s, s:{s:s, s:s}, s:s}", "name", number, "image",
			image ? json_stringn(image, len) : NULL, "replicas",
			replicas ? replicas : "1", "resources", "cpu", cpu ? cpu : "250m", "memory",
			memory ? memory : "128Mi", "port", port ? port : "2222"),
		"--task-images", a->e);
}

static int finish_tasks(struct taking *a)
{
	const char *images = job_flag_given(a, "task-images");
	unsigned int n = 0;
	int r = 0;

	if (!images && job_flag_given(a, "image")) /* the job's, which its only task has */
		return add_task(a, 0, NULL, 0);
	for (const char *p = images; p && r == 0; p = strchr(p, ','), p = p ? p + 1 : NULL)
		r = add_task(a, n++, p, strcspn(p, ","));
	return r;
}

static int add_default(struct taking *a, const char *path, const char *value)
{
	return field_path_get(a->spec->root, path)
		       ? 0
		       : job_spec_put(a->spec, path, json_string(value), JOB_DEFAULT_ORIGIN, a->e);
}

/* What Arena does without being asked. */
static int finish_defaults(struct taking *a)
{
	const struct {
		const char *path;
		const char *flag;
		const char *otherwise; /* NULL: none */
	} sizes[] = {
		{ "envs.workers", "workers",
			is_elastic(a) ? job_flag_given(a, "max-workers") ?: "1" : "1" },
		{ "envs.gpus", "gpus", "0" },
		{ "envs.minWorkers", "min-workers", NULL },
		{ "envs.maxWorkers", "max-workers", NULL },
	};
	enum job_type_id type = a->type->id;
	bool shares =
		type == JOB_PYTORCH || type == JOB_TF || type == JOB_ET || type == JOB_DEEPSPEED;
	char path[FIELD_PATH_BYTES];
	int r = 0;

	for (size_t i = 0; type <= JOB_DEEPSPEED && i < ARRAY_SIZE(sizes) && r == 0; i++) {
		const char *n = job_flag_given(a, sizes[i].flag) ?: sizes[i].otherwise;

		if (n)
			r = add_default(a, sizes[i].path, n);
	}
	if (r < 0 || is_elastic(a))
		;
	else if (type == JOB_PYTORCH || type == JOB_XGBOOST)
		r = add_default(a, "master.replicas", "1");
	else if (type != JOB_NOTEBOOK && type != JOB_BUILD && type != JOB_VOLCANO)
		r = add_default(a, "worker.replicas", "1");
	if (r == 0 && (type <= JOB_DEEPSPEED))
		r = add_default(a, "lifecycle.clean_pod_policy", "Running");
	if (r == 0 && shares && !job_flag_given(a, "share-memory")) {
		(void)field_path_index("storages",
			json_array_size(json_object_get(a->spec->root, "storages")), path);
		r = job_spec_put(
			a->spec, path, json_pack("{s:s}", "shm", "2Gi"), JOB_DEFAULT_ORIGIN, a->e);
	}
	return r;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Quoted when it has blanks or quotes; what a shell expands stays for it, as with Arena. */
static int append_word(struct buf *out, const char *word)
{
	int r = out->len ? buf_puts(out, " ") : 0;

	if (r < 0 || (*word && !strpbrk(word, " \t\n'\"\\")))
		return r < 0 ? r : buf_puts(out, word);
	r = buf_puts(out, "'");
	for (const char *p = word; *p && r == 0; p++)
		r = *p == '\'' ? buf_puts(out, "'\\''") : buf_append(out, p, 1);
	return r < 0 ? r : buf_puts(out, "'");
}

/* One word is a line for the shell; several are the words of one command. */
static int take_command(struct taking *a, char *const *words, int n)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(COMMAND_BYTES);
	int r = 0;

	if (n == 0)
		return 0;
	for (int i = 0; i < n; i++)
		if (!utf8_is(words[i]))
			return err_set(
				a->e, -EINVAL, "the command is not UTF-8: write it as UTF-8");
	if (n > 1 && strpbrk(words[0], " \t\n"))
		return err_set(a->e, -EINVAL,
			"the command: '%s' has blanks and more words follow: quote the whole line, "
			"or separate the words",
			words[0]);
	if (n == 1)
		r = buf_puts(&line, words[0]);
	for (int i = 0; n > 1 && i < n && r == 0; i++)
		r = append_word(&line, words[i]);
	if (r < 0)
		return err_set(
			a->e, r, "the command cannot be stored: %s; allowed: 256KiB", err_str(r));
	return job_spec_put(a->spec, "run", json_string(buf_str(&line)), "the command", a->e);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int other_type(struct taking *a, const struct job_flag *flag)
{
	const struct job_type *type = NULL;

	for (unsigned int i = 0; !type && i < JOB_TYPES; i++)
		if (flag->types >> i & 1)
			type = job_type_at(i);
	return err_set(a->e, -EINVAL,
		"--%s belongs to %s, not to %s: `cachectl job submit %s --help` lists the options",
		flag->name, type ? type->name : "", a->type->name, a->type->name);
}

static int take_value(struct taking *a, const struct job_flag *flag, const char *value)
{
	if (!(flag->types >> a->type->id & 1))
		return other_type(a, flag);
	if (!flag->take)
		return err_set(a->e, -EINVAL, "--%s does not apply to %s: %s", flag->name,
			a->type->name, flag->help);
	if (flag->kind == OPTION_STRING && strncmp(value, "--", 2) == 0 &&
		flag->take != job_flag_take_queue)
		return err_set(a->e, -EINVAL,
			"--%s: '%s' is the next option, and the value is missing: write --%s=%s",
			flag->name, value, flag->name, flag->metavar);
	if (!utf8_is(value)) {
		(void)err_set(a->e, -EINVAL, "the value is not UTF-8: write it as UTF-8");
		return name_flag(a, flag);
	}
	return flag->take(a, flag, value);
}

static int take_flag(
	struct taking *a, const struct job_flag *flag, const union job_flag_value *value)
{
	int r = 0;

	if (flag->kind == OPTION_STRING)
		return value->text ? take_value(a, flag, value->text) : 0;
	if (flag->kind == OPTION_BOOL)
		return value->on ? take_value(a, flag, "true") : 0;
	for (unsigned int i = 0; i < value->list.n && r == 0; i++)
		r = take_value(a, flag, value->list.values[i]);
	return r;
}

int job_flag_take(const struct job_type *type, const struct job_flag_values *values, bool files,
	char *const *command, int n_command, struct job_spec *spec, json_t *notes, struct err *e)
{
	struct taking a = { type, values, spec, notes, files, e };
	unsigned int n = 0;
	int r = job_spec_put(spec, "framework.name", json_string(type->framework), type->name, e);

	for (unsigned int i = 0; job_flags[i].name && r == 0; i++)
		if (is_first_of_name(i))
			r = take_flag(&a, row_for(i, type), &values->of[n++]);
	if (r == 0)
		r = take_command(&a, command, n_command);
	if (r == 0)
		r = finish_sync(&a);
	if (r == 0 && type->id == JOB_VOLCANO)
		r = finish_tasks(&a);
	if (r == 0)
		r = finish_defaults(&a);
	return r;
}
