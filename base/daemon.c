/* Beginning and end of a daemon. See daemon.h. */
#include "base/daemon.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/units.h"
#include "base/watchdog.h"

#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Buffers of up to 1 MiB come and go with every request. */
#define MAP_LEAST (4 * MiB)
#define MAP_LITTLE \
	(272 * (int)KiB) /* more than libcurl allocates for each transfer (ufs/s3_http.c) */
#define KEEP_FREE  (64 * MiB)
#define HEAPS_FEW  2
#define KEEP_LEAST (1 * MiB)
#define KEEP_SHARE 32 /* part of --memory that a heap keeps */
#define HEAPS_MAX  4  /* by default eight per processor: each thread would keep as much */

/* Given back to the kernel at each free, their pages would be mapped and zeroed anew for the next
 * request: a sixth of the CPU time of a cold read. So a heap keeps what it had, up to KEEP_FREE; and
 * there are few heaps, for that is in addition to what the process accounts for. */
static void keep_memory(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, (int)MAP_LEAST); /* slower without */
	(void)mallopt(M_TRIM_THRESHOLD, (int)KEEP_FREE); /* as above */
	(void)mallopt(M_ARENA_MAX, HEAPS_MAX);           /* more memory without */
}

void daemon_keep_memory(uint64_t memory)
{
	uint64_t keep = max(min(memory / KEEP_SHARE, KEEP_FREE), KEEP_LEAST);

	(void)mallopt(M_TRIM_THRESHOLD, (int)keep); /* more memory without */
	if (memory >= HEAPS_MAX * KEEP_FREE)
		return;
	(void)mallopt(M_ARENA_MAX, HEAPS_FEW); /* as above */
	daemon_map_large();
}

void daemon_map_large(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, MAP_LITTLE); /* more memory without: holes of its size */
}

/* Unmaps the pages of an object's code and constants: the next use maps the page cache's again. Segments that can be written,
 * or could until relocation ended, stay. */
static int unmap_code(struct dl_phdr_info *object, size_t size, void *page_bytes)
{
	uintptr_t page = *(const uintptr_t *)page_bytes;

	(void)size;
	for (unsigned int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		uintptr_t start = align_down(object->dlpi_addr + segment->p_vaddr, page);
		uintptr_t end =
			align_down(object->dlpi_addr + segment->p_vaddr + segment->p_filesz, page);

		if (segment->p_type == PT_LOAD && !(segment->p_flags & PF_W) && end > start)
			/* More memory without. */
			(void)madvise((void *)start, end - start, MADV_DONTNEED);
	}
	return 0;
}

void daemon_give_back(void)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	(void)malloc_trim(0);                     /* more memory without */
	(void)dl_iterate_phdr(unmap_code, &page); /* what unmap_code() returned last */
}

/* Memory of a daemon holds keys, tokens, and bytes that its users may read and others may not. */
static void leave_no_core(void)
{
	(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 }); /* everybody may lower it */
}

int daemon_begin(const char *name, const char *level, const char *file, struct err *e)
{
	enum log_level least;
	int fd = STDERR_FILENO;
	int r = log_level_parse(level, &least);

	if (r < 0)
		return err_set(e, r,
			"'%s' is not a log level: it is one of error, warn, info, debug", level);
	if (file)
		fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, err_errno(),
			"the log file %s cannot be opened: %m; give one in a writable directory",
			file);
	keep_memory();
	leave_no_core();
	log_init(name, fd, least, LOG_TEXT);
	if (file)
		log_bound_file(file);
	(void)signal(SIGPIPE, SIG_IGN); /* a valid signal: cannot fail */
	return 0;
}

void daemon_signals_block(sigset_t *ret_signals)
{
	sigemptyset(ret_signals);
	sigaddset(ret_signals, SIGTERM);
	sigaddset(ret_signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, ret_signals, NULL);
}

int daemon_signals_open(int *ret_fd)
{
	sigset_t signals;
	int fd;

	daemon_signals_block(&signals);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (fd < 0)
		return err_errno();
	*ret_fd = fd;
	return 0;
}

void daemon_hangup_block(const struct config *config, sigset_t *signals)
{
	if (!config_file(config))
		return;
	sigaddset(signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, signals, NULL);
}

void daemon_log_level(const char *level)
{
	enum log_level least;

	if (log_level_parse(level, &least) == 0)
		log_set_level(least);
}

static void (*hangup)(void); /* main()'s, like the rest */

void daemon_on_hangup(void (*fn)(void))
{
	hangup = fn;
}

bool daemon_reload(struct config *config, void (*changed)(void *arg), void *arg)
{
	struct err e = ERR_INIT;
	int r = config_reload(config, &e);

	if (hangup)
		hangup();
	if (r < 0) {
		log_error("configuration not reloaded", "why=\"%s\" next=\"nothing changes\"",
			e.text);
		return false;
	}
	log_info("configuration reloaded", "file=\"%s\" changed=%d", config_file(config), r);
	if (r > 0 && changed)
		changed(arg);
	return true;
}

void daemon_signals_wait(
	const sigset_t *signals, struct config *config, void (*changed)(void *arg), void *arg)
{
	const struct timespec second = { .tv_sec = 1 };
	bool watched = notify_watchdog_ns() > 0;
	int signal;

	for (;;) {
		if (watched)
			watchdog_beat(WATCHDOG_WAIT_NS);
		signal = sigtimedwait(signals, NULL, watched ? &second : NULL);
		if (signal < 0) /* EAGAIN: it is time for a beat; EINTR */
			continue;
		if (signal != SIGHUP || !config)
			break;
		(void)daemon_reload(config, changed, arg); /* has said what became of it */
	}
	log_info("ending", "signal=%d", signal);
}
