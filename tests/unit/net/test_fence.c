/*
 * Which master is listened to: epochs, clusters, what is kept in a file; and a client at one address
 * behind which masters come and go.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "net/fence.h"
#include "net/net.h"

static const struct hello_master first = { "cluster one.....", 1000 };
static const struct hello_master again = { "cluster one.....", 1001 };
static const struct hello_master early = { "cluster one.....", 999 };
static const struct hello_master other = { "cluster two.....", 2000 };
static const struct hello_master later = { "cluster one.....", 2000 };
static const struct hello_master nobody;

static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/tmp/granary-fence.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char path[96];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/cluster", dir);
	(void)unlink(path);
	return rmdir(dir);
}

static void expect(
	struct fence *fence, const struct hello_master *master, int status, const char *text)
{
	struct err e = ERR_INIT;

	assert_int_equal(fence_check(fence, master, "unix:/m", &e), status);
	fence_refusal(fence, &e);
	assert_int_equal(e.code, status);
	if (text && !strstr(e.text, text))
		fail_msg("'%s' is not in '%s'", text, e.text);
}

static void test_masters(void **state)
{
	struct fence fence;

	(void)state;
	fence_init(&fence);
	expect(&fence, &nobody, 0, NULL); /* of an older version, and nobody was met */
	assert_int_equal(fence_met(&fence).epoch, 0);
	expect(&fence, &first, 0, NULL);
	expect(&fence, &first, 0, NULL);
	expect(&fence, &again, 0, NULL);
	assert_int_equal(fence_met(&fence).epoch, 1001);
	expect(&fence, &first, -ECONNREFUSED, "the master was replaced: stop it");
	expect(&fence, &early, -ECONNREFUSED, "epoch 999, and epoch 1001");
	expect(&fence, &other, -ECONNREFUSED, "start that cluster's master there");
	expect(&fence, &nobody, -ECONNREFUSED, "of an older version");
	assert_int_equal(fence_met(&fence).epoch, 1001);
	expect(&fence, &again, 0, NULL);
	fence_release(&fence);
}

static void load(struct fence *fence, int status, uint64_t epoch)
{
	struct err e = ERR_INIT;

	fence_init(fence);
	assert_int_equal(fence_load(fence, dir, &e), status);
	assert_int_equal(fence_met(fence).epoch, epoch);
}

static void write_file(const char *text)
{
	char path[96];

	(void)snprintf(path, sizeof(path), "%s/cluster", dir);
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

static void test_processes(void **state)
{
	struct fence fence;
	struct fence second;

	(void)state;
	load(&fence, 0, 0); /* nothing there */
	assert_int_equal(fence_save(&fence, dir), 0);
	expect(&fence, &first, 0, NULL);
	assert_int_equal(fence_save(&fence, dir), 0);
	load(&second, 0, 1000);
	expect(&second, &early, -ECONNREFUSED, "the master was replaced");
	expect(&second, &other, -ECONNREFUSED, "start that cluster's master there");
	expect(&second, &later, 0, NULL); /* a new state in the place of one that is lost */
	assert_int_equal(fence_save(&second, dir), 0);
	fence_release(&second);
	/* The first goes on with what it knows, and takes nothing back. */
	expect(&fence, &again, 0, NULL);
	assert_int_equal(fence_save(&fence, dir), 0);
	fence_release(&fence);
	load(&fence, 0, 2000);
	fence_release(&fence);
}

static void test_files(void **state)
{
	static const char *const damaged[] = { "", "granary cluster 1\n", "granary cluster x\n",
		"granary cluster 1\n00112233445566778899aabbccddeeff\n",
		"granary cluster 1\n00112233445566778899aabbccddeeff 12", "rubbish",
		"granary cluster 1\n00112233445566778899aabbccddeefg 12\n",
		"granary cluster 1\n00112233445566778899aabbccddeeff 99999999999999999999\n" };
	struct fence fence;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
		write_file(damaged[i]);
		load(&fence, 0, 0);
		fence_release(&fence);
	}
	write_file("granary cluster 1\n00112233445566778899aabbccddeeff 12\n");
	load(&fence, 0, 12);
	fence_release(&fence);
	write_file("granary cluster 2\nwho knows\n");
	fence_init(&fence);
	assert_int_equal(fence_load(&fence, dir, &e), -EPROTONOSUPPORT);
	assert_non_null(strstr(e.text, "newer version"));
	expect(&fence, &first, 0, NULL);
	assert_int_equal(fence_save(&fence, dir), -EPROTONOSUPPORT); /* and it is left alone */
	fence_release(&fence);
}

/* ---- over the wire --------------------------------------------------------------------------- */

static void on_request(struct rpc_request *request, void *arg)
{
	(void)arg;
	rpc_reply(request, 0, NULL, NET_PAYLOAD_NONE);
}

static struct hello_master identify(void *arg)
{
	return *(const struct hello_master *)arg;
}

static const struct rpc_server_ops ops = { .on_request = on_request, .identify = identify };

/* What a call to a master at the address ends with. */
static void call(struct loop *loop, const char *address, struct rpc_client *client,
	struct hello_master master, int status, const char *text)
{
	struct rpc_call rpc = {
		.frame = { .op = FRAME_GET_SLOTS }, .resend = true, .reply_fd = -1
	};
	struct rpc_server *server;
	struct err e = ERR_INIT;

	assert_int_equal(rpc_server_new(loop, address, &ops, &master, &server, &e), 0);
	assert_int_equal(rpc_call_wait(client, &rpc, &e), status);
	if (text)
		assert_non_null(strstr(e.text, text));
	rpc_call_release(&rpc);
	rpc_server_free(server);
}

static void test_over_the_wire(void **state)
{
	struct loop *loop = loop_new("test");
	struct rpc_client *client;
	struct err e = ERR_INIT;
	struct fence fence;
	char address[96];

	(void)state;
	(void)snprintf(address, sizeof(address), "unix:%s/m", dir);
	fence_init(&fence);
	assert_int_equal(rpc_client_new(loop, address, &client, &e), 0);
	rpc_client_fence(client, &fence);
	call(loop, address, client, first, 0, NULL);
	call(loop, address, client, early, -ECONNREFUSED, "the master was replaced");
	assert_false(rpc_client_connected(client));
	call(loop, address, client, other, -ECONNREFUSED, "start that cluster's master");
	call(loop, address, client, again, 0, NULL);
	assert_int_equal(fence_met(&fence).epoch, 1001);
	rpc_client_free(client);
	fence_release(&fence);
	loop_free(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_masters, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_processes, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_files, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_over_the_wire, make_dir, remove_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
