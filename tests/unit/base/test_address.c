/* Whose an address is. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/address.h"

static void test_own(void **state)
{
	static const char *const own[] = { "unix:/run/x", "tcp:127.0.0.1:1", "tcp:127.9.8.7:1",
		"tcp:localhost:1", "tcp:[::1]:1", "tcp:::1:1" };
	static const char *const others[] = { "tcp:192.0.2.1:1", "tcp:0.0.0.0:1",
		"tcp:[2001:db8::1]:1", "tcp:2001:db8::1:1", "tcp:name:1", "tcp:", "tcp", "" };

	(void)state;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		assert_true(address_is_own(own[i]));
		assert_true(address_is_here(own[i]));
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		assert_false(address_is_own(others[i]));
		assert_false(address_is_here(others[i]));
	}
}

/* Each that an interface of this machine has, however many these are. */
static void test_of_interfaces(void **state)
{
	struct ifaddrs *all;

	(void)state;
	assert_int_equal(getifaddrs(&all), 0);
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		int family = i->ifa_addr ? i->ifa_addr->sa_family : 0;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		char text[INET6_ADDRSTRLEN];
		char address[INET6_ADDRSTRLEN + 16];

		if (family != AF_INET && family != AF_INET6)
			continue;
		memcpy(&in, i->ifa_addr, sizeof(in));
		if (family == AF_INET6)
			memcpy(&in6, i->ifa_addr, sizeof(in6));
		assert_non_null(inet_ntop(family,
			family == AF_INET ? (const void *)&in.sin_addr : &in6.sin6_addr, text,
			sizeof(text)));
		(void)snprintf(address, sizeof(address), "tcp:%s:7420", text); /* fits */
		assert_true(address_is_here(address));
		if (!(i->ifa_flags & IFF_LOOPBACK))
			assert_false(address_is_own(address));
	}
	freeifaddrs(all);
}

static void test_split(void **state)
{
	static const struct {
		const char *text;
		const char *host;
		uint16_t port;
		enum address_host kind;
	} good[] = { { "10.0.0.1:7420", "10.0.0.1", 7420, ADDRESS_NUMBER },
		{ "[::1]:0", "::1", 0, ADDRESS_NUMBER },
		{ "2001:db8::1:65535", "2001:db8::1", 65535, ADDRESS_NUMBER },
		{ "localhost:1", "localhost", 1, ADDRESS_NUMBER },
		{ "h1.example:1", "h1.example", 1, ADDRESS_NAME } };
	static const char *const bad[] = { "", ":", ":1", "h", "h:", "h:x", "h:1x", "h:65536",
		"h:-1", "h: 1", "h:99999999999999999999" };
	static const char *const hosts[] = { "10.0.0:1", "a b:1", "[]:1", "a..b:1", "[a]:1" };
	struct address_parts parts;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(address_split(good[i].text, &parts), 0);
		assert_string_equal(parts.host, good[i].host);
		assert_int_equal(parts.number, good[i].port);
		assert_int_equal(parts.kind, good[i].kind);
		assert_int_equal(atoi(parts.port), good[i].port); // NOLINT(cert-err34-c): digits
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(address_split(bad[i], &parts), -EINVAL);
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
		assert_int_equal(address_split(hosts[i], &parts), -ENXIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_own),
		cmocka_unit_test(test_of_interfaces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
