/* Certificates and proxy. See s3_way.h. */
#include "ufs/s3_way.h"
#include "ufs/local_address.h"

#include <curl/curl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- addresses ------------------------------------------------------------------------------- */

static void address_text(const struct sockaddr *address, socklen_t len, char out[S3_ADDRESS_MAX])
{
	char host[S3_ADDRESS_MAX - 8];
	char port[8];

	if (getnameinfo(address, len, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		(void)snprintf(out, S3_ADDRESS_MAX, "an address of another family"); /* fits */
	else
		(void)snprintf(out, S3_ADDRESS_MAX, "%s:%s", host, port); /* fits */
}

/* Host and port of a proxy as curl reads them. */
static bool parse_proxy(const char *text, char **ret_host, char **ret_port)
{
	CURLU *url = curl_url();
	bool parsed = url &&
		      curl_url_set(url, CURLUPART_URL, text,
			      CURLU_GUESS_SCHEME | CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK &&
		      curl_url_get(url, CURLUPART_HOST, ret_host, 0) == CURLUE_OK;

	if (parsed && curl_url_get(url, CURLUPART_PORT, ret_port, 0) != CURLUE_OK)
		*ret_port = NULL;
	curl_url_cleanup(url);
	return parsed;
}

static void add_proxy(struct s3_way *way, const char *text)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *all = NULL;
	char *host = NULL;
	char *port = NULL;
	bool tls = strncasecmp(text, "https:", 6) == 0;
	size_t n;

	if (!parse_proxy(text, &host, &port))
		return;
	n = strlen(host);
	if (host[0] == '[' && n > 2) { /* libcurl gives an IPv6 address with its brackets */
		memmove(host, host + 1, n - 2);
		host[n - 2] = '\0';
	}
	if (getaddrinfo(host, port ? port : (tls ? "443" : "1080"), &hints, &all) != 0)
		all = NULL; /* a request that needs it fails */
	for (const struct addrinfo *a = all; a && way->n_proxies < S3_PROXIES_MAX; a = a->ai_next)
		if (local_address_is(a->ai_addr))
			address_text(a->ai_addr, a->ai_addrlen, way->proxies[way->n_proxies++]);
	if (all)
		freeaddrinfo(all);
	curl_free(host);
	curl_free(port);
}

/* The operator named them, and they know where they may connect to. */
static void find_proxies(struct s3_way *way)
{
	static const char *const names[] = { "http_proxy", "https_proxy", "HTTPS_PROXY",
		"all_proxy", "ALL_PROXY" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = getenv(names[i]); // NOLINT(concurrency-mt-unsafe): read only

		if (value && *value)
			add_proxy(way, value);
	}
}

static bool is_proxy(const struct s3_way *way, const char *address)
{
	for (unsigned int i = 0; i < way->n_proxies; i++)
		if (strcmp(way->proxies[i], address) == 0)
			return true;
	return false;
}

/* curl calls this for each connection, with the address that it is about to connect to: a name that was checked when the source
 * was named may lead elsewhere now. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct s3_guard *guard = arg;
	char text[S3_ADDRESS_MAX];

	(void)purpose; /* there is one */
	address_text(&address->addr, address->addrlen, text);
	if (local_address_is(&address->addr) && !is_proxy(guard->way, text)) {
		memcpy(guard->refused, text, sizeof(text));
		return CURL_SOCKET_BAD;
	}
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* ---- the way --------------------------------------------------------------------------------- */

int s3_way_find(const struct ufs_config *config, const struct s3_endpoint *endpoint,
	struct s3_way *ret_way, struct err *e)
{
	// NOLINTNEXTLINE(concurrency-mt-unsafe): read only
	const char *path = config->ca_file ? config->ca_file : getenv("AWS_CA_BUNDLE");
	const char *name = config->ca_file ? "--ca-file" : "AWS_CA_BUNDLE";
	struct s3_way way = { .no_proxy = s3_endpoint_is_loopback(endpoint),
		.no_local = config->no_local };
	struct stat st;

	if (path && *path) {
		if (stat(path, &st) != 0 || access(path, R_OK) != 0)
			return err_set(e, err_errno(),
				"file of certificate authorities %s (%s): %m; name a file in PEM "
				"form, or a directory created by c_rehash, that can be read",
				path, name);
		way.ca_file = path;
		way.ca_is_dir = S_ISDIR(st.st_mode);
	}
	if (way.no_local)
		find_proxies(&way);
	*ret_way = way;
	return 0;
}

void s3_way_set(const struct s3_way *way, void *easy, struct s3_guard *guard)
{
	/* Options known to this libcurl fail only for want of memory for their strings, which the
	 * request shows. */
	(void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	(void)curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_USERAGENT, "granary");
	(void)curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (way->no_proxy)
		(void)curl_easy_setopt(easy, CURLOPT_PROXY, "");
	*guard = (struct s3_guard){ .way = way };
	if (way->no_local) {
		(void)curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
		(void)curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, guard);
	}
	if (!way->ca_file)
		return;
	/* Those that are named, and no others, may vouch for the server. */
	(void)curl_easy_setopt(easy, CURLOPT_CAINFO, way->ca_is_dir ? NULL : way->ca_file);
	(void)curl_easy_setopt(easy, CURLOPT_CAPATH, way->ca_is_dir ? way->ca_file : NULL);
}
