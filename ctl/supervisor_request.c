/* Mounts on their way to the keeper. See supervisor.h. */
#include "ctl/supervisor.h"
#include "base/exit.h"
#include "base/log.h"
#include "ctl/fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL_NS  (5 * CLOCK_SECOND)
#define RETRY_NS (50 * CLOCK_MS)

int keeper_call(struct supervisor *s, const char *method, const char *path, const json_t *body,
	json_t **ret_json, struct err *e)
{
	char socket[SOCKET_PATH_MAX];

	return admin_call(cache_dir_socket(&s->cache, "keeper.sock", socket), method, path, body,
		CALL_NS, ret_json, e);
}

struct mount_request *mount_request_find_locked(struct supervisor *s, unsigned int id)
{
	list_for_each (node, &s->requests) {
		struct mount_request *request = list_entry(node, struct mount_request, link);

		if (request->id == id)
			return request;
	}
	return NULL;
}

static void mount_request_free(struct supervisor *s, struct mount_request *request)
{
	list_remove(&request->link);
	s->n_requests--;
	json_decref(request->body);
	free(request);
}

void mount_requests_free(struct supervisor *s)
{
	while (!list_empty(&s->requests))
		mount_request_free(s, list_entry(s->requests.next, struct mount_request, link));
}

/* Is it asked for twice? 0 and its id; -EEXIST: somebody else was first; -ENOENT. */
static int find_same(struct supervisor *s, const char *mountpoint, uint64_t token,
	const json_t *kept, unsigned int *ret_id)
{
	const json_t *mount;
	size_t i;

	list_for_each (node, &s->requests) {
		const struct mount_request *other = list_entry(node, struct mount_request, link);

		if (other->state != MOUNT_REQUEST_WAITING ||
			strcmp(other->mountpoint, mountpoint) != 0)
			continue;
		*ret_id = other->id;
		return token && other->token == token ? 0 : -EEXIST;
	}
	json_array_foreach (json_object_get(kept, "mounts"), i, mount) {
		const char *at = json_string_value(json_object_get(mount, "mountpoint"));
		const char *state = json_string_value(json_object_get(mount, "state"));
		const char *shows = json_string_value(json_object_get(mount, "point"));
		uint64_t its = (uint64_t)json_integer_value(json_object_get(mount, "token"));

		if (!at || !state || strcmp(at, mountpoint) != 0 || strcmp(state, "failed") == 0 ||
			(shows && strcmp(shows, "detached") == 0))
			continue;
		*ret_id = (unsigned int)json_integer_value(json_object_get(mount, "id"));
		return token && its == token ? 0 : -EEXIST;
	}
	return -ENOENT;
}

/* A number that neither list has. */
static unsigned int next_id(struct supervisor *s, const json_t *kept)
{
	unsigned int of_keeper = (unsigned int)json_integer_value(json_object_get(kept, "next_id"));

	s->next_id = max(s->next_id, of_keeper);
	return s->next_id++;
}

int mount_request_add_locked(struct supervisor *s, const json_t *body, const json_t *kept,
	unsigned int *ret_id, struct err *e)
{
	const char *mountpoint = json_string_value(json_object_get(body, "mountpoint"));
	uint64_t token = (uint64_t)json_integer_value(json_object_get(body, "token"));
	struct mount_request *request;
	int r;

	if (!json_is_string(json_object_get(body, "source")) || !mountpoint || mountpoint[0] != '/')
		return err_set(e, -EINVAL, "a mount needs a source and an absolute mountpoint");
	if (s->ending)
		return err_set(
			e, -EAGAIN, "the supervisor of %s is ending: try again", s->cache.path);
	r = find_same(s, mountpoint, token, kept, ret_id);
	if (r == -EEXIST)
		return err_set(e, r, "%s is already mounted, or about to be", mountpoint);
	if (r == 0)
		return 0;
	if (s->n_requests - mount_requests_count_locked(s, MOUNT_REQUEST_PASSED) +
			json_array_size(json_object_get(kept, "mounts")) >=
		SUPERVISOR_MOUNTS)
		return err_set(e, -ENOSPC,
			"this cache has %u mounts, which is the maximum: use another --cache",
			SUPERVISOR_MOUNTS);
	request = calloc(1, sizeof(*request));
	if (request)
		request->body = json_deep_copy(body);
	if (!request || !request->body ||
		json_object_set_new(request->body, "id", json_integer(s->next_id)) < 0) {
		if (request)
			json_decref(request->body);
		free(request);
		return err_set(e, -ENOMEM, "out of memory");
	}
	request->id = next_id(s, kept);
	json_integer_set(json_object_get(request->body, "id"), (json_int_t)request->id);
	request->source = json_string_value(json_object_get(request->body, "source"));
	request->mountpoint = json_string_value(json_object_get(request->body, "mountpoint"));
	request->token = token;
	list_push_back(&s->requests, &request->link);
	s->n_requests++;
	*ret_id = request->id;
	return 0;
}

json_t *mount_request_json(const struct supervisor *s, const struct mount_request *request)
{
	bool failed = request->state == MOUNT_REQUEST_FAILED;
	char socket[SOCKET_PATH_MAX];
	char name[48];
	json_t *json;

	(void)snprintf(name, sizeof(name), "mount-%u.sock", request->id); /* fits */
	(void)cache_dir_socket(&s->cache, name, socket);
	*strrchr(name, '.') = '\0';
	json = json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:i, s:s}", "name", name, "id",
		(int)request->id, "pid", 0, "source", request->source, "mountpoint",
		request->mountpoint, "socket", socket, "restarts", 0, "state",
		failed ? "failed" : "waiting");
	if (json && failed) {
		(void)json_object_set_new(json, "exit", json_integer(request->exit_status));
		(void)json_object_set_new(json, "text", json_string(request->failure.text));
	}
	return json;
}

static void fail(struct mount_request *request, int status, const struct err *e)
{
	ensure(request->state != MOUNT_REQUEST_FAILED);
	request->state = MOUNT_REQUEST_FAILED;
	request->exit_status = status;
	request->failure = *e;
	request->forget_ns = clock_mono_ns() + SUPERVISOR_IDLE_NS;
	log_warn("mount failed", "mountpoint=\"%s\" status=%d text=\"%s\"", request->mountpoint,
		status, e->text);
}

/* The keeper ends a mount that it was given, without the lock meanwhile. */
static void end_passed(struct supervisor *s, const struct mount_request *request)
{
	struct err e = ERR_INIT;
	json_t *answer = NULL;
	char path[64];
	int r;

	(void)snprintf(path, sizeof(path), "/v1/mount?id=%u&give_up=1", request->id); /* fits */
	pthread_mutex_unlock(&s->lock); /* only the loop, which this is, frees requests */
	r = keeper_call(s, "POST", path, NULL, &answer, &e);
	pthread_mutex_lock(&s->lock);
	json_decref(answer);
	if (r < 0)
		log_debug("mount not given up", "why=\"%s\"", e.text);
	if (r == 0 || r == -ENOENT) /* else it may be there still */
		s->given -= s->given > 0;
}

void mount_requests_fail_locked(struct supervisor *s, const struct child *child)
{
	list_for_each (node, &s->requests) {
		struct mount_request *request = list_entry(node, struct mount_request, link);

		bool passed = request->state == MOUNT_REQUEST_PASSED;

		if (request->state != MOUNT_REQUEST_FAILED)
			fail(request, child->exit_status, &child->failure);
		if (passed) /* a request meanwhile gets the reason */
			end_passed(s, request);
	}
}

unsigned int mount_requests_count_locked(const struct supervisor *s, enum mount_request_state state)
{
	unsigned int n = 0;

	list_for_each (node, &s->requests)
		n += list_entry(node, struct mount_request, link)->state == state;
	return n;
}

/* False: the keeper did not answer, or is ending: it is asked again. */
static bool pass(struct supervisor *s, struct mount_request *request)
{
	struct err e = ERR_INIT;
	json_t *answer = NULL;
	int r;

	pthread_mutex_unlock(&s->lock); /* only the loop, which this is, frees requests */
	r = keeper_call(s, "POST", "/v1/mounts", request->body, &answer, &e);
	pthread_mutex_lock(&s->lock);
	json_decref(answer);
	if (fleet_unreachable(r) || r == -EAGAIN || r == -ENOMEM || r == -ETIMEDOUT)
		return false;
	if (r < 0) {
		fail(request, r == -EEXIST ? EXIT_MOUNTPOINT : EXIT_RUNTIME, &e);
		return true;
	}
	s->idle_since_ns = 0; /* it had one: no waiting for the first */
	s->kept++;            /* as will be heard */
	s->given++;
	request->state = MOUNT_REQUEST_PASSED;
	if (request->given_up) /* meanwhile, which the keeper does not know */
		end_passed(s, request);
	return true;
}

void mount_requests_leave_locked(struct supervisor *s)
{
	list_for_each_safe (node, &s->requests) {
		struct mount_request *request = list_entry(node, struct mount_request, link);

		if (request->state == MOUNT_REQUEST_PASSED)
			mount_request_free(s, request);
	}
}

void mount_requests_pass_locked(struct supervisor *s)
{
	s->retry_ns = 0;
	list_for_each_safe (node, &s->requests) {
		struct mount_request *request = list_entry(node, struct mount_request, link);

		if (request->state != MOUNT_REQUEST_WAITING || request->given_up)
			continue;
		if (!pass(s, request)) {
			s->retry_ns = clock_mono_ns() + RETRY_NS;
			return;
		}
	}
}

void mount_requests_drop_locked(struct supervisor *s)
{
	list_for_each_safe (node, &s->requests) {
		struct mount_request *request = list_entry(node, struct mount_request, link);
		bool forgotten = request->state == MOUNT_REQUEST_FAILED &&
				 clock_mono_ns() >= request->forget_ns;

		if (!forgotten && !s->forced &&
			!(request->state != MOUNT_REQUEST_FAILED && request->given_up))
			continue;
		s->idle_since_ns = 0;
		log_info("mount gone", "mountpoint=\"%s\"", request->mountpoint);
		mount_request_free(s, request);
	}
}
