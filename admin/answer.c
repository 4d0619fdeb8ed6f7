/* What the HTTP server answers. See server_internal.h. */
#include "admin/server_internal.h"
#include "base/cleanup.h"

#include <string.h>

enum MHD_Result admin_respond(struct MHD_Connection *connection, unsigned int status,
	const char *type, const void *data, size_t len, const char *allow)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		len, (void *)(uintptr_t)data, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result r;

	if (!response)
		return MHD_NO;
	admin_page_headers(response, false);
	/* Without memory for a header the answer is still the answer. */
	(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (status == MHD_HTTP_UNAUTHORIZED)
		(void)MHD_add_response_header(
			response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"granary\"");
	if (allow)
		(void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
	r = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return r;
}

enum MHD_Result admin_respond_json(struct MHD_Connection *connection, unsigned int status,
	const json_t *json, const char *allow)
{
	_cleanup_free_ char *text = admin_json_text(json, JSON_COMPACT | JSON_ENCODE_ANY);

	if (json && !text)
		return MHD_NO;
	return admin_respond(connection, status, "application/json", text ? text : "{}",
		text ? strlen(text) : 2, allow);
}

json_t *admin_error_json(int code, const char *text)
{
	json_t *json = json_pack("{s:{s:s,s:s}}", "error", "code", err_name(code), "text", text);

	if (!json) /* a text that is not UTF-8 */
		json = json_pack(
			"{s:{s:s,s:s}}", "error", "code", err_name(code), "text", err_str(code));
	return json;
}

enum MHD_Result admin_respond_error(struct MHD_Connection *connection, unsigned int status,
	int code, const char *text, const char *allow)
{
	json_t *json = admin_error_json(code, text);
	enum MHD_Result r;

	r = admin_respond_json(connection, status, json, allow);
	json_decref(json);
	return r;
}

unsigned int admin_http_status(int code)
{
	switch (code) {
	case -ENOENT:
		return MHD_HTTP_NOT_FOUND;
	case -EINVAL:
		return MHD_HTTP_BAD_REQUEST;
	case -EBUSY:
	case -EEXIST:
		return MHD_HTTP_CONFLICT;
	case -EACCES:
	case -EPERM:
		return MHD_HTTP_FORBIDDEN;
	case -EAGAIN:
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	default:
		return MHD_HTTP_INTERNAL_SERVER_ERROR;
	}
}
