/* An image shown by a real kernel: what applications get, and what the kernel asks for. */
#include "tests/unit/fuse/tree_mount.h"

/* Everything below `path`: listed, looked at, opened, read, mapped, closed. */
static uint32_t visit(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *entry;
	uint32_t n = 0;

	if (!d)
		tm_die(path);
	while ((entry = readdir(d)) != NULL) {
		char below[1024];
		struct stat st;
		unsigned char *buf;
		int fd;

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		n++;
		snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
		if (lstat(below, &st) != 0 || st.st_ino != entry->d_ino)
			tm_die(below);
		if (S_ISDIR(st.st_mode) != (entry->d_type == DT_DIR))
			tm_die("type");
		if (S_ISDIR(st.st_mode)) {
			n += visit(below);
			continue;
		}
		fd = open(below, O_RDONLY | O_CLOEXEC);
		buf = malloc((size_t)st.st_size + 1);
		if (fd < 0 || pread(fd, buf, (size_t)st.st_size + 1, 0) != st.st_size)
			tm_die(below);
		tm_check(&st, 0, (size_t)st.st_size, buf);
		free(buf);
		if (st.st_size) {
			void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);

			if (p == MAP_FAILED)
				tm_die("mmap");
			tm_check(&st, 0, (size_t)st.st_size, p);
			munmap(p, (size_t)st.st_size);
		}
		if (close(fd) != 0)
			tm_die("close");
	}
	closedir(d);
	return n;
}

static int visit_some(void *arg)
{
	(void)arg;
	if (visit(tm_path("small")) != SMALL + 10)
		return 1;
	if (visit(tm_path("odd")) != 14)
		return 2;
	return 0;
}

static int visit_all(void *arg)
{
	uint32_t n = visit(tm.root);

	(void)arg;
	return n + 1 == tm.image.files + tm.image.directories ? 0 : 1;
}

/* ---------------------------------------------------------------------------------------------- */

/* Not find(1) or grep -r: they ask for the file system, of which the kernel keeps nothing. */
static int look_with_ls(void *arg)
{
	char command[400];

	(void)arg;
	snprintf(command, sizeof(command),
		"LC_ALL=C ls -lRa %s/small %s/odd >/dev/null && cat %s/small/d1/* >/dev/null",
		tm.root, tm.root, tm.root);
	return system(command) == 0 ? 0 : 1;
}

static int look_for_absent(void *arg)
{
	struct stat st;

	(void)arg;
	for (int i = 0; i < 3; i++)
		if (stat(tm_path("small/absent"), &st) == 0 || errno != ENOENT)
			return 1;
	return 0;
}

/*
 * What was seen once is not asked for again: neither names nor attributes, nor to open, read, map
 * or close. Somebody may empty the caches of this machine meanwhile, so one silent pass is enough.
 */
static void second_pass_is_silent(void **state)
{
	int (*const looks[])(void *arg) = { visit_some, look_with_ls, look_for_absent };
	uint64_t asked = 1;

	(void)state;
	may_mount();
	tm_run(visit_all, NULL);
	for (int pass = 0; pass < 20 && asked != 0; pass++) {
		asked = tm_requests();
		for (size_t i = 0; i < ARRAY_SIZE(looks); i++)
			tm_run(looks[i], NULL);
		asked = tm_requests() - asked;
	}
	assert_int_equal(asked, 0);
	assert_true(tm_requests() > 500);
	assert_int_equal(counter_get(&tm_counters()->open), 1);
}

/* An IOCTL is the one thing that an application (Python's open()) can make the kernel send. */
static int try_ioctl(void *arg)
{
	int fd = open(tm_path("small/d1/f001"), O_RDONLY | O_CLOEXEC);
	char buf[64];

	(void)arg;
	return ioctl(fd, TCGETS, buf) == -1 && errno == ENOTTY ? 0 : 1;
}

static void ioctls(void **state)
{
	uint64_t before;

	(void)state;
	may_mount();
	tm_run(try_ioctl, NULL);
	before = tm_requests();
	tm_run(try_ioctl, NULL);
	assert_in_range(tm_requests() - before, 0, 1);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint64_t random_state = 88172645463325252ull;

static uint64_t any(uint64_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % below;
}

static int read_anywhere(void *arg)
{
	int flags = *(int *)arg;
	int fd = open(tm_path("big"), O_RDONLY | O_CLOEXEC | flags);
	unsigned char *buf = malloc(3 << 20);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0 || (uint64_t)st.st_size != BIG_BYTES)
		tm_die("big");
	for (int i = 0; i < 400; i++) {
		size_t size = 1 + any(i % 4 == 0 ? 2 << 20 : 10000);
		uint64_t offset = any(BIG_BYTES + 5000);
		size_t expect = offset >= BIG_BYTES ? 0 : min(size, BIG_BYTES - offset);
		ssize_t n = pread(fd, buf + any(4096), size, (off_t)offset);

		if (n < 0 || (size_t)n != expect)
			tm_die("length");
	}
	for (int i = 0; i < 400; i++) {
		size_t size = 1 + any(i % 4 == 0 ? 2 << 20 : 10000);
		uint64_t offset = any(BIG_BYTES);
		size_t expect = min(size, BIG_BYTES - offset);
		size_t skip = any(4096);

		memset(buf, 0xcc, skip + expect + 1);
		if (pread(fd, buf + skip, size, (off_t)offset) != (ssize_t)expect)
			tm_die("length");
		tm_check(&st, offset, expect, buf + skip);
		if (buf[skip + expect] != 0xcc)
			tm_die("more than there is");
	}
	return 0;
}

static void any_bytes(void **state)
{
	int flags[] = { O_DIRECT, 0 };

	(void)state;
	may_mount();
	for (int later = 0; later < 2; later++) {
		synthetic_set(&tm.control->later, 0, later ? UINT64_MAX : 0);
		tm_run(read_anywhere, &flags[0]);
		tm_run(read_anywhere, &flags[1]);
	}
}

static int map_privately(void *arg)
{
	int fd = open(tm_path("big"), O_RDONLY | O_CLOEXEC);
	unsigned char *p;
	struct stat st;

	(void)arg;
	if (fd < 0 || fstat(fd, &st) != 0)
		tm_die("big");
	p = mmap(NULL, BIG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		tm_die("mmap");
	for (int i = 0; i < 50; i++) {
		uint64_t offset = any(BIG_BYTES - 5000);

		tm_check(&st, offset, 5000, p + offset);
	}
	p[0] ^= 0xff; /* a copy: the file stays as it is */
	p[BIG_BYTES] = 1;
	munmap(p, BIG_BYTES);
	p = mmap(NULL, BIG_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		tm_die("mmap");
	tm_check(&st, 0, BIG_BYTES, p);
	if (p[BIG_BYTES] != 0)
		tm_die("what follows the file is not zero");
	munmap(p, BIG_BYTES);
	return mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES ? 0
												: 1;
}

static int copy_out(void *arg)
{
	int fd = open(tm_path("big"), O_RDONLY | O_CLOEXEC);
	unsigned char *buf = malloc(BIG_BYTES);
	struct stat st;
	char path[128];
	int out;

	(void)arg;
	snprintf(path, sizeof(path), "%s/copy", tm.dir);
	out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || out < 0 || fstat(fd, &st) != 0)
		tm_die("open");
	if (posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED) != 0 ||
		readahead(fd, 1 << 20, 1 << 20) != 0)
		tm_die("advice");
	for (off_t done = 0; done < (off_t)BIG_BYTES;)
		if (sendfile(out, fd, &done, BIG_BYTES) <= 0)
			tm_die("sendfile");
	if (pread(out, buf, BIG_BYTES, 0) != (ssize_t)BIG_BYTES)
		tm_die("copy");
	tm_check(&st, 0, BIG_BYTES, buf);
	if (ftruncate(out, 0) != 0)
		tm_die("truncate");
	if (copy_file_range(fd, NULL, out, NULL, 4096, 0) >= 0 || errno != EXDEV)
		tm_die("copy_file_range"); /* since Linux 5.19 not between file systems */
	unlink(path);
	if (lseek(fd, 0, SEEK_HOLE) != (off_t)BIG_BYTES || lseek(fd, 5, SEEK_DATA) != 5)
		tm_die("lseek");
	return 0;
}

static void mapped_and_copied(void **state)
{
	(void)state;
	may_mount();
	tm_run(map_privately, NULL);
	tm_run(copy_out, NULL);
}

static bool fails(int r, int error)
{
	return r == -1 && errno == error;
}

static int change(void *arg)
{
	const char *file = tm_path("small/d1/f001");
	int fd = open(file, O_RDONLY | O_CLOEXEC);

	(void)arg;
	if (!fails(open(file, O_RDWR | O_CLOEXEC), EROFS) ||
		!fails(open(file, O_WRONLY | O_TRUNC | O_CLOEXEC), EROFS) ||
		!fails(open(tm_path("new"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), EROFS) ||
		!fails(mkdir(tm_path("new"), 0700), EROFS) || !fails(unlink(file), EROFS) ||
		!fails(rmdir(tm_path("odd/dir")), EROFS) ||
		!fails(rename(file, tm_path("new")), EROFS) ||
		!fails(link(file, tm_path("new")), EROFS) ||
		!fails(symlink("x", tm_path("new")), EROFS) || !fails(chmod(file, 0600), EROFS) ||
		!fails(chown(file, 0, 0), EROFS) || !fails(truncate(file, 0), EROFS) ||
		!fails(utimensat(AT_FDCWD, file, NULL, 0), EROFS) ||
		!fails(fchmod(fd, 0600), EROFS) || !fails((int)write(fd, "x", 1), EBADF))
		return 1;
	return 0;
}

static void no_changes(void **state)
{
	(void)state;
	may_mount();
	tm_run(change, NULL);
}

/* An error of the origin is the reader's to see, and is not kept. */
static int read_start_of_stall(void *arg)
{
	int fd = open(tm_path("stall"), O_RDONLY | O_CLOEXEC | (arg ? O_DIRECT : 0));
	char *buf = aligned_alloc(4096, 4096);

	return pread(fd, buf, 4096, 0) == 4096 ? 0 : errno;
}

static void failing_origin(void **state)
{
	struct stat st;
	int status = -1;

	(void)state;
	may_mount();
	assert_int_equal(stat(tm_path("stall"), &st), 0);
	synthetic_set(&tm.control->fail, ((uint64_t)st.st_ino - CHUNK_BLOCKS) * BLOCK_BYTES,
		((uint64_t)st.st_ino - CHUNK_BLOCKS) * BLOCK_BYTES + 4096);
	for (int direct = 0; direct < 2; direct++) {
		pid_t pid = tm_start(read_start_of_stall, direct ? &st : NULL);

		test_wait(waitpid(pid, &status, WNOHANG) == pid);
		assert_int_equal(WEXITSTATUS(status), ESTALE);
	}
	synthetic_set(&tm.control->fail, 0, 0);
	tm_run(read_start_of_stall, NULL);
	tm_run(read_start_of_stall, &st);
}

/* ---- names ----------------------------------------------------------------------------------- */

static int list_many(void *arg)
{
	DIR *d = opendir(tm_path("many"));
	long *places = calloc(MANY + 3, sizeof(*places));
	struct dirent *entry;
	uint32_t n = 0;
	char last[300] = "";

	(void)arg;
	if (!d)
		tm_die("many");
	for (places[0] = telldir(d); (entry = readdir(d)) != NULL; places[n] = telldir(d)) {
		if (++n > MANY + 2)
			tm_die("too many");
		if (n <= 2)
			continue;
		if (strcmp(last, entry->d_name) >= 0)
			tm_die("order");
		snprintf(last, sizeof(last), "%s", entry->d_name);
	}
	if (n != MANY + 2)
		tm_die("too few");
	for (int i = 0; i < 300; i++) {
		uint32_t from = 2 + (uint32_t)any(MANY);

		seekdir(d, places[from]);
		for (uint32_t k = from; k < min(from + 20, MANY + 2); k++) {
			char name[32];

			snprintf(name, sizeof(name), "entry-%06u", k - 2);
			entry = readdir(d);
			if (!entry || strcmp(entry->d_name, name) != 0)
				tm_die("seekdir");
		}
	}
	rewinddir(d);
	entry = readdir(d);
	if (!entry || strcmp(entry->d_name, ".") != 0)
		tm_die("rewinddir");
	closedir(d);
	free(places);
	return 0;
}

/* Makes the kernel drop what it keeps of a listing. */
static void drop_listing(const char *path)
{
	struct {
		struct fuse_out_header head;
		struct fuse_notify_inval_inode_out out;
	} notice = { .head = { .len = sizeof(notice), .error = FUSE_NOTIFY_INVAL_INODE } };
	struct stat st;

	assert_int_equal(stat(tm_path(path), &st), 0);
	notice.out.ino = st.st_ino;
	assert_int_equal(write(tm.dev_fd, &notice, sizeof(notice)), sizeof(notice));
}

/* Listed again and again, the kernel knows no more than there is. */
static void many_entries(void **state)
{
	uint64_t listings;

	(void)state;
	may_mount();
	for (int i = 0; i < 3; i++) {
		listings = counter_get(&tm_counters()->readdir);
		tm_run(list_many, NULL);
		assert_true(counter_get(&tm_counters()->readdir) > listings);
		assert_true(counter_get(&tm_counters()->known) < MANY + 20);
		tm_run(list_many, NULL); /* from the kernel's cache */
		drop_listing("many");
	}
	assert_true(counter_get(&tm_counters()->known) > 0);
}

/* Priming stops; the names and the bytes are there all the same. */
static void little_priming(void **state)
{
	(void)state;
	may_mount();
	tm_run(list_many, NULL);
	tm_run(list_many, NULL);
	assert_in_range(counter_get(&tm_counters()->known), 0, 310);
	tm_run(visit_some, NULL); /* by LOOKUPs, which are always answered */
	assert_true(counter_get(&tm_counters()->lookup) > 20);
}

/* The kernel forgets a name that it is told to forget, and tells us; the id stays. */
static void forgotten(void **state)
{
	struct {
		struct fuse_out_header head;
		struct fuse_notify_inval_entry_out out;
		char name[8];
	} notice = { .head = { .error = FUSE_NOTIFY_INVAL_ENTRY },
		.out = { .namelen = 4 },
		.name = "f493" };
	uint64_t lookups;
	uint64_t forgets;
	struct stat parent;
	struct stat st;
	struct stat again;

	(void)state;
	may_mount();
	notice.head.len = (uint32_t)(sizeof(notice.head) + sizeof(notice.out) + 5);
	assert_int_equal(stat(tm_path("small/d3"), &parent), 0);
	assert_int_equal(stat(tm_path("small/d3/f493"), &st), 0);
	lookups = counter_get(&tm_counters()->lookup);
	forgets = counter_get(&tm_counters()->forget);
	notice.out.parent = parent.st_ino;
	assert_int_equal(write(tm.dev_fd, &notice, notice.head.len), notice.head.len);
	test_wait(counter_get(&tm_counters()->forget) > forgets);
	assert_int_equal(stat(tm_path("small/d3/f493"), &again), 0);
	assert_int_equal(again.st_ino, st.st_ino);
	assert_true(counter_get(&tm_counters()->lookup) > lookups);
	assert_true(counter_get(&tm_counters()->known) < 20);
}

static int go_deep(void *arg)
{
	char path[256] = "";
	struct stat st;
	size_t len = 0;

	(void)arg;
	for (uint32_t i = 0; i < DEPTH; i++)
		len += (size_t)snprintf(
			path + len, sizeof(path) - len, "%s%c", i ? "/" : "", 'a' + (int)(i % 26));
	if (stat(tm_path(path), &st) != 0 || st.st_size != 12345)
		tm_die("deep");
	if (chdir(tm_path("a/b/c/d/e")) != 0 || stat("../../../../../big", &st) != 0)
		tm_die("up");
	return 0;
}

static void deep(void **state)
{
	(void)state;
	may_mount();
	tm_run(go_deep, NULL);
}

/* ---- beside the native engine ---------------------------------------------------------------- */

static uint32_t compare(const char *ours, const char *theirs)
{
	DIR *d = opendir(ours);
	DIR *e = opendir(theirs);
	struct dirent *entry;
	uint32_t here = 0;
	uint32_t n = 0;

	assert_non_null(d);
	assert_non_null(e);
	while ((entry = readdir(d)) != NULL) {
		char a[1024];
		char b[1024];
		struct stat x;
		struct stat y;

		snprintf(a, sizeof(a), "%s/%s", ours, entry->d_name);
		snprintf(b, sizeof(b), "%s/%s", theirs, entry->d_name);
		assert_int_equal(lstat(a, &x), 0);
		if (lstat(b, &y) != 0)
			fail_msg("%s is not there", b);
		assert_int_equal(x.st_mode, y.st_mode);
		assert_int_equal(x.st_nlink, y.st_nlink);
		assert_int_equal(x.st_uid, y.st_uid);
		assert_int_equal(x.st_gid, y.st_gid);
		assert_int_equal(x.st_size, y.st_size);
		assert_int_equal(x.st_blocks, y.st_blocks);
		assert_int_equal(x.st_blksize, y.st_blksize);
		assert_memory_equal(&x.st_mtim, &y.st_mtim, sizeof(x.st_mtim));
		assert_memory_equal(&x.st_ctim, &y.st_ctim, sizeof(x.st_ctim));
		assert_memory_equal(&x.st_atim, &y.st_atim, sizeof(x.st_atim));
		here++;
		n++;
		if (S_ISDIR(x.st_mode) && strcmp(entry->d_name, ".") != 0 &&
			strcmp(entry->d_name, "..") != 0)
			n += compare(a, b);
	}
	while (readdir(e))
		here--;
	assert_int_equal(here, 0); /* none is only in theirs */
	closedir(d);
	closedir(e);
	return n;
}

#define LINKS_MAX 40 /* that the kernel follows in one path */

/* A mount that is to show another source opens the image by one link more than the kernel follows: it shows the path then. */
static void mounts_without_link(struct kernel_image image)
{
	struct kernel_superblock super;
	struct err e = ERR_INIT;
	char to[256];
	char link[256];
	int fd = -1;

	(void)snprintf(to, sizeof(to), "%s", image.path);
	for (int i = 0; i < LINKS_MAX; i++) {
		(void)snprintf(link, sizeof(link), "%s/link-%d", tm.dir, i);
		assert_int_equal(symlink(to, link), 0);
		memcpy(to, link, sizeof(to));
	}
	image.path = to;
	image.source = "s3://bucket/images";
	if (kernel_mount_image(&image, &fd, &super, &e) < 0)
		fail_msg("%s", e.text);
	close(fd);
}

/* The extents, for EROFS to hold on to. */
static void same_as_native(void **state)
{
	struct synthetic reader;
	struct session_config config = { .reader = &reader.reader };
	struct session *session;
	struct tree *tree;
	struct slots *extent_slots;
	struct err e = ERR_INIT;
	int extent_dev = -1;
	int memory = memfd_create("test-extents", MFD_CLOEXEC);
	int fuse = -1;
	int erofs = -1;
	char theirs[64];
	struct kernel_image extents = { .path = tm.image_path, .extents = tm.image.extents };
	struct kernel_superblock super;
	dev_t dev;

	(void)state;
	may_mount();
	if (kernel_probe(tm.dir, &e) < 0) {
		print_message("%s\n", e.text);
		close(memory);
		skip();
	}
	synthetic_start(&reader, tm.control);
	assert_int_equal(kernel_open_fuse(&extent_dev, &e), 0);
	assert_int_equal(slots_open(memory, &extent_slots, &e), 0);
	assert_int_equal(tree_extents_new(tm.image.extent_bytes, tm.image.extents,
				 &tm.image.sources, &tree, &e),
		0);
	config.dev_fd = extent_dev;
	config.slots = extent_slots;
	config.tree = tree;
	config.on_gone = tm_on_gone;
	assert_int_equal(kernel_mount_fuse(extent_dev, NULL, &fuse, &dev, &e), 0);
	assert_int_equal(session_new(&config, &session, &e), 0);
	extents.fuse_mount_fd = fuse;
	assert_int_equal(kernel_mount_image(&extents, &erofs, &super, &e), 0);
	snprintf(theirs, sizeof(theirs), "/proc/self/fd/%d", erofs);
	assert_true(compare(tm.root, theirs) > tm.image.files + tm.image.directories);
	close(erofs);
	mounts_without_link(extents);
	close(fuse);
	test_wait(session_gone(session));
	session_free(session);
	atomic_store(&tm_gone, false);
	tree_extents_free(tree);
	slots_free(extent_slots);
	synthetic_stop(&reader);
	close(extent_dev);
	close(memory);
}

/* ---- stalls and crashes ---------------------------------------------------------------------- */

static int read_stalled(void *arg)
{
	int fd = open(tm_path("stall"), O_RDONLY | O_CLOEXEC);
	char byte;

	if (arg) {
		const volatile char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

		return p[17];
	}
	return pread(fd, &byte, 1, 0) == 1 ? 0 : 1;
}

/* A stalled range is in nobody's way, and whoever waits for it can be killed. */
static void stalled_and_killed(void **state)
{
	pid_t pids[20];
	struct stat st;
	uint64_t begin;

	(void)state;
	may_mount();
	assert_int_equal(stat(tm_path("stall"), &st), 0);
	begin = ((uint64_t)st.st_ino - CHUNK_BLOCKS) * BLOCK_BYTES;
	synthetic_set(&tm.control->stall, begin, begin + (8 << 20));
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		pids[i] = tm_start(read_stalled, i % 2 ? &st : NULL);
	test_wait(counter_get(&tm_counters()->read) > 0);
	tm_run(visit_some, NULL);
	tm_run(look_for_absent, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		assert_int_equal(kill(pids[i], SIGKILL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		int status = 0;

		test_wait(waitpid(pids[i], &status, WNOHANG) == pids[i]);
		assert_true(WIFSIGNALED(status));
	}
	synthetic_set(&tm.control->stall, 0, 0);
	tm_run(read_stalled, NULL);
}

static struct {
	_Atomic bool on;
} * stop;

static int read_all_the_time(void *arg)
{
	while (!atomic_load(&stop->on)) {
		if (arg) {
			int flags = O_DIRECT;

			if (read_anywhere(&flags) != 0)
				return 1;
		} else {
			int r = list_many(NULL);

			if (r)
				return r;
		}
	}
	return 0;
}

/* The daemon is killed again and again, in the middle of listings and reads: nobody notices. */
static void crashes(void **state)
{
	enum { CRASHES = 15 };
	pid_t pids[3];
	int status = -1;

	(void)state;
	may_mount();
	stop = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(stop != MAP_FAILED);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		pids[i] = tm_start(read_all_the_time, i % 2 ? tm.root : NULL);
	for (int i = 0; i < CRASHES; i++) {
		uint64_t served = tm_requests() + 50 + any(200);

		/* A request that saw two of them die would get EIO: first let it be served. */
		test_wait(tm_requests() > served);
		tm_daemon_kill();
		tm_daemon_start();
	}
	atomic_store(&stop->on, true);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		test_wait(waitpid(pids[i], &status, WNOHANG) == pids[i]);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	tm_run(visit_some, NULL);
	assert_int_equal(counter_get(&tm_counters()->crashes), CRASHES);
	munmap(stop, 4096);
}

static void df(void **state)
{
	struct statvfs st;

	(void)state;
	may_mount();
	assert_int_equal(statvfs(tm.root, &st), 0);
	assert_int_equal(st.f_bfree, 0);
	assert_int_equal(st.f_files, tm.image.files + tm.image.directories);
	assert_true(st.f_blocks * st.f_frsize >= BIG_BYTES);
	assert_int_equal(st.f_namemax, 255);
	assert_true(st.f_flag & ST_RDONLY);
}

#define mounted(test) cmocka_unit_test_setup_teardown(test, tm_setup, tm_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		mounted(second_pass_is_silent),
		mounted(ioctls),
		mounted(any_bytes),
		mounted(mapped_and_copied),
		mounted(no_changes),
		mounted(failing_origin),
		mounted(many_entries),
		cmocka_unit_test_setup_teardown(
			little_priming, tm_setup_little_priming, tm_teardown),
		mounted(forgotten),
		mounted(deep),
		mounted(same_as_native),
		mounted(stalled_and_killed),
		mounted(crashes),
		mounted(df),
	};

	return cmocka_run_group_tests(tests, tm_setup_group, tm_teardown_group);
}
