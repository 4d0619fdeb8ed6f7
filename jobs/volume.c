/* Volumes of a pod: datasets, claims, memory, files; and the code that is copied before it starts. */
#include "base/cleanup.h"
#include "base/dataset_name.h"
#include "base/option.h"
#include "jobs/compile_internal.h"

#include <string.h>

/* As a label of DNS: what it may not have becomes '-', and it does not end with one. */
static const char *volume_name(const char *prefix, const char *name, char out[VOLUME_NAME_BYTES])
{
	(void)snprintf(
		out, VOLUME_NAME_BYTES, "%s%s", prefix, name); /* cut: as long as it may be */
	for (char *p = out; *p; p++) {
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p - 'A' + 'a');
		if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9')))
			*p = '-';
	}
	for (size_t len = strlen(out); len > 0 && out[len - 1] == '-'; len--)
		out[len - 1] = '\0';
	return out;
}

/* ---- the kinds of storages ------------------------------------------------------------------- */

typedef json_t *(*source_fn)(const json_t *storage, const char *value);

static json_t *dataset_source(const json_t *storage, const char *value)
{
	json_t *generation = json_object_get(storage, "generation");
	json_t *attributes = json_pack(
		"{s:s, s:O*}", "dataset", value, "path", json_object_get(storage, "path"));
	int r = 0;

	if (generation)
		r = json_object_set_new(attributes, "generation",
			json_sprintf("%lld", (long long)json_integer_value(generation)));
	if (json_is_true(json_object_get(storage, "follow")))
		r = json_object_set_new(attributes, "follow", json_string("true")) ?: r;
	if (json_is_true(json_object_get(storage, "order")))
		r = json_object_set_new(attributes, "order", json_string("true")) ?: r;
	if (r < 0) {
		json_decref(attributes);
		return NULL;
	}
	return json_pack("{s:{s:s, s:b, s:o}}", "csi", "driver", CSI_DRIVER, "readOnly", 1,
		"volumeAttributes", attributes);
}

static json_t *claim_source(const json_t *storage, const char *value)
{
	(void)storage;
	return json_pack("{s:{s:s}}", "persistentVolumeClaim", "claimName", value);
}

static json_t *shm_source(const json_t *storage, const char *value)
{
	(void)storage;
	return json_pack("{s:{s:s, s:s}}", "emptyDir", "medium", "Memory", "sizeLimit", value);
}

static json_t *tmp_source(const json_t *storage, const char *value)
{
	(void)storage;
	return json_pack("{s:{s:s}}", "emptyDir", "sizeLimit", value);
}

static json_t *host_source(const json_t *storage, const char *value)
{
	(void)storage;
	return json_pack("{s:{s:s}}", "hostPath", "path", value);
}

static json_t *map_source(const json_t *storage, const char *value)
{
	(void)storage;
	return json_pack("{s:{s:s}}", "configMap", "name", value);
}

static json_t *secret_source(const json_t *storage, const char *value)
{
	(void)storage;
	return json_pack("{s:{s:s}}", "secret", "secretName", value);
}

static const struct storage_kind {
	const char *field;
	source_fn source;
	const char *prefix; /* of the volume's name; NULL: the name is `shm` alone */
	const char *mount;  /* where by default; NULL: it must be given */
	const char *takes;  /* fields of its own */
} kinds[] = {
	{ "dataset", dataset_source, "dataset-", "/data/",
		"path|generation|follow|order|read_only" },
	{ "pvc", claim_source, "", NULL, "sub_path|read_only" },
	{ "shm", shm_source, NULL, "/dev/shm", "" },
	{ "tmp", tmp_source, "tmp", NULL, "" },
	{ "hostpath", host_source, "host", NULL, "sub_path|read_only" },
	{ "configmap", map_source, "configmap-", NULL, "key|read_only" },
	{ "secret", secret_source, "secret-", NULL, "key|read_only" },
};

static const struct storage_kind *kind_of(
	struct compile *c, const json_t *storage, const char *from)
{
	const struct storage_kind *found = NULL;
	unsigned int n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (json_object_get(storage, kinds[i].field)) {
			found = &kinds[i];
			n++;
		}
	if (n == 1)
		return found;
	spec_refuse(c, from,
		"a storage is one of dataset, pvc, shm, tmp, hostpath, configmap and secret: give "
		"exactly "
		"one of them");
	return NULL;
}

/* A field that belongs to another kind of storage. */
static void refuse_others(
	struct compile *c, const json_t *storage, const struct storage_kind *kind, const char *from)
{
	static const char *const fields[] = { "path", "generation", "follow", "order", "sub_path",
		"key", "read_only" };
	char path[FIELD_PATH_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (!json_object_get(storage, fields[i]) ||
			option_is_choice(kind->takes, fields[i]))
			continue;
		spec_refuse(c, field_path_key(from, fields[i], path),
			"has no effect on a storage of kind %s: leave it out", kind->field);
	}
	if (strcmp(kind->field, "dataset") == 0 &&
		json_is_false(json_object_get(storage, "read_only"))) {
		spec_refuse(c, field_path_key(from, "read_only", path),
			"a dataset is read-only: write to a pvc");
	}
}

static const char *storage_name(const json_t *storage, const struct storage_kind *kind, size_t i,
	char out[VOLUME_NAME_BYTES])
{
	const char *name = json_string_value(json_object_get(storage, "name"));
	char number[24];

	(void)snprintf(number, sizeof(number), "-%zu", i); /* fits */
	if (name)
		return volume_name(strchr("-_.", *name) ? "volume" : "", name, out);
	if (!kind->prefix)
		return volume_name("", "dshm", out);
	if (strcmp(kind->prefix, "tmp") == 0 || strcmp(kind->prefix, "host") == 0)
		return volume_name(kind->prefix, number, out);
	return volume_name(
		kind->prefix, json_string_value(json_object_get(storage, kind->field)), out);
}

static json_t *volume_mount(struct compile *c, const json_t *storage,
	const struct storage_kind *kind, const char *name, const char *from)
{
	const char *value = json_string_value(json_object_get(storage, kind->field));
	const char *mount = json_string_value(json_object_get(storage, "mount_path"));
	json_t *sub = json_object_get(storage, "key") ?: json_object_get(storage, "sub_path");
	bool dataset = strcmp(kind->field, "dataset") == 0;
	char path[FIELD_PATH_BYTES];

	if (!mount && !kind->mount) {
		spec_refuse(c, from, "has no mount_path: give the path in the containers");
		return json_object(); /* unused after a failure */
	}
	(void)snprintf(path, sizeof(path), "%s%s", kind->mount ? kind->mount : "",
		dataset ? value : ""); /* cut: refused by the linter */
	return json_pack("{s:s, s:s, s:O*, s:o*, s:s*}", "name", name, "mountPath",
		mount ? mount : path, "subPath", sub, "readOnly",
		dataset || json_is_true(json_object_get(storage, "read_only")) ? json_true() : NULL,
		"mountPropagation", dataset ? "HostToContainer" : NULL);
}

/* The volume of that name; NULL: none. */
static json_t *find_volume(const json_t *pod, const char *name)
{
	json_t *volume;
	size_t i;

	json_array_foreach (json_object_get(pod, "volumes"), i, volume)
		if (strcmp(json_string_value(json_object_get(volume, "name")) ?: "", name) == 0)
			return volume;
	return NULL;
}

void pod_volume(struct compile *c, json_t *pod, char name[VOLUME_NAME_BYTES], json_t *source,
	const char *from)
{
	_cleanup_(json_decrefp) json_t *volume = json_pack("{s:s}", "name", name);
	int len = (int)strlen(name);
	const json_t *same;

	if (json_object_update_new(volume, source) < 0)
		return put(c, pod, "volumes", NULL, from); /* out of memory */
	for (unsigned int n = 2; (same = find_volume(pod, name)); n++) {
		if (json_equal(same, volume))
			return;
		(void)snprintf(name + min(len, (int)VOLUME_NAME_BYTES - 8), 8, "-%u", n); /* fits */
		if (json_object_set_new(volume, "name", json_string(name)) < 0)
			return put(c, pod, "volumes", NULL, from); /* out of memory */
	}
	put(c, put_array(c, pod, "volumes"), "[]", json_incref(volume), from);
}

/* Does it have a component ".."? */
static bool leaves(const char *path)
{
	for (size_t len = 0; *path; path += len + (path[len] == '/')) {
		len = strcspn(path, "/");
		if (len == 2 && memcmp(path, "..", 2) == 0)
			return true;
	}
	return false;
}

/* Refuses names that the cluster would refuse only when it makes the first pod. */
static void check_source(
	struct compile *c, const json_t *storage, const struct storage_kind *kind, const char *from)
{
	static const char *const paths[] = { "path", "sub_path" };
	const char *value = json_string_value(json_object_get(storage, kind->field));
	struct err why = ERR_INIT;
	bool object = option_is_choice("pvc|configmap|secret", kind->field);
	char path[FIELD_PATH_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		if (leaves(json_string_value(json_object_get(storage, paths[i])) ?: ""))
			spec_refuse(c, field_path_key(from, paths[i], path),
				"leaves the volume with '..': write a path below it");
	(void)field_path_key(from, kind->field, path); /* returns it */
	if (strcmp(kind->field, "dataset") == 0 && dataset_check_name(value, &why) < 0) {
		spec_refuse(c, path, "%s", why.text);
	} else if (object) {
		spec_check_name(c, path, value);
	}
}

/* Where a job of a pod announces the order of its reads: the sockets of the host's mounts. */
static void put_order(struct compile *c, json_t *pod, json_t *container, const char *from)
{
	char name[VOLUME_NAME_BYTES] = "granary-order";
	json_t *mounts = put_array(c, container, "volumeMounts");
	json_t *mount;
	size_t i;

	json_array_foreach (mounts, i, mount)
		if (strcmp(json_string_value(json_object_get(mount, "mountPath")) ?: "",
			    CSI_ORDER_DIR) == 0)
			return;
	pod_volume(c, pod, name,
		json_pack("{s:{s:s, s:s}}", "hostPath", "path", CSI_ORDER_DIR, "type",
			"DirectoryOrCreate"),
		from);
	put(c, mounts, "[]",
		json_pack(
			"{s:s, s:s, s:b}", "name", name, "mountPath", CSI_ORDER_DIR, "readOnly", 1),
		from);
}

static void put_storage(struct compile *c, json_t *pod, json_t *container, size_t i)
{
	char from[FIELD_PATH_BYTES];
	char name[VOLUME_NAME_BYTES];
	const json_t *storage = spec_get(c, field_path_index("storages", i, from));
	const struct storage_kind *kind = kind_of(c, storage, from);
	const char *value;

	if (!kind)
		return;
	value = json_string_value(json_object_get(storage, kind->field));
	refuse_others(c, storage, kind, from);
	check_source(c, storage, kind, from);
	if (c->error != 0)
		return;
	(void)storage_name(storage, kind, i, name); /* returns it */
	pod_volume(c, pod, name, kind->source(storage, value), from);
	put(c, put_array(c, container, "volumeMounts"), "[]",
		volume_mount(c, storage, kind, name, from), from);
	if (json_is_true(json_object_get(storage, "order")))
		put_order(c, pod, container, from);
}

/* ---- files and code -------------------------------------------------------------------------- */

/* Their contents are in the ConfigMap of add_files(). */
static void put_files(struct compile *c, json_t *pod, json_t *container)
{
	const json_t *files = spec_get(c, "files");
	char name[VOLUME_NAME_BYTES] = "files";
	char key[24];
	char from[FIELD_PATH_BYTES];
	const char *path;
	json_t *text;
	size_t i = 0;

	if (json_object_size(files) == 0)
		return;
	pod_volume(c, pod, name, json_pack("{s:{s:s+}}", "configMap", "name", c->name, "-files"),
		"files");
	json_object_foreach ((json_t *)(uintptr_t)files, path, text) { /* only read */
		(void)snprintf(key, sizeof(key), "file-%zu", i++);     /* fits */
		put(c, put_array(c, container, "volumeMounts"), "[]",
			json_pack(
				"{s:s, s:s, s:s}", "name", name, "mountPath", path, "subPath", key),
			field_path_key("files", path, from));
	}
}

/* Images and commands that copy; the source is an argument, never a part of the command. */
static const struct copier {
	const char *field;
	const char *image;
	const char *command;
} copiers[] = {
	{ "git", "alpine/git:2.45.2",
		"git clone --depth 1 ${BRANCH:+--branch \"$BRANCH\"} -- \"$SOURCE\" "
		"\"$TARGET/$(basename \"$SOURCE\" .git)\"" },
	{ "rsync", "instrumentisto/rsync-ssh:alpine3.20", "rsync -avP -- \"$SOURCE\" \"$TARGET\"" },
	{ "hdfs", "apache/hadoop:3.4.0", "hdfs dfs -get -- \"$SOURCE\" \"$TARGET\"" },
};

/* The source becomes an environment variable, which every reader of pods can read. */
static void refuse_credentials(struct compile *c, const char *source, const char *from)
{
	const char *host = strstr(source, "://");
	const char *at;

	if (!host)
		return;
	host += 3;
	at = memrchr(host, '@', strcspn(host, "/?#"));
	if (at && (strncmp(source, "http", 4) == 0 || memchr(host, ':', (size_t)(at - host))))
		spec_refuse(c, from,
			"has credentials, which are then part of the pod: remove them from the "
			"URL, "
			"and give the sync an image that has its own");
}

static void put_sync(struct compile *c, json_t *pod, json_t *container, size_t i)
{
	char from[FIELD_PATH_BYTES];
	char field[FIELD_PATH_BYTES];
	char name[VOLUME_NAME_BYTES];
	char volume[VOLUME_NAME_BYTES];
	const json_t *sync = spec_get(c, field_path_index("sync", i, from));
	const char *target = json_string_value(json_object_get(sync, "local_path"));
	const char *image = json_string_value(json_object_get(sync, "image"));
	const struct copier *copier = NULL;
	const char *source;
	unsigned int n = 0;

	for (size_t k = 0; k < ARRAY_SIZE(copiers); k++)
		if (json_object_get(sync, copiers[k].field)) {
			copier = &copiers[k];
			n++;
		}
	if (n != 1 || !target) {
		spec_refuse(c, from,
			"a sync needs one of git, rsync and hdfs, and a local_path: give both");
		return;
	}
	source = json_string_value(json_object_get(sync, copier->field));
	refuse_credentials(c, source, field_path_key(from, copier->field, field));
	if (json_object_get(sync, "branch") && strcmp(copier->field, "git") != 0)
		spec_refuse(c, from, "a branch is of git alone: leave it out");
	(void)snprintf(name, sizeof(name), "init-code-%zu", i);     /* fits */
	(void)snprintf(volume, sizeof(volume), "code-sync-%zu", i); /* likewise */
	pod_volume(c, pod, volume, json_pack("{s:{}}", "emptyDir"), from);
	put(c, put_array(c, container, "volumeMounts"), "[]",
		json_pack("{s:s, s:s}", "name", volume, "mountPath", target), from);
	put(c, put_array(c, pod, "initContainers"), "[]",
		json_pack("{s:s, s:s, s:[s, s, s], s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}], "
			  "s:[{s:s, s:s}]}",
			"name", name, "image", image ? image : copier->image, "command", "sh", "-c",
			copier->command, "env", "name", "SOURCE", "value", source, "name", "TARGET",
			"value", target, "name", "BRANCH", "value",
			json_string_value(json_object_get(sync, "branch")) ?: "", "volumeMounts",
			"name", volume, "mountPath", target),
		from);
}

void pod_volumes(struct compile *c, json_t *pod, json_t *container)
{
	size_t storages = json_array_size(spec_get(c, "storages"));
	size_t syncs = json_array_size(spec_get(c, "sync"));

	for (size_t i = 0; i < storages && c->error == 0; i++)
		put_storage(c, pod, container, i);
	put_files(c, pod, container);
	for (size_t i = 0; i < syncs && c->error == 0; i++)
		put_sync(c, pod, container, i);
}

/* Has a storage that can be written that path? */
static bool holds(const json_t *storage, const char *path)
{
	const char *mount = json_string_value(json_object_get(storage, "mount_path"));
	size_t len = mount ? strlen(mount) : 0;

	while (len > 1 && mount[len - 1] == '/')
		len--;
	return len > 0 &&
	       (json_object_get(storage, "pvc") || json_object_get(storage, "hostpath")) &&
	       strncmp(path, mount, len) == 0 && (!path[len] || path[len] == '/');
}

bool pod_volume_of(struct compile *c, json_t *pod, json_t *container, const char *path)
{
	const json_t *storages = spec_get(c, "storages");

	for (size_t i = 0; i < json_array_size(storages); i++)
		if (holds(json_array_get(storages, i), path)) {
			put_storage(c, pod, container, i);
			return true;
		}
	return false;
}
