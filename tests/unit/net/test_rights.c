/* The table of rights: who is which principal, and that docs/security.md shows it as it is. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/unit/net/principals.h"

#define DOCUMENT    "docs/security.md"
#define TABLE_BEGIN "<!-- rights: from net/rights.c -->\n"
#define ADMIN_BEGIN "<!-- rights of administrators: from net/rights.c -->\n"
#define TABLE_END   "<!-- end of rights -->\n"

static void test_principals(void **state)
{
	struct peer_identity peer;

	(void)state;
	for (enum principal p = 0; p < PRINCIPALS; p++) {
		peer = peer_of(p);
		assert_int_equal(principal_of(&peer), p);
	}
	peer = peer_of(PRINCIPAL_OTHER);
	peer.uid = 0;
	assert_int_equal(principal_of(&peer), PRINCIPAL_LOCAL);
	peer.uid = (uint32_t)-1; /* not known */
	assert_int_equal(principal_of(&peer), PRINCIPAL_OTHER);
	for (int admin = 0; admin < 2; admin++) {
		peer = peer_of(admin ? PRINCIPAL_ADMIN : PRINCIPAL_TOKEN);
		peer.claims.expires_s = clock_wall_ns() / CLOCK_SECOND; /* now */
		assert_int_equal(principal_of(&peer), PRINCIPAL_NONE);
	}
	assert_int_equal(principal_of(&(struct peer_identity){ 0 }), PRINCIPAL_NONE);
}

/* What is not in the table, and what is the other daemon's. */
static void test_not_in_the_table(void **state)
{
	static const bool may[PRINCIPALS] = {
		[PRINCIPAL_CLUSTER] = true, [PRINCIPAL_LOCAL] = true
	};

	(void)state;
	for (enum principal p = 0; p < PRINCIPALS; p++) {
		enum right right = may[p] ? RIGHT_ALL : RIGHT_NONE;

		assert_int_equal(rights_of(p, RIGHTS_MASTER, 0), right);
		assert_int_equal(rights_of(p, RIGHTS_MASTER, UINT32_MAX), right);
		assert_int_equal(rights_of(p, RIGHTS_MASTER, FRAME_FETCH), right);
		assert_int_equal(rights_of(p, RIGHTS_WORKER, FRAME_TABLE), right);
	}
}

/* All operations of the wire up to the last, once, but those that net/ itself answers. */
static void test_every_operation(void **state)
{
	uint32_t n;
	const struct rights_row *rows = rights_table(&n);

	(void)state;
	for (uint32_t op = 0; op <= UINT8_MAX; op++) {
		bool of_net = op == FRAME_HELLO || op == FRAME_PING || op == FRAME_CANCEL ||
			      op == FRAME_LANE;
		bool unused = op == 0 || (op > FRAME_ADMIN && op < FRAME_FETCH) || op == 25 ||
			      op > FRAME_LANE;
		uint32_t found = 0;

		for (uint32_t i = 0; i < n; i++)
			found += rows[i].daemon != RIGHTS_ADMIN && rows[i].op == op;
		assert_int_equal(found, !of_net && !unused);
	}
}

/* Of the wire, and of the admin interface. */
static const char *const columns[2][PRINCIPALS] = {
	{ [PRINCIPAL_NONE] = "nobody, or an expired token",
		[PRINCIPAL_CLUSTER] = "cluster key",
		[PRINCIPAL_LOCAL] = "unix socket: root, the daemon's user",
		[PRINCIPAL_OTHER] = "unix socket: other users",
		[PRINCIPAL_TOKEN] = "token of a dataset",
		[PRINCIPAL_ADMIN] = "administrator's token" },
	{ [PRINCIPAL_NONE] = "any caller on `admin-listen`",
		[PRINCIPAL_CLUSTER] = "cluster key",
		[PRINCIPAL_LOCAL] = "local",
		[PRINCIPAL_OTHER] = "group of the admin socket",
		[PRINCIPAL_TOKEN] = "token of a dataset",
		[PRINCIPAL_ADMIN] = "administrator's token" },
};

static const char *cell(enum right right)
{
	static const char *const cells[] = {
		[RIGHT_NONE] = "no",
		[RIGHT_OWN] = "its own",
		[RIGHT_WHOLE] = "its own, whole",
		[RIGHT_CONFIGURED] = "as configured",
		[RIGHT_ALL] = "yes",
	};

	return cells[right];
}

static char *draw(bool admin)
{
	uint32_t n;
	const struct rights_row *rows = rights_table(&n);
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	(void)fputs(admin ? "| operation |" : "| asked of | for |", out);
	for (enum principal p = PRINCIPAL_CLUSTER; p < PRINCIPALS; p++)
		(void)fprintf(out, " %s |", columns[admin][p]);
	(void)fprintf(out, " %s |\n|---|---|---|---|---|---|---|%s\n", columns[admin][0],
		admin ? "" : "---|");
	for (uint32_t i = 0; i < n; i++) {
		if ((rows[i].daemon == RIGHTS_ADMIN) != admin)
			continue;
		if (!admin)
			(void)fputs(
				rows[i].daemon == RIGHTS_MASTER ? "| master " : "| worker ", out);
		(void)fprintf(out, "| %s |", rows[i].what);
		for (enum principal p = PRINCIPAL_CLUSTER; p < PRINCIPALS; p++)
			(void)fprintf(out, " %s |", cell(rows[i].of[p]));
		(void)fprintf(out, " %s |\n", cell(rows[i].of[PRINCIPAL_NONE]));
	}
	assert_int_equal(fclose(out), 0);
	return text;
}

static void is_documented(const char *marker, bool admin)
{
	char *document = calloc(1, 1u << 20);
	FILE *in = fopen(DOCUMENT, "re");
	char *table = draw(admin);
	char *begin;
	char *end;

	assert_non_null(document);
	assert_non_null(in);
	assert_true(fread(document, 1, (1u << 20) - 1, in) > 0);
	(void)fclose(in);
	begin = strstr(document, marker);
	assert_non_null(begin);
	begin += strlen(marker);
	end = strstr(begin, TABLE_END);
	assert_non_null(end);
	*end = '\0';
	if (strcmp(begin, table) != 0) {
		(void)fputs(table, stderr);
		fail_msg("the table in %s is not this one, which is obeyed", DOCUMENT);
	}
	free(document);
	free(table);
}

static void test_documented(void **state)
{
	(void)state;
	is_documented(TABLE_BEGIN, false);
	is_documented(ADMIN_BEGIN, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_principals),
		cmocka_unit_test(test_not_in_the_table),
		cmocka_unit_test(test_every_operation),
		cmocka_unit_test(test_documented),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
