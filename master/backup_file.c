/* Lines and bytes of a backup. See backup_file.h. */
#include "master/backup_file.h"
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/err.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int backup_file_open(struct backup_file *f, const char *path, const char *mode)
{
	int flags = mode[0] == 'w' ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
	_cleanup_close_ int fd = open(path, flags | O_CLOEXEC, 0600);

	*f = (struct backup_file){ 0 };
	if (fd < 0)
		return err_errno();
	f->file = fdopen(fd, mode);
	if (!f->file)
		return err_errno();
	(void)TAKE_FD(fd); /* the stream's */
	f->hash = hash_sha256_new();
	if (f->hash)
		return 0;
	backup_file_release(f);
	return -ENOMEM;
}

void backup_file_release(struct backup_file *f)
{
	uint8_t unused[SHA256_BYTES];

	if (f->file)
		(void)fclose(f->file); /* read only, or given up */
	if (f->hash)
		hash_sha256_final(f->hash, unused);
	*f = (struct backup_file){ 0 };
}

int backup_file_close(struct backup_file *f, bool durable)
{
	int r = 0;

	if (fflush(f->file) != 0 || (durable && fsync(fileno(f->file)) != 0))
		r = err_errno();
	backup_file_release(f);
	return r;
}

int backup_file_put(struct backup_file *f, const void *data, size_t len)
{
	if (len > 0 && fwrite(data, 1, len, f->file) != len)
		return err_errno();
	if (f->hash)
		hash_sha256_update(f->hash, data, len);
	f->bytes += len;
	return 0;
}

int backup_file_put_line(struct backup_file *f, json_t *json)
{
	_cleanup_free_ char *text = json ? admin_json_text(json, JSON_COMPACT) : NULL;
	int r;

	json_decref(json);
	if (!text)
		return -ENOMEM;
	r = backup_file_put(f, text, strlen(text));
	return r == 0 ? backup_file_put(f, "\n", 1) : r;
}

void backup_file_sum(struct backup_file *f, char ret_hex[2 * SHA256_BYTES + 1])
{
	uint8_t sum[SHA256_BYTES];

	hash_sha256_final(f->hash, sum);
	f->hash = NULL;
	hash_hex(sum, sizeof(sum), ret_hex);
}

int backup_file_get(struct backup_file *f, void *data, size_t len)
{
	if (len > 0 && fread(data, 1, len, f->file) != len)
		return ferror(f->file) ? -EIO : -ENODATA;
	hash_sha256_update(f->hash, data, len);
	f->bytes += len;
	return 0;
}

int backup_file_get_line(struct backup_file *f, json_t **ret_json)
{
	char line[BACKUP_LINE_BYTES];
	json_error_t where;
	size_t len;
	int r;

	if (!fgets(line, sizeof(line), f->file))
		return ferror(f->file) ? -EIO : -ENODATA;
	len = strlen(line);
	if (len == 0 || line[len - 1] != '\n')
		return -EBADMSG;
	r = admin_json_parse(line, len - 1, JSON_REJECT_DUPLICATES, ret_json, &where);
	if (r < 0)
		return r;
	if (!json_object_get(*ret_json, "sha256")) /* the last one says what was before it */
		hash_sha256_update(f->hash, line, len);
	f->bytes += len;
	return 0;
}
