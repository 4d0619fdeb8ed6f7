/* How long after a preload has ended the command that waits for it has its figures. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "admin/admin.h"
#include "base/clock.h"
#include "ctl/command.h"
#include "ctl/preload_command.h"

/* The master of the test: one preload that ends right after `last` answers about it. */
static struct {
	unsigned int last;
	int eta_s; /* of each answer before the end */
	unsigned int answers;
	uint64_t ended_ns;
} preload;

static char dir[48];
static char socket_path[64];

static int get(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	bool ended = preload.answers >= preload.last;

	(void)arg;
	(void)request;
	(void)e;
	if (++preload.answers == preload.last)
		preload.ended_ns = clock_mono_ns();
	*ret_json = json_pack("{s:s, s:i, s:i}", "state", ended ? "complete" : "running", "id", 1,
		"eta_s", ended ? 0 : preload.eta_s);
	return *ret_json ? 0 : -ENOMEM;
}

static const struct admin_route routes[] = {
	{ .method = "GET", .path = "/v1/preloads/{id}", .handler = get },
	{ 0 },
};

/* Milliseconds from the end to the command's. */
static uint64_t late_ms(unsigned int last, int eta_s)
{
	const struct master_where where = { .master = socket_path };
	const struct preload_set set = { .ids = { 1 }, .n = 1 };
	struct admin_server *server = NULL;
	struct err e = ERR_INIT;
	uint64_t late;

	preload.last = last;
	preload.eta_s = eta_s;
	preload.answers = 0;
	assert_int_equal(admin_server_new(socket_path, routes, NULL, &server, &e), 0);
	assert_int_equal(preload_watch(&where, &set, "table", &e), EXIT_OK);
	late = (clock_mono_ns() - preload.ended_ns) / CLOCK_MS;
	admin_server_free(server);
	assert_int_equal(preload.answers, last + 1);
	return late;
}

static void short_ones_are_asked_for_often(void **state)
{
	(void)state;
	assert_true(late_ms(4, -1) < 90);
}

static void long_ones_are_asked_for_seldom(void **state)
{
	uint64_t began = clock_mono_ns();

	(void)state;
	assert_true(late_ms(200, 60) >= 100);
	assert_true(clock_mono_ns() - began > 15 * CLOCK_SECOND);
}

static void the_end_is_asked_for_often(void **state)
{
	(void)state;
	assert_true(late_ms(200, 1) < 90);
	assert_true(late_ms(200, 0) < 90);
}

static int make_dir(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-pw.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	(void)snprintf(socket_path, sizeof(socket_path), "%s/m.sock", dir);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	(void)unlink(socket_path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(short_ones_are_asked_for_often),
		cmocka_unit_test(long_ones_are_asked_for_seldom),
		cmocka_unit_test(the_end_is_asked_for_often),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
