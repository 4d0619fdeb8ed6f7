/*
 * Keys of a container's task or pod, from the agent on its host (ECS tasks, EKS Pod Identity).
 * https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
 *
 * The path of a task's keys is as good as the keys for whoever is on the host: lines for people name
 * the agent only.
 */
#include "ufs/credentials_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/secret.h"
#include "ufs/http_once.h"
#include "ufs/s3_endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGENT_ADDRESS    "http://169.254.170.2"
#define AGENT_CONNECT_NS (2 * CLOCK_SECOND)
#define AGENT_TIMEOUT_NS (5 * CLOCK_SECOND)

/* Plain HTTP goes to this machine and the agents' addresses only: a token goes with it. */
static int check_url(const char *url, struct err *e)
{
	static const char *const agents[] = { "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]" };
	_cleanup_(buf_release) struct buf origin = BUF_INIT(512);
	const char *host = strstr(url, "://");
	struct s3_endpoint endpoint;

	if (!host ||
		buf_append(&origin, url, (size_t)(host - url) + 3 + strcspn(host + 3, "/")) < 0 ||
		s3_endpoint_parse(buf_str(&origin), &endpoint, NULL) < 0)
		return err_set(e, -ENOKEY,
			"AWS_CONTAINER_CREDENTIALS_FULL_URI \"%.200s\" is not a URL", url);
	if (endpoint.tls || s3_endpoint_is_loopback(&endpoint))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(agents); i++)
		if (strcmp(endpoint.host, agents[i]) == 0)
			return 0;
	return err_set(e, -ENOKEY,
		"AWS_CONTAINER_CREDENTIALS_FULL_URI \"%.200s\": plain http:// may only name this "
		"machine or the container agent",
		url);
}

/* "Authorization: TOKEN", "" without one. */
static int put_header(struct buf *header, struct err *e)
{
	const char *file = credentials_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *token = credentials_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	struct buf text = BUF_INIT(CREDENTIALS_TOKEN_MAX);
	int r = 0;

	if (file) {
		r = credentials_read_line(file, "container authorization token", &text, e);
		token = buf_str(&text);
	} else if (token && strpbrk(token, "\r\n")) {
		r = err_set(e, -ENOKEY, "AWS_CONTAINER_AUTHORIZATION_TOKEN contains a newline");
	}
	if (r == 0 && token)
		r = buf_printf(header, "Authorization: %s", token);
	secret_release_buf(&text);
	return r;
}

/* Scheme, host and port of a URL. */
static void name_agent(const char *url, char *out, size_t size)
{
	const char *host = strstr(url, "://");
	size_t n = host ? (size_t)(host - url) + 3 : 0;

	n += strcspn(url + n, "/");
	(void)snprintf(out, size, "%.*s", (int)min(n, size - 1), url); /* cut: for the eye */
}

static int ask(const struct credentials_query *query, const char *url, struct credentials *c,
	struct err *e)
{
	struct buf header = BUF_INIT(CREDENTIALS_TOKEN_MAX + 64);
	struct buf answer = BUF_INIT(CREDENTIALS_TOKEN_MAX);
	char name[300];
	int status = 0;
	int r = put_header(&header, e);
	const char *const headers[] = { buf_str(&header) };

	name_agent(url, name, sizeof(name));
	if (r == 0) {
		r = http_once(&(struct http_once){ .method = "GET",
				      .url = url,
				      .name = name,
				      .headers = headers,
				      .n_headers = header.len ? 1 : 0,
				      .ca_file = query->ca_file,
				      .no_proxy = strncmp(url, "http://", 7) == 0,
				      .connect_ns = AGENT_CONNECT_NS,
				      .timeout_ns = AGENT_TIMEOUT_NS,
				      .given_up = query->given_up },
			&status, &answer, e);
		if (r < 0 && r != -ECANCELED && r != -ENOMEM && e)
			r = e->code = -ENOKEY;
	}
	if (r == 0 && status != 200)
		r = err_set(e, -ENOKEY,
			"%s returned no keys (%d); check the task's role, or the pod identity's "
			"association",
			name, status);
	if (r == 0)
		r = credentials_take_json(&answer, "the container agent", c, e);
	if (r == 0)
		r = credentials_place(c, "the container agent %s", name);
	secret_release_buf(&header);
	secret_release_buf(&answer);
	return r;
}

static int find(const struct credentials_query *query, struct credentials *c, struct err *e)
{
	const char *relative = credentials_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = credentials_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	_cleanup_(buf_release) struct buf url = BUF_INIT(4096);
	int r;

	if (!relative && !full)
		return err_set(e, -ENOENT,
			"neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor _FULL_URI is set");
	if (relative)
		r = buf_printf(&url, AGENT_ADDRESS "%s%s", *relative == '/' ? "" : "/", relative);
	else
		r = check_url(full, e) < 0 ? -ENOKEY : buf_puts(&url, full);
	return r < 0 ? err_default(e, r, "container credentials") : ask(query, buf_str(&url), c, e);
}

const struct credentials_provider credentials_container = { "container", find };
