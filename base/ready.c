/* The line a starting daemon owes its starter. See ready.h. */
#include "base/ready.h"
#include "base/daemon.h"
#include "base/log.h"
#include "base/notify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void tell(int fd, const char *line, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, line, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break; /* the starter is gone: nothing to report to */
		line += n;
		len -= (size_t)n;
	}
	(void)close(fd); /* nothing to do about a failing close */
}

void ready_ok(int fd, const char *json)
{
	char line[4096];
	int n;

	if (fd >= 0) {
		n = snprintf(line, sizeof(line), "READY %s\n", json);
		if (n < 0 || (size_t)n >= sizeof(line))
			n = snprintf(line, sizeof(line), "READY {}\n");
		tell(fd, line, (size_t)n);
	}
	if (notify_send("READY=1", NULL, 0) < 0)
		log_debug("service manager does not listen", "next=\"its timeout decides\"");
	daemon_give_back(); /* a start uses much code and memory once */
}

int ready_error(int fd, const char *program, enum exit_status status, const struct err *why)
{
	struct err advised = *why;
	char line[ERR_TEXT_MAX + 32];
	int n;

	(void)err_advise(&advised); /* returns the code */
	if (fd < 0) {
		(void)fprintf(stderr, "%s: %s\n", program, advised.text);
		return (int)status;
	}
	n = snprintf(line, sizeof(line), "ERROR %d %s\n", (int)status, advised.text);
	tell(fd, line, (size_t)n);
	return (int)status;
}

int ready_parse(const char *line, const char **ret_json, int *ret_status, struct err *e)
{
	long status;
	char *end;

	if (strncmp(line, "READY ", 6) == 0) {
		*ret_json = line + 6;
		*ret_status = EXIT_OK;
		return 0;
	}
	if (strncmp(line, "ERROR ", 6) != 0)
		return -EPROTO;
	status = strtol(line + 6, &end, 10);
	if (end == line + 6 || *end != ' ' || status < EXIT_RUNTIME || status > EXIT_UNCHANGED)
		return -EPROTO;
	*ret_json = NULL;
	*ret_status = (int)status;
	(void)err_set(e, -EIO, "%s", end + 1); /* the status carries the meaning */
	return 0;
}
