/* Unix sockets: who may listen at a path, who reaches it, what is left by a process that died. */
#include "base/unix_socket.h"
#include "base/cleanup.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct fixture {
	char dir[64];
	char path[96];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/granary-socket-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->path, sizeof(f->path), "%s/s.sock", f->dir);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	assert_true(unlink(f->path) == 0 || errno == ENOENT);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

static void a_listener_is_reached(void **state)
{
	const struct fixture *f = *state;
	_cleanup_close_ int listener = -1;
	_cleanup_close_ int fd = -1;
	_cleanup_close_ int peer = -1;
	char byte = 0;

	assert_int_equal(unix_socket_listen(f->path, 8, &listener, NULL), 0);
	assert_int_equal(unix_socket_connect(f->path, &fd), 0);
	peer = accept(listener, NULL, NULL);
	assert_true(peer >= 0);
	assert_int_equal(write(fd, "x", 1), 1);
	assert_int_equal(read(peer, &byte, 1), 1);
	assert_int_equal(byte, 'x');
	assert_int_equal(read(fd, &byte, 1), -1); /* does not block */
	assert_int_equal(errno, EAGAIN);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(listener, F_GETFD) & FD_CLOEXEC);
}

static void its_directory_is_created(void **state)
{
	struct fixture *f = *state;
	char path[96];
	char dir[80];
	struct err e = ERR_INIT;
	mode_t before = umask(022);
	struct stat st;
	int fd;

	(void)snprintf(dir, sizeof(dir), "%s/a/b", f->dir);
	(void)snprintf(path, sizeof(path), "%s/s", dir);
	assert_int_equal(unix_socket_listen(path, 1, &fd, &e), 0);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0750);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660); /* its group may connect */
	assert_int_equal(close(fd), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
	*strrchr(dir, '/') = '\0';
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(rmdir(dir), 0);
	(void)snprintf(path, sizeof(path), "/proc/none/s");
	assert_true(unix_socket_listen(path, 1, &fd, &e) < 0);
	assert_non_null(strstr(e.text, "cannot be created"));
	(void)umask(before);
}

static void only_its_user_may_connect(void **state)
{
	const struct fixture *f = *state;
	_cleanup_close_ int listener = -1;
	mode_t before = umask(0);
	struct stat st;

	assert_int_equal(unix_socket_listen(f->path, 8, &listener, NULL), 0);
	(void)umask(before);
	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void a_directory_for_a_group_opens_its_sockets(void **state)
{
	const struct fixture *f = *state;
	static const struct {
		mode_t directory;
		mode_t socket;
	} rows[] = { { 0700, 0600 }, { 0711, 0600 }, { 0755, 0600 }, { 0750, 0660 },
		{ 0751, 0660 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		_cleanup_close_ int listener = -1;
		struct stat st;

		assert_int_equal(chmod(f->dir, rows[i].directory), 0);
		assert_int_equal(unix_socket_listen(f->path, 8, &listener, NULL), 0);
		assert_int_equal(lstat(f->path, &st), 0);
		assert_int_equal(st.st_mode & 0777, rows[i].socket);
		assert_int_equal(unlink(f->path), 0);
	}
	assert_true(unix_socket_is_owners(f->path, geteuid()));
	assert_false(unix_socket_is_owners(f->path, geteuid() + 1));
	assert_int_equal(chmod(f->dir, 0770), 0);
	assert_false(unix_socket_is_owners(f->path, geteuid()));
}

static void a_dead_socket_makes_way(void **state)
{
	const struct fixture *f = *state;
	_cleanup_close_ int again = -1;
	int listener;
	int fd = -1;

	assert_int_equal(unix_socket_connect(f->path, &fd), -ENOENT);
	assert_int_equal(unix_socket_listen(f->path, 8, &listener, NULL), 0);
	assert_int_equal(close(listener), 0); /* the file stays */
	assert_int_equal(unix_socket_connect(f->path, &fd), -ECONNREFUSED);
	assert_int_equal(fd, -1);
	assert_int_equal(unix_socket_listen(f->path, 8, &again, NULL), 0);
}

static void what_is_alive_is_left_alone(void **state)
{
	const struct fixture *f = *state;
	_cleanup_close_ int listener = -1;
	_cleanup_close_ int fd = -1;
	struct err e = ERR_INIT;
	int second = -1;

	assert_int_equal(unix_socket_listen(f->path, 8, &listener, NULL), 0);
	assert_int_equal(unix_socket_listen(f->path, 8, &second, &e), -EADDRINUSE);
	assert_int_equal(second, -1);
	assert_non_null(strstr(e.text, f->path));
	assert_int_equal(unix_socket_connect(f->path, &fd), 0);
}

/* A listener that is behind lives: its queue is full, and connecting does not wait for it. */
static void what_is_behind_is_alive(void **state)
{
	const struct fixture *f = *state;
	_cleanup_close_ int listener = -1;
	int fds[64];
	int second = -1;
	int r = 0;
	int n = 0;

	assert_int_equal(unix_socket_listen(f->path, 1, &listener, NULL), 0);
	while (n < 64 && (r = unix_socket_connect(f->path, &fds[n])) == 0)
		n++;
	assert_int_equal(r, -EAGAIN);
	assert_int_equal(unix_socket_listen(f->path, 8, &second, NULL), -EADDRINUSE);
	while (n-- > 0)
		assert_int_equal(close(fds[n]), 0);
}

static void a_file_is_no_socket(void **state)
{
	const struct fixture *f = *state;
	_cleanup_close_ int file = open(f->path, O_WRONLY | O_CREAT, 0600);
	int fd = -1;

	assert_true(file >= 0);
	assert_int_equal(unix_socket_listen(f->path, 8, &fd, NULL), -EEXIST);
	assert_int_equal(access(f->path, F_OK), 0);
}

static void a_long_path_is_refused(void **state)
{
	char path[SOCKET_PATH_MAX + 1];
	struct err e = ERR_INIT;
	int fd = -1;

	(void)state;
	memset(path, 'a', sizeof(path));
	path[0] = '/';
	path[SOCKET_PATH_MAX] = '\0';
	assert_int_equal(unix_socket_check(path, NULL), -ENAMETOOLONG);
	assert_int_equal(unix_socket_listen(path, 8, &fd, &e), -ENAMETOOLONG);
	assert_non_null(strstr(e.text, "shorter directory"));
	assert_int_equal(unix_socket_connect(path, &fd), -ENAMETOOLONG);
	path[SOCKET_PATH_MAX - 1] = '\0';
	assert_int_equal(unix_socket_check(path, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_listener_is_reached, set_up, tear_down),
		cmocka_unit_test_setup_teardown(its_directory_is_created, set_up, tear_down),
		cmocka_unit_test_setup_teardown(only_its_user_may_connect, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_directory_for_a_group_opens_its_sockets, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_dead_socket_makes_way, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_alive_is_left_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_behind_is_alive, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_is_no_socket, set_up, tear_down),
		cmocka_unit_test(a_long_path_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
