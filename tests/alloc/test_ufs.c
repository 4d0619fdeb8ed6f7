/* An origin opened, probed, listed and read, with every allocation failing once: a directory, and
 * an S3 server of the tests in a process of its own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/file.h"
#include "tests/alloc/alloc_fail.h"
#include "ufs/ufs.h"

#define FILES 30u
#define SIZE  5000u

static char dir[64];
static char endpoint[64];
static pid_t server;

static uint8_t byte_of(uint32_t file, uint32_t at)
{
	return (uint8_t)(at * 7 + file * 31 + at / 256);
}

static int write_files(void)
{
	for (uint32_t i = 0; i < FILES; i++) {
		uint8_t bytes[SIZE];
		char path[128];

		for (uint32_t k = 0; k < SIZE; k++)
			bytes[k] = byte_of(i, k);
		snprintf(path, sizeof(path), "%s/d%u", dir, i % 3);
		if (file_mkdirs(path, 0700) < 0)
			return -1;
		snprintf(path, sizeof(path), "%s/d%u/f%02u", dir, i % 3, i);
		if (file_write_atomic(path, bytes, SIZE, 0600) < 0)
			return -1;
	}
	return 0;
}

/* BUILD/unit/alloc/test_ufs: the server is BUILD/tests/s3d. */
static int start_server(void **state)
{
	char path[4096];
	char line[256] = "";
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
	int out[2];
	char *end;

	(void)state;
	if (n < 0 || pipe(out) != 0)
		return -1;
	path[n] = '\0';
	for (int i = 0; i < 3; i++) {
		end = strrchr(path, '/');
		*end = '\0';
	}
	snprintf(path + strlen(path), 16, "/tests/s3d");
	server = fork();
	if (server == 0) {
		(void)dup2(out[1], STDOUT_FILENO);
		(void)execl(path, path, "--dir", dir, (char *)NULL);
		_exit(127);
	}
	(void)close(out[1]);
	n = read(out[0], line, sizeof(line) - 1);
	(void)close(out[0]);
	if (n <= 0 || sscanf(line, "data=%40s", path) != 1)
		return -1;
	snprintf(endpoint, sizeof(endpoint), "http://%.40s", path);
	(void)setenv("AWS_ACCESS_KEY_ID", "key", 1);
	(void)setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
	(void)setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
	(void)setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/granary-alloc-XXXXXX");
	return mkdtemp(dir) ? write_files() : -1;
}

static int stop_server(void **state)
{
	(void)state;
	return kill(server, SIGTERM) == 0 && waitpid(server, NULL, 0) == server ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

/* ---- one life of an origin ------------------------------------------------------------------- */

struct found {
	uint32_t n;
	char key[64];
	char tag[LIMIT_TAG_BYTES + 1];
	uint32_t tag_len;
};

static int take(void *arg, const struct ufs_object *objects, uint32_t n)
{
	struct found *f = arg;

	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(objects[i].size, SIZE);
		if (objects[i].key_len != 6 || memcmp(objects[i].key, "d1/f07", 6) != 0)
			continue;
		memcpy(f->key, objects[i].key, 6);
		memcpy(f->tag, objects[i].tag, objects[i].tag_len);
		f->tag_len = objects[i].tag_len;
	}
	f->n += n;
	return 0;
}

struct wait {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
	int status;
};

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct wait *w = get->arg;

	(void)e;
	pthread_mutex_lock(&w->lock);
	assert_false(w->done);
	w->status = status;
	w->done = true;
	pthread_cond_signal(&w->ended);
	pthread_mutex_unlock(&w->lock);
}

static int get(struct ufs *ufs, const struct found *f)
{
	struct wait w = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0 };
	uint8_t bytes[SIZE];
	struct ufs_get get = { .key = f->key,
		.key_len = 6,
		.tag = f->tag,
		.tag_len = f->tag_len,
		.size = SIZE,
		.offset = 100,
		.length = SIZE - 100,
		.buf = bytes,
		.on_done = on_done,
		.arg = &w };
	int r = ufs_get(ufs, &get);

	if (r < 0)
		return r;
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.ended, &w.lock);
	pthread_mutex_unlock(&w.lock);
	for (uint32_t i = 0; w.status == 0 && i < SIZE - 100; i++)
		assert_int_equal(bytes[i], byte_of(7, i + 100));
	return w.status;
}

static int life(void *arg)
{
	const struct ufs_limits limits = { .max_requests = 4,
		.list_requests = 4,
		.request_timeout_ns = 2000000000,
		.deadline_ns = 8000000000 };
	struct ufs_config config = { 0 };
	struct found found = { 0 };
	struct ufs *ufs = NULL;
	struct err e = ERR_INIT;
	int r = ufs_config_parse(arg, &config, &e);

	if (r == 0 && config.scheme == UFS_S3) {
		config.endpoint = strdup(endpoint);
		config.path_style = true;
		r = config.endpoint ? 0 : err_set(&e, -ENOMEM, "no endpoint");
	}
	if (r == 0)
		r = ufs_open(&config, &limits, &ufs, &e);
	if (r == 0)
		r = ufs_probe(ufs, &e);
	if (r == 0)
		r = ufs_list(ufs, take, &found, &e);
	assert_true(r == 0 || e.text[0]); /* what was refused has its line */
	if (r == 0) {
		assert_int_equal(found.n, FILES);
		r = get(ufs, &found);
	}
	ufs_free(ufs);
	ufs_config_release(&config);
	return r;
}

static void test_directory(void **state)
{
	char url[128];

	(void)state;
	snprintf(url, sizeof(url), "file://%s", dir);
	assert_true(alloc_sweep(life, url, 1) > 10);
}

static void test_s3(void **state)
{
	char url[] = "s3://bucket/";

	(void)state;
	assert_true(alloc_sweep(life, url, 1) > 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_directory),
		/* Time is real while the server runs. */
		cmocka_unit_test_setup_teardown(test_s3, start_server, stop_server),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
