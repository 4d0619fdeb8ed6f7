/* One HEAD of an endpoint. See reach.h. */
#include "ufs/reach.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "ufs/credentials.h"
#include "ufs/s3_error.h"
#include "ufs/s3_place.h"
#include "ufs/s3_way.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

static size_t drop(char *data, size_t size, size_t n, void *arg)
{
	(void)data;
	(void)arg;
	return size * n;
}

static size_t take_header(char *line, size_t size, size_t n, void *arg)
{
	s3_answer_line(arg, line, size * n);
	return size * n;
}

/* As an origin's requests are made, but alone. */
static void set_options(CURL *easy, const struct s3_way *way, struct s3_guard *guard,
	const char *url, uint64_t timeout_ns, struct s3_answer *answer)
{
	long timeout = (long)(timeout_ns / CLOCK_MS);

	s3_way_set(way, easy, guard);
	/* As there. */
	(void)curl_easy_setopt(easy, CURLOPT_URL, url);
	(void)curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, timeout);
	(void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop);
	(void)curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
	(void)curl_easy_setopt(easy, CURLOPT_HEADERDATA, answer);
}

/* What curl takes from the environment for this scheme; the lower-case name only for http. */
static const char *proxy_of_environment(bool tls)
{
	static const char *const names[] = { "https_proxy", "HTTPS_PROXY", "http_proxy",
		"all_proxy", "ALL_PROXY" };

	for (size_t i = tls ? 0 : 2; i < ARRAY_SIZE(names); i++) {
		const char *value = getenv(names[i]); // NOLINT(concurrency-mt-unsafe): read only

		if (value && *value && !(tls && i == 2))
			return value;
	}
	return NULL;
}

/* NO_PROXY is curl's to understand: whether there was one is seen by whom it spoke to. */
static void find_proxy(CURL *easy, const struct s3_place *place, long port, struct ufs_reach *reach)
{
	const char *proxy = proxy_of_environment(place->endpoint.tls);
	long own = place->endpoint.port ? (long)place->endpoint.port
					: (place->endpoint.tls ? 443 : 80);
	long answer = 0;

	(void)curl_easy_getinfo(easy, CURLINFO_HTTP_CONNECTCODE, &answer);
	if (proxy && (answer != 0 || port != own))
		(void)snprintf(reach->proxy, sizeof(reach->proxy), "%s", proxy); /* cut: shown */
}

static uint64_t step(curl_off_t from_us, curl_off_t to_us)
{
	return to_us > from_us ? (uint64_t)(to_us - from_us) * 1000 : 0;
}

static void measure(CURL *easy, const struct s3_place *place, const struct s3_answer *answer,
	struct ufs_reach *reach)
{
	curl_off_t name = 0;
	curl_off_t connect = 0;
	curl_off_t tls = 0;
	curl_off_t sent = 0;
	curl_off_t first = 0;
	const char *ip = NULL;
	long port = 0;

	/* Known to this libcurl, of a handle that was used: do not fail. */
	(void)curl_easy_getinfo(easy, CURLINFO_NAMELOOKUP_TIME_T, &name);
	(void)curl_easy_getinfo(easy, CURLINFO_CONNECT_TIME_T, &connect);
	(void)curl_easy_getinfo(easy, CURLINFO_APPCONNECT_TIME_T, &tls);
	(void)curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &sent);
	(void)curl_easy_getinfo(easy, CURLINFO_STARTTRANSFER_TIME_T, &first);
	(void)curl_easy_getinfo(easy, CURLINFO_PRIMARY_IP, &ip);
	(void)curl_easy_getinfo(easy, CURLINFO_PRIMARY_PORT, &port);
	(void)snprintf(reach->address, sizeof(reach->address), "%s:%ld", ip ? ip : "?", port);
	find_proxy(easy, place, port, reach);
	reach->name_ns = step(0, name);
	reach->connect_ns = step(name, connect);
	reach->tls_ns = step(connect, tls);
	reach->first_byte_ns = step(sent, first);
	reach->status = answer->status;
	reach->date = answer->date;
}

static int ask(const struct ufs_config *config, const struct s3_place *place, uint64_t timeout_ns,
	struct ufs_reach *ret_reach, struct err *e)
{
	const struct s3_target target = { .scheme = config->scheme == UFS_OBS ? "obs" : "s3",
		.url = place->base_url,
		.bucket = config->bucket,
		.region = place->region };
	struct ufs_reach reach = { .date = -1 };
	struct s3_answer answer;
	char text[CURL_ERROR_SIZE] = "";
	struct s3_guard guard;
	struct s3_way way;
	CURL *easy;
	CURLcode code;
	long proxy = 0;
	int r = s3_way_find(config, &place->endpoint, &way, e);

	if (r < 0)
		return r;
	easy = curl_easy_init();
	if (!easy)
		return err_set(e, -ENOMEM, "out of memory");
	s3_answer_init(&answer);
	set_options(easy, &way, &guard, place->base_url, timeout_ns, &answer);
	(void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, text); /* known to this libcurl */
	code = curl_easy_perform(easy);
	if (code == CURLE_OK) {
		(void)snprintf(reach.url, sizeof(reach.url), "%s", place->base_url); /* fits */
		measure(easy, place, &answer, &reach);
		*ret_reach = reach;
	} else {
		enum ufs_cause cause = UFS_CAUSE_NONE;
		struct s3_transfer transfer = {
			.curl_code = (int)code, .text = text, .refused = guard.refused
		};

		(void)curl_easy_getinfo(easy, CURLINFO_HTTP_CONNECTCODE, &proxy);
		transfer.proxy_status = (int)proxy;
		r = s3_error_transfer(&target, &transfer, &cause, e);
	}
	curl_easy_cleanup(easy);
	return r;
}

int ufs_reach(const struct ufs_config *config, uint64_t timeout_ns, struct ufs_reach *ret_reach,
	struct err *e)
{
	const struct credentials_query query = {
		.reference = config->credentials,
		.profile = config->profile,
		.obs = config->scheme == UFS_OBS,
		.ca_file = config->ca_file,
	};
	struct credentials found = { 0 };
	struct ufs_reach reach;
	struct s3_place place;
	int r;

	/* The endpoint may be a profile's; its keys are somebody else's question. */
	credentials_find_settings(&query, &found);
	r = s3_place_init(&place, config->endpoint ? config->endpoint : found.endpoint,
		config->region ? config->region : found.region, config->bucket, config->path_style,
		query.obs, e);
	credentials_release(&found);
	if (r == 0)
		r = ask(config, &place, timeout_ns, &reach, e);
	if (r < 0)
		return r;
	if (!config->anonymous && !credentials_are_none(query.reference) &&
		credentials_find(&query, &found, NULL) == 0) {
		(void)snprintf(reach.key, sizeof(reach.key), "%s", found.access_key); /* shown */
		(void)snprintf(reach.key_place, sizeof(reach.key_place), "%s",
			found.place ? found.place : "?"); /* shown */
		credentials_release(&found);
	}
	*ret_reach = reach;
	return 0;
}
