/* Certificates and proxy. See s3_way.h. */
#include "ufs/s3_way.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int s3_way_find(const struct ufs_config *config, const struct s3_endpoint *endpoint,
	struct s3_way *ret_way, struct err *e)
{
	// NOLINTNEXTLINE(concurrency-mt-unsafe): read only
	const char *path = config->ca_file ? config->ca_file : getenv("AWS_CA_BUNDLE");
	const char *name = config->ca_file ? "--ca-file" : "AWS_CA_BUNDLE";
	struct s3_way way = { .no_proxy = s3_endpoint_is_loopback(endpoint) };
	struct stat st;

	if (path && *path) {
		if (stat(path, &st) != 0 || access(path, R_OK) != 0)
			return err_set(e, err_errno(),
				"file of certificate authorities %s (%s): %m; name a file in PEM "
				"form, or a directory made by c_rehash, that can be read",
				path, name);
		way.ca_file = path;
		way.ca_is_dir = S_ISDIR(st.st_mode);
	}
	*ret_way = way;
	return 0;
}

void s3_way_set(const struct s3_way *way, void *easy)
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
	if (!way->ca_file)
		return;
	/* Those who are named, and nobody else, may vouch for the server. */
	(void)curl_easy_setopt(easy, CURLOPT_CAINFO, way->ca_is_dir ? NULL : way->ca_file);
	(void)curl_easy_setopt(easy, CURLOPT_CAPATH, way->ca_is_dir ? way->ca_file : NULL);
}
