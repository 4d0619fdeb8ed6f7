/* Requests to a port. See http_ask.h. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/unit/admin/http_ask.h"
#include "base/cleanup.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

void http_ask(uint16_t port, const char *ask, char *out, size_t size)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM, 0);
	size_t got = 0;
	ssize_t n;

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(send(fd, ask, strlen(ask), MSG_NOSIGNAL), strlen(ask));
	while (got + 1 < size && (n = recv(fd, out + got, size - got - 1, 0)) > 0)
		got += (size_t)n;
	out[got] = '\0';
}
