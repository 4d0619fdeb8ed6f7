/* What requests to publish a volume mean, and the lines for those that mean nothing. */
#include "csi/csi_volume.h"
#include "base/dataset_volume.h"
#include "csi/csi.pb-c.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define ENTRIES 8u
#define POD     "csi.storage.k8s.io/"

struct request {
	Csi__V1__NodePublishVolumeRequest message;
	Csi__V1__VolumeCapability capability;
	Csi__V1__VolumeCapability__MountVolume mount;
	Csi__V1__VolumeCapability__BlockVolume block;
	Csi__V1__VolumeCapability__AccessMode mode;
	Csi__V1__Entry entries[ENTRIES];
	Csi__V1__Entry *pointers[ENTRIES];
	ProtobufCBinaryData flag;
};

static ProtobufCBinaryData bytes(const char *text)
{
	return (ProtobufCBinaryData){ .len = strlen(text), .data = (uint8_t *)(uintptr_t)text };
}

/* In the place of one with that key. */
static void attribute(struct request *r, const char *key, const char *value)
{
	size_t i;

	for (i = 0; i < r->message.n_volume_context; i++)
		if (r->entries[i].key.len == strlen(key) &&
			memcmp(r->entries[i].key.data, key, strlen(key)) == 0)
			break;
	assert_true(i < ENTRIES);
	r->entries[i].key = bytes(key);
	r->entries[i].value = bytes(value);
	r->pointers[i] = &r->entries[i];
	r->message.n_volume_context += i == r->message.n_volume_context;
}

/* As kubelet sends an inline volume. */
static void fill(struct request *r)
{
	*r = (struct request){ 0 };
	csi__v1__node_publish_volume_request__init(&r->message);
	r->message.volume_id = bytes("csi-1");
	r->message.target_path = bytes("/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/d/mount");
	r->message.readonly = true;
	r->message.volume_capability = &r->capability;
	r->capability.mount = &r->mount;
	r->capability.access_mode = &r->mode;
	r->mode.mode = 1;
	r->message.volume_context = r->pointers;
	attribute(r, "dataset", "train");
	attribute(r, POD "pod.namespace", "team");
	attribute(r, POD "serviceAccount.name", "trainer");
	attribute(r, POD "pod.uid", "1");
}

static struct csi_volume parse(const struct request *r)
{
	struct csi_volume v;
	struct err e = ERR_INIT;

	assert_int_equal(csi_volume_parse(&r->message, &v, &e), 0);
	assert_string_equal(e.text, "");
	assert_true(v.token > 0 && v.token <= INT64_MAX);
	return v;
}

static void refused(const struct request *r, const char *text)
{
	struct csi_volume v;
	struct err e = ERR_INIT;

	assert_int_equal(csi_volume_parse(&r->message, &v, &e), -EINVAL);
	if (!strstr(e.text, text))
		fail_msg("'%s' is not in '%s'", text, e.text);
}

static void a_volume_is_what_kubelet_sends(void **state)
{
	struct request r;
	struct csi_volume v;

	(void)state;
	fill(&r);
	attribute(&r, "engine", "fuse");
	attribute(&r, "integrity", "strict");
	v = parse(&r);
	assert_string_equal(v.id, "csi-1");
	assert_string_equal(v.dataset, "train");
	assert_string_equal(v.engine, "fuse");
	assert_string_equal(v.integrity, "strict");
	assert_string_equal(v.name_space, "team");
	assert_string_equal(v.account, "trainer");
}

static void only_what_is_mounted_is_in_the_token(void **state)
{
	struct request r;
	uint64_t token;

	(void)state;
	fill(&r);
	token = parse(&r).token;
	attribute(&r, POD "serviceAccount.tokens", "{\"granary\":{}}");
	attribute(&r, POD "pod.name", "train-0");
	assert_int_equal(parse(&r).token, token);
	r.pointers[0] = &r.entries[1]; /* the order of a map is any */
	r.pointers[1] = &r.entries[0];
	assert_int_equal(parse(&r).token, token);
	fill(&r);
	attribute(&r, "dataset", "other");
	assert_int_not_equal(parse(&r).token, token);
	fill(&r);
	attribute(&r, POD "pod.namespace", "games");
	assert_int_not_equal(parse(&r).token, token);
	fill(&r);
	attribute(&r, "engine", "fuse");
	assert_int_not_equal(parse(&r).token, token);
	fill(&r);
	r.message.volume_id = bytes("csi-2");
	assert_int_not_equal(parse(&r).token, token);
	fill(&r);
	r.message.target_path = bytes("/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/e/mount");
	assert_int_not_equal(parse(&r).token, token);
}

static void missing_fields_are_named(void **state)
{
	struct request r;

	(void)state;
	fill(&r);
	r.message.volume_id.len = 0;
	refused(&r, "volume_id is missing");
	fill(&r);
	r.message.target_path.len = 0;
	refused(&r, "target_path is missing");
	fill(&r);
	r.message.volume_capability = NULL;
	refused(&r, "volume_capability is missing");
	fill(&r);
	r.capability.mount = NULL;
	refused(&r, "volume_capability.mount is missing");
	fill(&r);
	r.capability.access_mode = NULL;
	refused(&r, "volume_capability.access_mode is missing");
	fill(&r);
	r.message.n_volume_context = 0;
	refused(&r, "'dataset' is missing");
	fill(&r);
	r.message.n_volume_context = 3;
	refused(&r, "podInfoOnMount: true");
	fill(&r);
	attribute(&r, POD "pod.uid", "2");
	refused(&r, "not a path of pod 2");
}

static void reading_is_all_that_a_volume_can(void **state)
{
	struct request r;

	(void)state;
	for (int mode = 1; mode <= 7; mode++) {
		fill(&r);
		r.mode.mode = mode;
		(void)parse(&r);
		r.message.readonly = false;
		if (mode == 2 || mode == 3)
			(void)parse(&r);
		else
			refused(&r, "readOnly: true");
	}
	fill(&r);
	r.mode.mode = 8;
	refused(&r, "access_mode");
	fill(&r);
	r.capability.block = &r.block;
	refused(&r, "volumeMode: Filesystem");
	fill(&r);
	r.mount.mount_flags = &r.flag;
	r.mount.n_mount_flags = 1;
	r.flag = bytes("ro");
	(void)parse(&r);
	r.flag = bytes("exec");
	refused(&r, "'exec'");
}

static void attributes_are_checked(void **state)
{
	static const struct {
		const char *key;
		const char *value;
		const char *text;
	} rows[] = {
		{ "dataste", "train", "unknown attribute 'dataste'; use 'dataset'" },
		{ "colour", "red", "use " CSI_ATTRIBUTES },
		{ "genration", "4", "use 'generation'" },
		{ "generation", "0", "use a number from 1" },
		{ "generation", "-1", "use a number from 1" },
		{ "generation", "1e3", "use a number from 1" },
		{ "generation", "9999999999999999999", "use a number from 1" },
		{ "path", "/", "use a directory" },
		{ "path", "a/../b", "use a directory" },
		{ "path", "..", "use a directory" },
		{ "path", "a//b", "use a directory" },
		{ "follow", "yes", "use true|false" },
		{ "order", "1", "use true|false" },
		{ "", "red", "unknown attribute ''" },
		{ "dataset", "Train_1", "invalid dataset name" },
		{ "dataset", "", "'dataset' is missing" },
		{ "dataset", "train\nx", "control character (0x0a)" },
		{ "dataset", "\xff", "not UTF-8" },
		{ "engine", "kernel", "use auto|native|loop|fuse" },
		{ "engine", "nativ", "use auto|native|loop|fuse" },
		{ "engine", "auto|native", "use auto|native|loop|fuse" },
		{ "integrity", "none", "use sealed|strict" },
	};
	struct request r;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		fill(&r);
		attribute(&r, rows[i].key, rows[i].value);
		refused(&r, rows[i].text);
	}
	fill(&r);
	attribute(&r, "engine", "fuse");
	r.entries[4].key = bytes("dataset");
	refused(&r, "'dataset' is given twice");
	fill(&r);
	r.entries[0].value = (ProtobufCBinaryData){ 5, (uint8_t *)(uintptr_t) "tr\0in" };
	refused(&r, "control character (0x00)");
}

static void a_part_of_a_dataset_can_be_chosen(void **state)
{
	struct csi_volume v;
	struct request r;
	uint64_t token;

	(void)state;
	fill(&r);
	attribute(&r, "path", "/a/b/");
	attribute(&r, "generation", "12");
	v = parse(&r);
	assert_string_equal(v.path, "a/b");
	assert_string_equal(v.generation, "12");
	token = v.token;
	attribute(&r, "path", "a/b");
	assert_int_equal(parse(&r).token, token);
	attribute(&r, "generation", "13");
	assert_int_not_equal(parse(&r).token, token);
	attribute(&r, "follow", "true");
	refused(&r, "exclude each other");
	fill(&r);
	attribute(&r, "follow", "true");
	assert_string_equal(parse(&r).engine, "fuse");
	attribute(&r, "engine", "native");
	refused(&r, "leave out 'engine'");
}

static void paths_and_ids_are_bounded(void **state)
{
	static const char *const bad[] = { "mount", "/", "/a/", "/a//b", "/a/./b", "/a/../b",
		"/a/..", "/a/.", "/..", "/." };
	static char large[PATH_MAX + 1];
	struct request r;

	(void)state;
	fill(&r);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		r.message.target_path = bytes(bad[i]);
		refused(&r, "target_path");
	}
	r.message.target_path = bytes("/1/..b/.c/d..");
	(void)parse(&r);
	memset(large, 'a', PATH_MAX);
	large[0] = '/';
	r.message.target_path = bytes(large);
	refused(&r, "target_path has 4096 bytes");
	large[PATH_MAX - 1] = '\0';
	memcpy(large, "/1/", 3);
	r.message.target_path = bytes(large);
	(void)parse(&r);
	fill(&r);
	large[VOLUME_ID_BYTES - 1] = '\0';
	r.message.volume_id = bytes(large);
	(void)parse(&r);
	large[VOLUME_ID_BYTES - 1] = 'a';
	large[VOLUME_ID_BYTES] = '\0';
	r.message.volume_id = bytes(large);
	refused(&r, "volume_id has 1025 bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_volume_is_what_kubelet_sends),
		cmocka_unit_test(only_what_is_mounted_is_in_the_token),
		cmocka_unit_test(missing_fields_are_named),
		cmocka_unit_test(reading_is_all_that_a_volume_can),
		cmocka_unit_test(attributes_are_checked),
		cmocka_unit_test(a_part_of_a_dataset_can_be_chosen),
		cmocka_unit_test(paths_and_ids_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
