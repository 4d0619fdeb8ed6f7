/* Images built on this node. See images.h. */
#include "fuse/daemon/images.h"
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#define IMAGE_KIND \
	"2" /* images of another kind are other files: earlier versions take these for damaged */
#define INFO_VERSION  2
#define INFO_BYTES    1024u
#define KEY_DIGITS    32u
#define STALE_SECONDS 3600

struct image_facts {
	struct image_info info;
	uint64_t checksum; /* XXH3 of the file */
	char boot[40];
};

static int need_private_dir(const char *dir, struct err *e)
{
	struct stat st;
	int r = file_mkdirs(dir, 0700);

	if (r < 0)
		return err_set(
			e, r, "the image directory %s cannot be created: %s", dir, err_str(r));
	if (stat(dir, &st) != 0)
		return err_set(e, err_errno(), "the image directory %s cannot be used: %m", dir);
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return err_set(e, -EPERM,
			"other users can write the image directory %s, which the kernel reads: "
			"chown it to this user and chmod it 0700",
			dir);
	return 0;
}

/*
 * One process at a time looks, builds and cleans: mounts of one source that start together would
 * write one file. Whoever waits finds the image that it waited for. Closing gives the lock up.
 */
static int lock_dir(const char *dir, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_set(e, err_errno(), "the image directory %s cannot be read: %m", dir);
	while (flock(fd, LOCK_EX) != 0)
		if (errno != EINTR)
			return err_set(
				e, err_errno(), "the image directory %s cannot be locked: %m", dir);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static void boot_id(char out[40])
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(64);

	if (file_read_all("/proc/sys/kernel/random/boot_id", &b) < 0)
		buf_clear(&b);
	(void)snprintf(out, 40, "%s", buf_str(&b)); /* 36 digits and a newline */
	out[strcspn(out, "\n")] = '\0';
}

/* What is to be there. */
struct image_inputs {
	const struct image_source *sources;
	uint32_t n;
	const struct image_options *options;
};

static const struct generation_id *id_of(const struct image_source *source)
{
	return &table_info(source->table)->id;
}

/* Where a source is shown, and what of it; nothing of one that is shown whole. */
static void hash_place(struct hash_sha256 *h, const struct image_source *source)
{
	uint64_t part = table_info(source->table)->part;

	if (*source->path || (source->subtree && *source->subtree)) {
		hash_sha256_update(h, source->path, strlen(source->path) + 1);
		if (source->subtree)
			hash_sha256_update(h, source->subtree, strlen(source->subtree));
		hash_sha256_update(h, "", 1);
	}
	if (part) /* a token's part of the source may be less than is shown */
		hash_sha256_update(h, &part, sizeof(part));
}

/* Everything but the generations that changes an image. */
static void image_key(const struct image_inputs *w, char out[KEY_DIGITS + 1])
{
	const struct image_options *o = w->options;
	uint8_t digest[SHA256_BYTES];
	char text[256];
	struct hash_sha256 *h = hash_sha256_new();
	int n = snprintf(text, sizeof(text), "|" IMAGE_KIND "|%u|%u|%o|%" PRIu64 "|%s", o->uid,
		o->gid, o->umask, o->extent_bytes, o->one_device ? "one|" : "");

	ensure(h && n > 0);
	hash_sha256_update(h, id_of(&w->sources[0])->volume.bytes, sizeof(struct volume_id));
	hash_sha256_update(h, text, (size_t)n);
	hash_place(h, &w->sources[0]);
	for (uint32_t i = 1; i < w->n; i++) {
		hash_sha256_update(
			h, id_of(&w->sources[i])->volume.bytes, sizeof(struct volume_id));
		hash_place(h, &w->sources[i]);
	}
	hash_sha256_final(h, digest);
	hash_hex(digest, KEY_DIGITS / 2, out);
}

/* Names what is shown of them all. */
static void generation_key(const struct image_inputs *w, char out[17])
{
	uint8_t digest[SHA256_BYTES];
	struct hash_sha256 *h;

	memcpy(digest, id_of(&w->sources[0])->hash, sizeof(digest));
	if (w->n > 1) {
		h = hash_sha256_new();
		ensure(h);
		for (uint32_t i = 0; i < w->n; i++)
			hash_sha256_update(h, id_of(&w->sources[i])->hash, SHA256_BYTES);
		hash_sha256_final(h, digest);
	}
	hash_hex(digest, 8, out);
}

/* ---- info ------------------------------------------------------------------------------------ */

static int write_info(const char *path, const struct image_facts *f)
{
	char checksum[17];
	json_t *first = json_array();
	json_t *json;
	char *text;
	int r;

	for (uint32_t i = 0; i < f->info.sources.n; i++) /* write_info() looks at failures */
		(void)json_array_append_new(first, json_integer(f->info.sources.first[i]));

	(void)snprintf(checksum, sizeof(checksum), "%016" PRIx64, f->checksum); /* fits */
	json = json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:s, s:s, s:o, s:I}", "version",
		INFO_VERSION, "files", (json_int_t)f->info.files, "directories",
		(json_int_t)f->info.directories, "skipped", (json_int_t)f->info.skipped,
		"image_bytes", (json_int_t)f->info.image_bytes, "extent_bytes",
		(json_int_t)f->info.extent_bytes, "extents", (int)f->info.extents, "volume_offset",
		(json_int_t)f->info.volume_offset, "xxh3", checksum, "boot", f->boot, "first",
		first, "bytes", (json_int_t)f->info.bytes);
	text = admin_json_text(json, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	r = text ? file_write_atomic(path, text, strlen(text), 0600) : -ENOMEM;
	free(text);
	json_decref(json);
	return r;
}

/* Absent: written by a version that knew of one source. */
static int take_first(const json_t *first, uint32_t extents, struct layout_sources *ret)
{
	*ret = (struct layout_sources){ .n = 1 };
	if (!first)
		return 0;
	if (json_array_size(first) == 0 || json_array_size(first) > LAYOUT_SOURCES_MAX)
		return -EBADMSG;
	ret->n = (uint32_t)json_array_size(first);
	for (uint32_t i = 0; i < ret->n; i++) {
		json_int_t at = json_integer_value(json_array_get(first, i));

		if (at < 0 || at >= extents || (i == 0 && at > 0) ||
			(i > 0 && at < ret->first[i - 1]))
			return -EBADMSG;
		ret->first[i] = (uint32_t)at;
	}
	return 0;
}

static int take_info(json_t *json, struct image_facts *ret)
{
	struct image_facts f = { 0 };
	const char *checksum;
	const char *boot;
	json_int_t files;
	json_int_t directories;
	json_int_t skipped;
	json_int_t image_bytes;
	json_int_t extent_bytes;
	json_int_t volume_offset;
	int version;
	int extents;

	if (json_unpack(json, "{s:i, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:s, s:s}", "version",
		    &version, "files", &files, "directories", &directories, "skipped", &skipped,
		    "image_bytes", &image_bytes, "extent_bytes", &extent_bytes, "extents", &extents,
		    "volume_offset", &volume_offset, "xxh3", &checksum, "boot", &boot) != 0)
		return -EBADMSG;
	if (version != INFO_VERSION || extents < 1 || extents > (int)IMAGE_DEVICES_MAX ||
		strlen(checksum) != 16 || strlen(boot) >= sizeof(f.boot))
		return -EBADMSG;
	f.info = (struct image_info){
		.files = (uint64_t)files,
		.directories = (uint64_t)directories,
		.skipped = (uint64_t)skipped,
		.image_bytes = (uint64_t)image_bytes,
		.extent_bytes = (uint64_t)extent_bytes,
		.extents = (uint32_t)extents,
		.volume_offset = (uint64_t)volume_offset,
	};
	f.checksum = strtoull(checksum, NULL, 16);
	memcpy(f.boot, boot, strlen(boot) + 1);
	f.info.bytes = (uint64_t)json_integer_value(json_object_get(json, "bytes"));
	if (take_first(json_object_get(json, "first"), f.info.extents, &f.info.sources) < 0)
		return -EBADMSG;
	*ret = f;
	return 0;
}

static int read_info(const char *path, struct image_facts *ret)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(INFO_BYTES);
	json_t *json = NULL;
	int r = file_read_all(path, &b);

	if (r < 0)
		return r;
	r = admin_json_parse(buf_str(&b), b.len, 0, &json, NULL);
	if (r == 0)
		r = take_info(json, ret);
	json_decref(json);
	return r;
}

static int checksum_file(const char *path, uint64_t bytes, uint64_t *ret_checksum)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	void *map;

	if (fd < 0 || fstat(fd, &st) != 0)
		return err_errno();
	if (st.st_uid != geteuid() || (st.st_mode & 022) || (uint64_t)st.st_size != bytes ||
		bytes == 0)
		return -EBADMSG;
	map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return err_errno();
	*ret_checksum = hash_xxh3(map, bytes, 0);
	(void)munmap(map, bytes); /* just mapped */
	return 0;
}

/* The image that is there already, when it is whole. */
static int find_image(const char *image, const char *info, struct image_facts *ret)
{
	struct image_facts f;
	struct stat st;
	uint64_t checksum = 0;
	char boot[40];
	int r = read_info(info, &f);

	if (r < 0)
		return r;
	boot_id(boot);
	if (strcmp(boot, f.boot) == 0) {
		if (lstat(image, &st) != 0)
			return err_errno();
		if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) ||
			(uint64_t)st.st_size != f.info.image_bytes)
			return -EBADMSG;
	} else {
		r = checksum_file(image, f.info.image_bytes, &checksum);
		if (r < 0 || checksum != f.checksum)
			return r < 0 ? r : -EBADMSG;
		memcpy(f.boot, boot, sizeof(boot));
		(void)write_info(info, &f); /* only saves the next check */
	}
	(void)utimensat(
		AT_FDCWD, image, NULL, 0); /* used now; only the order of cleaning depends on it */
	*ret = f;
	return 0;
}

/* ---- cleaning -------------------------------------------------------------------------------- */

struct found_image {
	char name[IMAGES_NAME_BYTES];
	struct timespec used;
};

/* `name` passed is_image(). */
static void remove_image(int dir, const char *name)
{
	size_t stem = strlen(name) - strlen(".erofs");
	char info[IMAGES_NAME_BYTES];

	memcpy(info, name, strlen(name) + 1);
	memcpy(info + stem, ".info", sizeof(".info"));
	(void)unlinkat(dir, info, 0); /* first: an image without info is not used */
	CRASH_POINT("image.forgotten");
	(void)unlinkat(dir, name, 0); /* a mounted one lives on */
	log_debug("image removed", "name=%s", name);
}

static bool is_image(const char *name)
{
	size_t len = strlen(name);

	return len < IMAGES_NAME_BYTES && len > 6 && strcmp(name + len - 6, ".erofs") == 0;
}

/* What a build that was killed left: nobody else writes in this directory for so long. */
static void remove_stale(int dir, const char *name)
{
	const char *end = strrchr(name, '.');
	struct stat st;

	if ((!end || strcmp(end, ".new") != 0) && strncmp(name, "probe.", 6) != 0)
		return;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		st.st_mtime < time(NULL) - STALE_SECONDS)
		(void)unlinkat(dir, name, 0); /* or the next time */
}

static bool older(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/*
 * Removes older generations of `keep`'s key, and then the longest unused while there are too many.
 */
static void clean(const char *path, const char *keep)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct found_image found[IMAGES_KEEP];
	uint32_t n = 0;
	const struct dirent *entry;
	DIR *dir = opendir(path);

	while (fd >= 0 && dir && (entry = readdir(dir)) != NULL) {
		struct stat st;
		uint32_t at = n;

		remove_stale(fd, entry->d_name);
		if (!is_image(entry->d_name) || strcmp(entry->d_name, keep) == 0)
			continue;
		if (strncmp(entry->d_name, keep, KEY_DIGITS + 1) == 0) {
			remove_image(fd, entry->d_name);
			continue;
		}
		if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		if (n == IMAGES_KEEP - 1) { /* full: the oldest goes, the newer stays */
			at = 0;
			for (uint32_t i = 1; i < n; i++)
				if (older(&found[i].used, &found[at].used))
					at = i;
			if (!older(&found[at].used, &st.st_mtim)) {
				remove_image(fd, entry->d_name);
				continue;
			}
			remove_image(fd, found[at].name);
		} else {
			n++;
		}
		memcpy(found[at].name, entry->d_name, strlen(entry->d_name) + 1);
		found[at].used = st.st_mtim;
	}
	if (dir)
		(void)closedir(dir); /* read only */
}

/* ---------------------------------------------------------------------------------------------- */

static int build(const char *image, const char *info, const struct image_inputs *w,
	image_skip_fn log_skipped, void *skip_arg, struct image_facts *ret, struct err *e)
{
	struct image_facts f = { 0 };
	int r;

	(void)unlink(info); /* says nothing of the image that is about to be written */
	CRASH_POINT("image.begun");
	r = image_build_sources(
		w->sources, w->n, w->options, image, log_skipped, skip_arg, &f.info, e);
	if (r < 0)
		return err_default(e, r, "the image cannot be built");
	r = checksum_file(image, f.info.image_bytes, &f.checksum);
	if (r < 0)
		return err_set(e, r, "the image %s cannot be read back: %s", image, err_str(r));
	boot_id(f.boot);
	CRASH_POINT("image.built");
	r = write_info(info, &f);
	if (r < 0)
		return err_set(e, r, "%s cannot be written: %s", info, err_str(r));
	CRASH_POINT("image.described");
	*ret = f;
	return 0;
}

int images_get(const char *dir, const struct image_source *sources, uint32_t n,
	const struct image_options *options, image_skip_fn log_skipped, void *skip_arg,
	struct images_result *ret, struct err *e)
{
	const struct image_inputs inputs = { sources, n, options };
	struct images_result result = { 0 };
	struct image_facts facts;
	char key[KEY_DIGITS + 1];
	char generation[17];
	char image[PATH_MAX];
	char info[PATH_MAX];
	_cleanup_close_ int lock = -1;
	int r = need_private_dir(dir, e);

	if (r == 0)
		r = lock_dir(dir, &lock, e);
	if (r < 0)
		return r;
	image_key(&inputs, key);
	generation_key(&inputs, generation);
	(void)snprintf(result.name, sizeof(result.name), "%s.%s.erofs", key, generation); /* 55 */
	if (snprintf(image, sizeof(image), "%s/%s", dir, result.name) >= (int)sizeof(image) ||
		snprintf(info, sizeof(info), "%s/%s.%s.info", dir, key, generation) >=
			(int)sizeof(info))
		return err_set(e, -ENAMETOOLONG, "%s: the path is too long", dir);
	result.reused = find_image(image, info, &facts) == 0;
	if (!result.reused)
		r = build(image, info, &inputs, log_skipped, skip_arg, &facts, e);
	if (r < 0)
		return r;
	clean(dir, result.name);
	result.info = facts.info;
	*ret = result;
	return 0;
}
