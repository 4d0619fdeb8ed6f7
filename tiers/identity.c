/* granary.tier. See identity_internal.h. */
#include "tiers/identity_internal.h"
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/file.h"
#include "base/hash.h"
#include "tiers/disk.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE     "granary tier\n"
#define IDENTITY_BYTES 4096u

static void uuid_text(const uint8_t raw[16], char out[IDENTITY_UUID + 1])
{
	char hex[33];

	hash_hex(raw, 16, hex);
	(void)snprintf(out, IDENTITY_UUID + 1, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
		hex + 16, hex + 20);
}

void identity_init(struct identity *identity)
{
	uint8_t raw[16];

	hash_random(raw, sizeof(raw));
	raw[6] = (uint8_t)((raw[6] & 0x0f) | 0x40); /* version 4 (RFC 4122) */
	raw[8] = (uint8_t)((raw[8] & 0x3f) | 0x80);
	*identity = (struct identity){ .format = IDENTITY_FORMAT };
	uuid_text(raw, identity->uuid);
	identity->boot_id[0] = '-'; /* no boot has this id */
}

uint64_t identity_first_file(const struct identity *identity)
{
	/* Two tiers, and a tier and its copy that was adopted, begin elsewhere. */
	uint32_t key = (uint32_t)hash_xxh3(identity->uuid, IDENTITY_UUID, 0);

	return (uint64_t)(key ^ (uint32_t)identity->starts) << 32;
}

int identity_boot_id(char out[IDENTITY_UUID + 1])
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(IDENTITY_BYTES);
	int r = file_read_all("/proc/sys/kernel/random/boot_id", &b);

	if (r < 0)
		return r;
	if (b.len < IDENTITY_UUID)
		return -ENODATA;
	memcpy(out, b.data, IDENTITY_UUID);
	out[IDENTITY_UUID] = '\0';
	return 0;
}

/* The value of a line `name`, copied; false when there is none or it is too long. */
static bool find_value(const char *text, const char *name, char *out, size_t size)
{
	size_t name_len = strlen(name);

	for (const char *line = text; *line;) {
		size_t len = strcspn(line, "\n");

		if (len > name_len && strncmp(line, name, name_len) == 0 && line[name_len] == ' ') {
			len -= name_len + 1;
			if (len >= size)
				return false;
			memcpy(out, line + name_len + 1, len);
			out[len] = '\0';
			return true;
		}
		line += len;
		line += *line == '\n';
	}
	return false;
}

static bool find_number(const char *text, const char *name, int base, uint64_t *ret_n)
{
	char value[32];
	char *end;

	if (!find_value(text, name, value, sizeof(value)) || value[0] == '-')
		return false;
	errno = 0;
	*ret_n = strtoull(value, &end, base);
	return errno == 0 && end != value && *end == '\0';
}

static bool check_matches(const char *text)
{
	const char *last = strstr(text, "\ncheck ");
	uint64_t check;

	if (!last || !find_number(last + 1, "check", 16, &check))
		return false;
	return check == hash_xxh3(text, (size_t)(last + 1 - text), 0);
}

/* Lines that tiers made earlier do not have. */
static void parse_optional(const char *text, struct identity *identity)
{
	if (!find_value(text, "device", identity->device, sizeof(identity->device)))
		identity->device[0] = '\0';
	if (!find_number(text, "capacity", 10, &identity->capacity))
		identity->capacity = 0;
	if (!find_number(text, "starts", 10, &identity->starts))
		identity->starts = 0;
}

static bool parse(const char *text, struct identity *identity)
{
	uint64_t boot;

	if (!check_matches(text) ||
		!find_value(text, "uuid", identity->uuid, sizeof(identity->uuid)) ||
		!find_value(text, "boot_id", identity->boot_id, sizeof(identity->boot_id)) ||
		!find_number(text, "filesystem", 16, &identity->filesystem) ||
		!find_number(text, "boot", 10, &boot) || boot > UINT32_MAX)
		return false;
	identity->boot = (uint32_t)boot;
	parse_optional(text, identity);
	return true;
}

int identity_load(const char *dir, struct identity *ret_identity, struct err *e)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(IDENTITY_BYTES);
	struct identity identity = { 0 };
	char path[PATH_MAX];
	uint64_t format;
	int r;

	if (snprintf(path, sizeof(path), "%s/" IDENTITY_NAME, dir) >= (int)sizeof(path))
		return err_set(
			e, -ENAMETOOLONG, "%s: the path is too long; give a shorter one", dir);
	r = disk_read_all(AT_FDCWD, path, &b);
	if (r == -ENOENT)
		return r;
	if (r < 0 && r != -ENOBUFS)
		return err_set(e, r, "%s: cannot be read: %s; check its disk and its owner", path,
			err_str(r));
	if (strncmp(buf_str(&b), FIRST_LINE, strlen(FIRST_LINE)) != 0)
		return err_set(e, -ENOTEMPTY,
			"%s: this file is not Granary's; choose another directory", path);
	if (!find_number(b.data, "format", 10, &format) ||
		!find_number(b.data, "features", 10, &identity.features))
		return err_set(e, -EBADMSG,
			"%s: damaged; move the directory away to start with an empty cache", path);
	if (format > IDENTITY_FORMAT || identity.features != 0)
		return err_set(e, -EPROTONOSUPPORT,
			"%s: the cache has format %" PRIu64 " features %" PRIu64
			", this program supports format %u; use the newer program or another "
			"directory",
			path, format, identity.features, IDENTITY_FORMAT);
	identity.format = (uint32_t)format;
	if (!parse(b.data, &identity))
		return err_set(e, -EBADMSG,
			"%s: damaged; move the directory away to start with an empty cache", path);
	*ret_identity = identity;
	return 0;
}

int identity_store(const char *dir, const struct identity *identity)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(IDENTITY_BYTES);
	char path[PATH_MAX];
	int r;

	if (snprintf(path, sizeof(path), "%s/" IDENTITY_NAME, dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	r = buf_printf(&b, FIRST_LINE "format %u\nfeatures %" PRIu64 "\nuuid %s\n",
		identity->format, identity->features, identity->uuid);
	if (r == 0 && identity->device[0])
		r = buf_printf(&b, "device %s\n", identity->device);
	if (r == 0)
		r = buf_printf(&b,
			"filesystem %016" PRIx64 "\ncapacity %" PRIu64 "\nboot %u\nboot_id %s\n"
			"starts %" PRIu64 "\n",
			identity->filesystem, identity->capacity, identity->boot, identity->boot_id,
			identity->starts);
	if (r == 0)
		r = buf_printf(&b, "check %016" PRIx64 "\n", hash_xxh3(b.data, b.len, 0));
	if (r < 0)
		return r;
	r = disk_write_atomic(path, b.data, b.len, 0600);
	CRASH_POINT("tier.identified");
	return r;
}
