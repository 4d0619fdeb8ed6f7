/* Beginning and end of a daemon. See daemon.h. */
#include "base/daemon.h"
#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

int daemon_begin(const char *name, const char *level, const char *file, struct err *e)
{
	enum log_level least;
	int fd = STDERR_FILENO;
	int r = log_level_parse(level, &least);

	if (r < 0)
		return err_set(e, r, "'%s' is not a log level", level);
	if (file)
		fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, err_errno(), "the log file %s cannot be opened: %m", file);
	log_init(name, fd, least, LOG_TEXT);
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

void daemon_signals_wait(const sigset_t *signals)
{
	int signal = 0;

	while (sigwait(signals, &signal) != 0)
		;
	log_info("ending", "signal=%d", signal);
}
