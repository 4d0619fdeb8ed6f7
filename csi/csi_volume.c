/* See csi_volume.h. */
#include "csi/csi_volume.h"
#include "base/cleanup.h"
#include "base/config.h"
#include "base/dataset_volume.h"
#include "base/hash.h"
#include "base/little.h"
#include "base/option.h"
#include "base/utf8.h"
#include "csi/csi.pb-c.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KUBERNETES      "csi.storage.k8s.io/"
#define TOKENS          KUBERNETES "serviceAccount.tokens"
#define AUDIENCE        "granary" /* of tokenRequests in the CSIDriver */
#define ATTRIBUTES_MAX  64u
#define ATTRIBUTE_BYTES 4096u

/* Of access modes: those that ask for nothing but reading. The others do with `readonly`. */
enum { MODE_UNKNOWN = 0, MODE_SINGLE_NODE_READER = 2, MODE_MULTI_NODE_READER = 3, MODE_MAX = 7 };

/* ---- texts ----------------------------------------------------------------------------------- */

/* A field as a text of less than `size` bytes, without control characters. */
static int take_text(
	const ProtobufCBinaryData *field, const char *name, char *out, size_t size, struct err *e)
{
	if (field->len == 0)
		return err_set(e, -EINVAL, "%s is missing", name);
	if (field->len >= size)
		return err_set(e, -EINVAL, "%s has %zu bytes: the maximum is %zu", name, field->len,
			size - 1);
	for (size_t i = 0; i < field->len; i++)
		if (field->data[i] < ' ' || field->data[i] == 0x7f)
			return err_set(e, -EINVAL, "%s has a control character (0x%02x)", name,
				field->data[i]);
	memcpy(out, field->data, field->len);
	out[field->len] = '\0';
	return utf8_is(out) ? 0 : err_set(e, -EINVAL, "%s is not UTF-8", name);
}

int csi_volume_take_id(const ProtobufCBinaryData *field, char out[VOLUME_ID_BYTES], struct err *e)
{
	return take_text(field, "volume_id", out, VOLUME_ID_BYTES, e);
}

/* Absolute, without empty, "." and ".." parts. */
static bool is_canonical(const char *path)
{
	size_t len = strlen(path);

	return path[0] == '/' && len > 1 && path[len - 1] != '/' && !strstr(path, "//") &&
	       !strstr(path, "/./") && !strstr(path, "/../") && strcmp(path + len - 2, "/.") != 0 &&
	       (len < 3 || strcmp(path + len - 3, "/..") != 0);
}

int csi_volume_take_path(
	const ProtobufCBinaryData *field, const char *name, char out[PATH_MAX], struct err *e)
{
	int r = take_text(field, name, out, PATH_MAX, e);

	if (r < 0)
		return r;
	return is_canonical(out)
		       ? 0
		       : err_set(e, -EINVAL,
				 "%s '%.256s' is not an absolute path without '.' and '..'", name,
				 out);
}

static bool is_key(const ProtobufCBinaryData *key, const char *name)
{
	return key->len == strlen(name) && memcmp(key->data, name, key->len) == 0;
}

/* ---- attributes ------------------------------------------------------------------------------ */

struct attribute {
	const char *key;
	size_t offset; /* in struct csi_volume */
	size_t size;
	const char *choices; /* "a|b"; "": any text */
};

#define ATTRIBUTE(name, member, choices)                                                       \
	{ name, offsetof(struct csi_volume, member), sizeof(((struct csi_volume *)0)->member), \
		choices },
#define ATTRIBUTE_OF_USER(member, choices) ATTRIBUTE(#member, member, choices)

static const struct attribute attributes[] = { CSI_ATTRIBUTE_TABLE(ATTRIBUTE_OF_USER) };
/* What kubelet adds of the pod. */
static const struct attribute of_pod[] = { ATTRIBUTE(KUBERNETES "pod.namespace", name_space, "")
		ATTRIBUTE(KUBERNETES "serviceAccount.name", account, "")
			ATTRIBUTE(KUBERNETES "pod.uid", pod, "") };

static const struct attribute *find(
	const struct attribute *table, size_t n, const ProtobufCBinaryData *key)
{
	for (size_t i = 0; i < n; i++)
		if (is_key(key, table[i].key))
			return &table[i];
	return NULL;
}

static int unknown(const ProtobufCBinaryData *key, struct err *e)
{
	const char *names[ARRAY_SIZE(attributes)];
	char word[64];
	const char *nearest;

	(void)snprintf(word, sizeof(word), "%.*s", (int)min(key->len, sizeof(word) - 1),
		(const char *)key->data); /* cut */
	for (size_t i = 0; i < ARRAY_SIZE(attributes); i++)
		names[i] = attributes[i].key;
	nearest = config_nearest(word, names, ARRAY_SIZE(names));
	if (nearest)
		return err_set(e, -EINVAL, "unknown attribute '%s'; use '%s'", word, nearest);
	return err_set(e, -EINVAL, "unknown attribute '%s': use %s", word, CSI_ATTRIBUTES);
}

static int take_attribute(const Csi__V1__Entry *entry, struct csi_volume *v, struct err *e)
{
	bool is_kubernetes = entry->key.len >= strlen(KUBERNETES) &&
			     memcmp(entry->key.data, KUBERNETES, strlen(KUBERNETES)) == 0;
	const struct attribute *a = is_kubernetes
					    ? find(of_pod, ARRAY_SIZE(of_pod), &entry->key)
					    : find(attributes, ARRAY_SIZE(attributes), &entry->key);
	char name[96];
	char *out;
	int r;

	if (!a)
		return is_kubernetes ? 0 : unknown(&entry->key, e);
	(void)snprintf(name, sizeof(name), "attribute '%s'", a->key); /* fits */
	out = (char *)v + a->offset;
	if (*out)
		return err_set(e, -EINVAL, "%s is given twice", name);
	r = take_text(&entry->value, name, out, a->size, e);
	if (r == 0 && a->choices[0] && !option_is_choice(a->choices, out))
		r = err_set(e, -EINVAL, "invalid %s '%s': use %s", name, out, a->choices);
	return r;
}

/*
 * Where kubelet does not add what pod it is, that may be an attribute of a user. The target of a pod has its uid as a part of the path.
 */
static int check_pod(const struct csi_volume *v, struct err *e)
{
	size_t len = strlen(v->pod);

	if (!v->name_space[0] || len == 0)
		return err_set(e, -EINVAL,
			"the pod is unknown: use `podInfoOnMount: true` in the CSIDriver");
	for (const char *p = v->target; p; p = strchr(p + 1, '/'))
		if (strncmp(p + 1, v->pod, len) == 0 && p[1 + len] == '/')
			return 0;
	return err_set(e, -EINVAL, "target_path is not a path of pod %s", v->pod);
}

static int check_generation(const struct csi_volume *v, struct err *e)
{
	size_t len = strlen(v->generation);

	if (len <= 18 && strspn(v->generation, "0123456789") == len && v->generation[0] != '0')
		return 0;
	return err_set(e, -EINVAL, "invalid attribute 'generation' '%s': use a number from 1",
		v->generation);
}

/* Without the '/' around it. */
static int trim_path(struct csi_volume *v, struct err *e)
{
	char absolute[VOLUME_PATH_BYTES + 1];
	size_t len = strlen(v->path);
	size_t first = strspn(v->path, "/");

	if (len == 0)
		return 0;
	while (len > first && v->path[len - 1] == '/')
		len--;
	(void)snprintf(absolute, sizeof(absolute), "/%.*s", (int)(len - first),
		v->path + first); /* fits */
	if (!absolute[1] || !is_canonical(absolute))
		return err_set(e, -EINVAL,
			"invalid attribute 'path' '%.256s': use a directory of the dataset, "
			"without "
			"'.' and '..'",
			v->path);
	memcpy(v->path, absolute + 1, len - first + 1);
	return 0;
}

/* A container has a copy of the mount, in which only the fuse engine shows another generation. */
static int check_follow(struct csi_volume *v, struct err *e)
{
	if (strcmp(v->follow, "true") != 0)
		return 0;
	if (v->generation[0])
		return err_set(e, -EINVAL,
			"'follow' and 'generation' exclude each other: use one of them");
	if (v->engine[0] && strcmp(v->engine, "auto") != 0 && strcmp(v->engine, "fuse") != 0)
		return err_set(e, -EINVAL,
			"containers see newer generations with engine fuse only: leave out "
			"'engine'");
	(void)snprintf(v->engine, sizeof(v->engine), "fuse"); /* fits */
	return 0;
}

/* {"granary": {"token": "...", "expirationTimestamp": "..."}}, of kubelet. */
static int take_service_token(const Csi__V1__Entry *entry, struct csi_volume *v, struct err *e)
{
	json_t *json = json_loadb(
		(const char *)entry->value.data, entry->value.len, JSON_REJECT_DUPLICATES, NULL);
	const char *text =
		json_string_value(json_object_get(json_object_get(json, AUDIENCE), "token"));
	int r = 0;

	if (!json_is_object(json))
		r = err_set(e, -EINVAL, "attribute '%s' is not a JSON object", TOKENS);
	else if (text && snprintf(v->service_token, sizeof(v->service_token), "%s", text) >=
				 (int)sizeof(v->service_token))
		r = err_set(e, -EINVAL,
			"the token of the service account has %zu bytes: the maximum is %u",
			strlen(text), VOLUME_TOKEN_BYTES - 1);
	json_decref(json);
	return r;
}

/* Of the attributes, or of the secrets (`serviceAccountTokenInSecrets`). It is no part of what is mounted. */
static int take_service_tokens(
	const Csi__V1__NodePublishVolumeRequest *request, struct csi_volume *v, struct err *e)
{
	int r = 0;

	for (size_t i = 0; i < request->n_volume_context && r == 0; i++)
		if (is_key(&request->volume_context[i]->key, TOKENS))
			r = take_service_token(request->volume_context[i], v, e);
	for (size_t i = 0; i < request->n_secrets && r == 0; i++)
		if (is_key(&request->secrets[i]->key, TOKENS))
			r = take_service_token(request->secrets[i], v, e);
	return r;
}

static int take_attributes(
	const Csi__V1__NodePublishVolumeRequest *request, struct csi_volume *v, struct err *e)
{
	if (request->n_volume_context > ATTRIBUTES_MAX)
		return err_set(e, -EINVAL, "%zu attributes: the maximum is %u",
			request->n_volume_context, ATTRIBUTES_MAX);
	for (size_t i = 0; i < request->n_volume_context; i++) {
		int r = take_attribute(request->volume_context[i], v, e);

		if (r < 0)
			return r;
	}
	if (!v->dataset[0])
		return err_set(e, -EINVAL,
			"attribute 'dataset' is missing: name a dataset in volumeAttributes");
	if (check_pod(v, e) < 0 || (v->generation[0] && check_generation(v, e) < 0) ||
		trim_path(v, e) < 0 || check_follow(v, e) < 0)
		return e->code;
	return dataset_check_name(v->dataset, e);
}

/* ---- capability ------------------------------------------------------------------------------ */

static int check_mode(int32_t mode, bool readonly, struct err *e)
{
	if (mode <= MODE_UNKNOWN || mode > MODE_MAX)
		return err_set(e, -EINVAL,
			"volume_capability.access_mode is missing or unknown: %d", (int)mode);
	if (readonly || mode == MODE_SINGLE_NODE_READER || mode == MODE_MULTI_NODE_READER)
		return 0;
	return err_set(e, -EINVAL,
		"datasets are read-only: use `accessModes: [ReadOnlyMany]` in the volume, or "
		"`readOnly: true` in the pod");
}

static int check_flags(const Csi__V1__VolumeCapability__MountVolume *mount, struct err *e)
{
	for (size_t i = 0; i < mount->n_mount_flags; i++) {
		const ProtobufCBinaryData *flag = &mount->mount_flags[i];

		if (!is_key(flag, "ro"))
			return err_set(e, -EINVAL, "unknown mount option '%.*s': use none, or ro",
				(int)min(flag->len, 64u), (const char *)flag->data);
	}
	return 0;
}

static int check_capability(const Csi__V1__NodePublishVolumeRequest *request, struct err *e)
{
	const Csi__V1__VolumeCapability *c = request->volume_capability;

	if (!c)
		return err_set(e, -EINVAL, "volume_capability is missing");
	if (c->block)
		return err_set(e, -EINVAL,
			"block volumes are not supported: use `volumeMode: Filesystem`");
	if (!c->mount)
		return err_set(e, -EINVAL, "volume_capability.mount is missing");
	if (!c->access_mode)
		return err_set(e, -EINVAL, "volume_capability.access_mode is missing");
	if (check_mode(c->access_mode->mode, request->readonly, e) < 0)
		return e->code;
	return check_flags(c->mount, e);
}

/* ---- the token ------------------------------------------------------------------------------- */

static void add(struct hash_sha256 *h, const char *text)
{
	hash_sha256_update(h, text, strlen(text) + 1);
}

/* Of the texts, each with its NUL: no two requests look alike. */
static int make_token(struct csi_volume *v, struct err *e)
{
	struct hash_sha256 *h = hash_sha256_new();
	uint8_t sum[SHA256_BYTES];

	if (!h)
		return err_set(e, -ENOMEM, "out of memory");
	add(h, v->id);
	add(h, v->target);
	for (size_t i = 0; i < ARRAY_SIZE(attributes); i++)
		add(h, (const char *)v + attributes[i].offset);
	for (size_t i = 0; i < ARRAY_SIZE(of_pod); i++)
		add(h, (const char *)v + of_pod[i].offset);
	hash_sha256_final(h, sum);
	v->token = (little_get64(sum) & INT64_MAX) | 1; /* JSON's integers are signed; 0 is none */
	return 0;
}

int csi_volume_parse(
	const Csi__V1__NodePublishVolumeRequest *request, struct csi_volume *ret, struct err *e)
{
	int r;

	*ret = (struct csi_volume){ 0 };
	r = csi_volume_take_id(&request->volume_id, ret->id, e);
	if (r == 0)
		r = csi_volume_take_path(&request->target_path, "target_path", ret->target, e);
	if (r == 0)
		r = check_capability(request, e);
	if (r == 0)
		r = take_attributes(request, ret, e);
	if (r == 0)
		r = take_service_tokens(request, ret, e);
	return r == 0 ? make_token(ret, e) : r;
}
