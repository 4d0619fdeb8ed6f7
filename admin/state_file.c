/* State in a file. See state_file.h. */
#include "admin/state_file.h"
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"

#include <string.h>

int state_file_read(const char *path, int format, json_t **ret_json)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(STATE_FILE_BYTES);
	json_t *json = NULL;
	int r = file_read_all(path, &text);

	if (r == 0)
		r = admin_json_parse(buf_str(&text), text.len, 0, &json, NULL);
	if (r < 0)
		return r;
	if (format && json_integer_value(json_object_get(json, "format")) != format) {
		json_decref(json);
		return -EPROTONOSUPPORT;
	}
	*ret_json = json;
	return 0;
}

int state_file_write(const char *path, const char *text, uint64_t *saved)
{
	uint64_t hash;
	int r;

	if (!text)
		return -ENOMEM;
	if (strlen(text) > STATE_FILE_BYTES)
		return -EFBIG;
	hash = hash_xxh3(text, strlen(text), 0);
	if (hash == *saved)
		return 0;
	r = file_write_atomic(path, text, strlen(text), 0600);
	if (r < 0)
		return r;
	*saved = hash;
	return 1;
}
