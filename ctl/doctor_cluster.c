/* doctor: the cluster that this node is part of: its master is on another node, or here with several workers. */
#include "base/address.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "base/version.h"
#include "ctl/doctor.h"
#include "ctl/fleet.h"
#include "ctl/master_call.h"
#include "ctl/master_wire.h"
#include "ctl/node_config.h"
#include "ctl/status_cluster.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKERS_TRIED 16u  /* of a large cluster some are enough */
#define CONNECT_MS    2000 /* to a port in the same network */
#define LOOPBACK_MTU  65535
#define SKEW_S        5.0 /* more, and tokens end early or late */

/* ---- keys ------------------------------------------------------------------------------------ */

static void check_keys(struct doctor *d, const struct node_config *config)
{
	const char *const files[][2] = { { "cluster key", config->cluster_key },
		{ "token", config->token } };
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		const char *path = files[i][1];
		struct stat st;

		if (!path[0] || strcmp(path, KEY_OPTION_NONE) == 0)
			continue;
		any = true;
		if (stat(path, &st) != 0 || access(path, R_OK) != 0)
			doctor_fail(d, EXIT_USAGE, "cluster", "%s: %s: %m: put the file there",
				files[i][0], path);
		else if (st.st_mode & 0077)
			doctor_fail(d, EXIT_USAGE, "cluster",
				"%s: %s is readable by other users (mode %04o) and is refused: "
				"chmod 600 %s",
				files[i][0], path, (unsigned int)st.st_mode & 07777, path);
		else
			doctor_ok(d, "cluster", "%s: %s", files[i][0], path);
	}
	if (!any)
		doctor_warn(d, "cluster",
			"keys: none in %s: daemons use unix sockets only; set cluster-key "
			"or token",
			config->file);
}

/* ---- the master ------------------------------------------------------------------------------ */

static void check_skew(struct doctor *d, const json_t *status, uint64_t asked_ns, uint64_t took_ns)
{
	double its = json_number_value(json_object_get(status, "time"));
	double ours = ((double)asked_ns + (double)took_ns / 2) / (double)CLOCK_SECOND;
	double off = fabs(its - ours);
	char text[24];

	if (its <= 0)
		return;
	if (off > SKEW_S)
		doctor_warn(d, "cluster",
			"clock: this node's is %s %s the master's: tokens expire too early or too "
			"late: run NTP on both",
			units_duration((uint64_t)(off * 1e9), text, sizeof(text)),
			its < ours ? "ahead of" : "behind");
	else
		doctor_ok(d, "cluster", "clock: within %s of the master's",
			units_duration((uint64_t)((off + 0.05) * 1e9), text, sizeof(text)));
}

static void check_version(struct doctor *d, const char *who, const char *version)
{
	if (version && strcmp(version, GRANARY_VERSION) != 0)
		doctor_warn(d, "cluster", "version: %s has %s, this node %s: upgrade the older one",
			who, version, GRANARY_VERSION);
}

static int check_master(struct doctor *d, const struct master_where *where, const char *address)
{
	struct err e = ERR_INIT;
	json_t *status = NULL;
	uint64_t asked = clock_wall_ns();
	uint64_t began = clock_mono_ns();
	int r = master_call(where, NULL, "/v1/status", NULL, MASTER_CALL_NS, &status, &e);
	uint64_t took = clock_mono_ns() - began;

	if (r == -EPERM) {
		doctor_ok(d, "cluster",
			"master: %s answers and takes the token, which is for mounts of a dataset",
			address);
	} else if (r < 0) {
		doctor_fail(d, EXIT_RUNTIME, "cluster", "master: %s: %s", address, e.text);
	} else {
		doctor_ok(d, "cluster", "master: %s answers and takes the key", address);
		check_skew(d, status, asked, took);
		check_version(
			d, "the master", json_string_value(json_object_get(status, "version")));
	}
	json_decref(status);
	return r;
}

/* ---- workers --------------------------------------------------------------------------------- */

static int wait_connected(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int error = 0;
	socklen_t len = sizeof(error);

	if (poll(&p, 1, CONNECT_MS) != 1)
		return -ETIMEDOUT;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 ? -error : -EIO;
}

/* "tcp:host:port": 0, and the largest packet that goes there. */
static int try_port(const char *address, int *ret_mtu)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	struct address_parts parts;
	struct addrinfo *found = NULL;
	_cleanup_close_ int fd = -1;
	socklen_t len = sizeof(*ret_mtu);
	int r = address_split(address + strlen("tcp:"), &parts);

	if (r < 0 || getaddrinfo(parts.host, parts.port, &hints, &found) != 0)
		return -EINVAL;
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	r = fd < 0 ? err_errno() : 0;
	if (r == 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0)
		r = errno == EINPROGRESS ? wait_connected(fd) : err_errno();
	*ret_mtu = 0;
	if (r == 0 && found->ai_family == AF_INET)
		(void)getsockopt(fd, SOL_IP, 14 /* IP_MTU */, ret_mtu, &len); /* told only */
	freeaddrinfo(found);
	return r;
}

static const char *tcp_address(const json_t *worker)
{
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(worker, "addresses"), i, one)
		if (json_string_value(one) && strncmp(json_string_value(one), "tcp:", 4) == 0)
			return json_string_value(one);
	return NULL;
}

/* Two of one name are told apart by their numbers only. */
static void check_names(struct doctor *d, const json_t *workers)
{
	const json_t *worker;
	size_t i;

	json_array_foreach (workers, i, worker) {
		const char *name = json_string_value(json_object_get(worker, "name"));
		bool before = false;
		size_t same = 0;

		for (size_t k = 0; name && k < json_array_size(workers); k++) {
			const char *other = json_string_value(
				json_object_get(json_array_get(workers, k), "name"));
			bool is_same = other && strcmp(name, other) == 0;

			same += is_same;
			before |= is_same && k < i;
		}
		if (same > 1 && !before)
			doctor_warn(d, "cluster",
				"workers: %zu have the name %s: commands need their numbers: give "
				"each its own `name`",
				same, name);
	}
}

struct ports {
	uint32_t tried;
	uint32_t reached;
	int least_mtu;
	int most_mtu;
};

static void check_worker(struct doctor *d, const json_t *worker, struct ports *ports)
{
	const char *name = json_string_value(json_object_get(worker, "name"));
	const char *state = json_string_value(json_object_get(worker, "state"));
	const char *address = tcp_address(worker);
	char who[96];
	int mtu = 0;
	int r;

	(void)snprintf(who, sizeof(who), "worker %.80s", name ? name : "?");
	if (!state || strcmp(state, "up") != 0) {
		doctor_warn(d, "cluster",
			"%s: %s: other workers serve its data: see cachectl worker show %s", who,
			state ? state : "?", name ? name : "NAME");
		return;
	}
	check_version(d, who, json_string_value(json_object_get(worker, "version")));
	if (!address) {
		doctor_warn(d, "cluster",
			"%s: only its own node can reach it: let it listen on tcp:HOST:PORT, too",
			who);
		return;
	}
	ports->tried++;
	r = try_port(address, &mtu);
	if (r < 0) {
		doctor_fail(d, EXIT_RUNTIME, "cluster",
			"%s: %s cannot be reached from here: %s: open the port, or let it "
			"--advertise another address",
			who, address, err_str(r));
		return;
	}
	ports->reached++;
	if (mtu > 0 && mtu < LOOPBACK_MTU) { /* one on this host says nothing of the network */
		ports->least_mtu = ports->least_mtu ? min(ports->least_mtu, mtu) : mtu;
		ports->most_mtu = max(ports->most_mtu, mtu);
	}
}

static void check_workers(struct doctor *d, const struct master_where *where)
{
	struct ports ports = { 0 };
	struct err e = ERR_INIT;
	json_t *answer = NULL;
	const json_t *worker;
	size_t i;

	if (master_call(where, NULL, "/v1/workers", NULL, MASTER_CALL_NS, &answer, &e) < 0) {
		doctor_warn(d, "cluster", "workers: %s", e.text);
		return;
	}
	json_array_foreach (json_object_get(answer, "workers"), i, worker)
		if (ports.tried < WORKERS_TRIED)
			check_worker(d, worker, &ports);
	check_names(d, json_object_get(answer, "workers"));
	if (i == 0)
		doctor_warn(d, "cluster",
			"workers: none has joined: start one, then see cachectl worker list");
	else if (ports.reached > 0)
		doctor_ok(d, "cluster", "workers: %u of %u can be reached from here", ports.reached,
			ports.tried);
	if (ports.least_mtu != ports.most_mtu)
		doctor_warn(d, "cluster",
			"MTU: packets of %d bytes to one worker, of %d to another: use the same "
			"MTU on all hosts",
			ports.most_mtu, ports.least_mtu);
	else if (ports.most_mtu)
		doctor_ok(d, "cluster", "MTU: %d%s", ports.most_mtu,
			ports.most_mtu < 9000 ? "; 9000 would cost less CPU" : "");
	json_decref(answer);
}

/* Of a node that has the master itself. */
static void check_here(struct doctor *d, const struct master_where *where)
{
	json_t *status = NULL;

	if (master_call(where, NULL, "/v1/status", NULL, MASTER_CALL_NS, &status, NULL) == 0 &&
		status_cluster_members(json_object_get(status, "slots")) > 1)
		check_workers(d, where);
	json_decref(status);
}

void doctor_cluster(struct doctor *d)
{
	static struct node_config config; /* paths: large */
	const struct master_where where = { .master = d->options->master };
	char address[SOCKET_PATH_MAX];
	struct err e = ERR_INIT;

	if (d->options->cache || master_find(&where, address, &e) < 0)
		return;
	if (!master_is_wire(address)) {
		check_here(d, &where);
		return;
	}
	if (node_config_read(&config, &e) < 0) {
		doctor_fail(d, EXIT_USAGE, "cluster", "%s", e.text);
		return;
	}
	check_keys(d, &config);
	if (check_master(d, &where, address + strlen(MASTER_WIRE)) == 0)
		check_workers(d, &where);
}
