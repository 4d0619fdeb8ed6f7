/* See alloc_fail.h. */
#include "tests/alloc/alloc_fail.h"
#include "base/check.h"
#include "base/err.h"

#include <expat.h>
#include <fcntl.h>
#include <protobuf-c/protobuf-c.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct alloc_control own;
static struct alloc_control *control = &own;
static _Thread_local bool spared;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
int __real_vasprintf(char **ret, const char *fmt, va_list ap);
char *__real_realpath(const char *path, char *out);
ProtobufCMessage *__real_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
	ProtobufCAllocator *allocator, size_t len, const uint8_t *data);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_asprintf(char **ret, const char *fmt, ...) __printf(2, 3);
int __wrap_vasprintf(char **ret, const char *fmt, va_list ap) __printf(2, 0);
/* What the two are in fortified programs. */
int __wrap___asprintf_chk(char **ret, int flag, const char *fmt, ...) __printf(3, 4);
int __wrap___vasprintf_chk(char **ret, int flag, const char *fmt, va_list ap) __printf(3, 0);
char *__wrap_realpath(const char *path, char *out);
XML_Parser __wrap_XML_ParserCreate(const XML_Char *encoding);
ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
	ProtobufCAllocator *allocator, size_t len, const uint8_t *data);

extern const char __executable_start[]; /* the linker's */

/* Counts one; true when it is to fail. */
static bool fails(const void *caller)
{
	uint64_t n;

	if (spared)
		return false;
	n = atomic_fetch_add(&control->count, 1) + 1;
	if (n != atomic_load(&control->fail_at))
		return false;
	atomic_store(&control->where, (uint64_t)((const char *)caller - __executable_start));
	atomic_fetch_add(&control->failed, 1);
	errno = ENOMEM;
	return true;
}

#define FAILS() fails(__builtin_return_address(0))

void *__wrap_malloc(size_t n)
{
	return FAILS() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return FAILS() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return FAILS() ? NULL : __real_realloc(p, n);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return FAILS() ? NULL : __real_reallocarray(p, n, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
	return FAILS() ? NULL : __real_aligned_alloc(alignment, n);
}

char *__wrap_strdup(const char *s)
{
	return FAILS() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
	return FAILS() ? NULL : __real_strndup(s, n);
}

static int print_or_fail(const void *caller, char **ret, const char *fmt, va_list ap)
{
	if (fails(caller)) {
		*ret = (char *)control; /* undefined, says the manual: nobody may free it */
		return -1;
	}
	return __real_vasprintf(ret, fmt, ap);
}

int __wrap_vasprintf(char **ret, const char *fmt, va_list ap)
{
	return print_or_fail(__builtin_return_address(0), ret, fmt, ap);
}

int __wrap___vasprintf_chk(char **ret, int flag, const char *fmt, va_list ap)
{
	(void)flag;
	return print_or_fail(__builtin_return_address(0), ret, fmt, ap);
}

int __wrap_asprintf(char **ret, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = print_or_fail(__builtin_return_address(0), ret, fmt, ap);
	va_end(ap);
	return n;
}

int __wrap___asprintf_chk(char **ret, int flag, const char *fmt, ...)
{
	va_list ap;
	int n;

	(void)flag;
	va_start(ap, fmt);
	n = print_or_fail(__builtin_return_address(0), ret, fmt, ap);
	va_end(ap);
	return n;
}

char *__wrap_realpath(const char *path, char *out)
{
	return !out && FAILS() ? NULL : __real_realpath(path, out);
}

XML_Parser __wrap_XML_ParserCreate(const XML_Char *encoding)
{
	static const XML_Memory_Handling_Suite suite = {
		__wrap_malloc,
		__wrap_realloc,
		free,
	};

	return XML_ParserCreate_MM(encoding, &suite, NULL);
}

static void *message_alloc(void *arg, size_t n)
{
	(void)arg;
	return __wrap_malloc(n);
}

static void message_free(void *arg, void *p)
{
	(void)arg;
	free(p);
}

ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
	ProtobufCAllocator *allocator, size_t len, const uint8_t *data)
{
	ProtobufCAllocator failing = { .alloc = message_alloc, .free = message_free };

	return __real_protobuf_c_message_unpack(
		descriptor, allocator ? allocator : &failing, len, data);
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("GRANARY_ALLOC_CONTROL");
	const char *program = getenv("GRANARY_ALLOC_PROGRAM");
	bool mine = path && (!program || strcmp(program, program_invocation_short_name) == 0);
	int fd = mine ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd >= 0) {
		control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		ensure(control != MAP_FAILED);
		(void)close(fd);
	}
}

void alloc_fail(uint64_t n)
{
	atomic_store(&control->fail_at, n);
	atomic_store(&control->failed, 0);
	atomic_store(&control->count, 0);
}

uint64_t alloc_fail_suspend(void)
{
	return atomic_exchange(&control->fail_at, 0);
}

bool alloc_fail_end(void)
{
	atomic_store(&control->fail_at, 0);
	return atomic_load(&control->failed) > 0;
}

void alloc_fail_spare(void)
{
	spared = true;
}

uint64_t alloc_fail_count(void)
{
	return atomic_load(&control->count);
}

uint64_t alloc_sweep(int (*fn)(void *arg), void *arg, uint64_t stride)
{
	uint64_t n_failed = 0;

	for (uint64_t n = 1;; n += stride) {
		bool failed;
		int r;

		alloc_fail(n);
		r = fn(arg);
		failed = alloc_fail_end();
		if (!failed) {
			ensure(r == 0);
			break;
		}
		n_failed++;
		if (r > 0)
			fprintf(stderr, "allocation %llu (at %#llx): %d\n", (unsigned long long)n,
				(unsigned long long)atomic_load(&control->where), r);
		ensure(r <= 0);
	}
	return n_failed;
}
