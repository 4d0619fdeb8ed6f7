#include "tests/unit/cacheworker/damage.h"

struct flips {
	unsigned int n;
	off_t offset;
};

static struct flips flips;

static int flip(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	uint8_t byte;
	int fd;

	(void)ftw;
	if (type != FTW_F || st->st_size <= flips.offset || flips.n == 0 ||
		(!strstr(path, "/chk/") && !strstr(path, "/ext/")))
		return 0;
	assert_int_equal(chmod(path, 0600), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, flips.offset), 1);
	byte ^= 0x40;
	assert_int_equal(pwrite(fd, &byte, 1, flips.offset), 1);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	flips.n--;
	return 0;
}

unsigned int damage_files(const char *tier, unsigned int n, off_t offset)
{
	flips = (struct flips){ .n = n, .offset = offset };
	assert_int_equal(nftw(tier, flip, 16, FTW_PHYS), 0);
	return n - flips.n;
}

void damage(struct world *w, unsigned int n, off_t offset)
{
	assert_int_equal(damage_files(w->tier, n, offset), n);
}

void damage_another_boot(struct world *w)
{
	struct identity identity;

	assert_int_equal(identity_load(w->tier, &identity, NULL), 0);
	strcpy(identity.boot_id, "11111111-2222-3333-4444-555555555555");
	assert_int_equal(identity_store(w->tier, &identity), 0);
}
