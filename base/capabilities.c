/* capset(2) and prctl(2). See capabilities.h. */
#include "base/capabilities.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int get(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &header, data) == 0 ? 0 : err_errno();
}

static int set(const struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capset, &header, data) == 0 ? 0 : err_errno();
}

uint64_t capabilities_effective(void)
{
	struct __user_cap_data_struct data[2] = { 0 };

	if (get(data) < 0)
		return 0;
	return (uint64_t)data[1].effective << 32 | data[0].effective;
}

int capabilities_rest(uint64_t mask)
{
	struct __user_cap_data_struct data[2] = { 0 };
	int r = get(data);

	if (r < 0)
		return r;
	for (unsigned int i = 0; i < 2; i++) {
		uint32_t part = (uint32_t)(mask >> (32 * i));

		data[i].permitted &= part;
		data[i].effective &= part;
		data[i].inheritable = 0;
	}
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL)
		return err_errno();
	return set(data);
}

/* Needs CAP_SETPCAP, so it goes first. */
static int keep_bounding(uint64_t mask)
{
	for (int number = 0; number < 64; number++) {
		int there = prctl(PR_CAPBSET_READ, number, 0, 0, 0);

		if (there < 0) /* past the last one that the kernel knows */
			break;
		if (!there || (mask & CAPABILITY(number)))
			continue;
		if (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0)
			return err_errno();
	}
	return 0;
}

int capabilities_keep(uint64_t mask)
{
	int r = capabilities_effective() & CAPABILITY(CAP_SETPCAP) ? keep_bounding(mask) : 0;

	return r == 0 ? capabilities_rest(mask) : r;
}
