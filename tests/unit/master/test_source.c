/*
 * Sources against a real directory as the origin: generations, retention, restarts, a master
 * restored from an old copy, an origin that is away, a store that takes nothing.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "master/service.h"
#include "master/source_internal.h"
#include "net/allowance.h"
#include "proto/granary.pb-c.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/master/source_fixture.h"

#define NOBODY 65534u

static unsigned int trims;

int malloc_trim(size_t pad)
{
	(void)pad;
	trims++;
	return 0;
}

static void test_policy_in_the_answer(void **state)
{
	struct got got = { .wait = { .config = &sf.origin,
				   .refresh = true,
				   .policy = { .to.quota = 7ull << 30, .parts = POLICY_QUOTA },
				   .on_done = sf_on_done },
		.status = 1 };

	(void)state;
	source_open(sf.set, &got.wait);
	assert_int_equal(got.status, 0);
	assert_true(got.policy.quota == 7ull << 30);
	sf_drop(&got);
	got = sf_ask(false, NULL); /* and for a request without settings */
	assert_true(got.policy.quota == 7ull << 30);
	sf_drop(&got);
}

static void test_generations(void **state)
{
	struct got first = sf_ask(true, NULL);
	struct got same;
	struct got next;
	struct got named;
	uint64_t lineage = first.generation.id.lineage;
	struct volume_id volume = first.generation.id.volume;
	unsigned int before = trims;

	(void)state;
	assert_true(first.listed);
	sf_expect_generation(&first, 1, 2);
	same = sf_ask(true, NULL);
	assert_true(same.listed);
	assert_int_equal(trims, before + 1); /* what a listing freed goes back */
	sf_expect_generation(&same, 1, 2);
	same = sf_ask(false, NULL);
	assert_false(same.listed);
	assert_int_equal(trims, before + 1);
	sf_expect_generation(&same, 1, 2);
	fixture_put("c", "cc");
	same = sf_ask(false, NULL);
	sf_expect_generation(&same, 1, 2);
	next = sf_ask(true, NULL);
	assert_int_equal(next.generation.id.lineage, lineage);
	assert_memory_equal(next.generation.id.prev_hash, first.generation.id.hash, SHA256_BYTES);
	sf_expect_generation(&next, 2, 3);
	named = sf_ask_table(&volume, lineage, 1, NULL);
	sf_expect_generation(&named, 1, 2);
	named = sf_ask_table(&volume, 0, 0, NULL);
	sf_expect_generation(&named, 2, 3);
	named = sf_ask_table(&volume, lineage, 9, NULL);
	assert_int_equal(named.status, -ESTALE);
	volume.bytes[0] ^= 1;
	named = sf_ask_table(&volume, 0, 0, NULL);
	assert_int_equal(named.status, -ENXIO);
}

static void test_restart(void **state)
{
	struct got got = sf_ask(true, NULL);
	struct volume_id volume = got.generation.id.volume;
	uint64_t lineage = got.generation.id.lineage;

	(void)state;
	sf_expect_generation(&got, 1, 2);
	fixture_put("c", "cc");
	sf_close();
	assert_int_equal(file_write_atomic(fixture_in("state/tables/orphan"), "x", 1, 0600), 0);
	sf_open();
	assert_int_equal(sf_count_tables(), 1);
	got = sf_ask_table(&volume, lineage, 1, NULL);
	sf_expect_generation(&got, 1, 2);
	got = sf_ask(true, NULL);
	assert_int_equal(got.generation.id.lineage, lineage);
	sf_expect_generation(&got, 2, 3);
}

static void change_mode(const char *name, mode_t mode)
{
	assert_int_equal(chmod(fixture_in("origin/%s", name), mode), 0);
}

/* The newest generation is served, and the answer names `why`. */
static void expect_fallback(uint64_t generation, uint64_t files, const char *why)
{
	struct got got = sf_ask(true, NULL);

	assert_false(got.listed);
	if (!strstr(got.notice, why))
		fail_msg("%s", got.notice);
	sf_expect_generation(&got, generation, files);
}

/* Objects do not leave a source because a directory cannot be read for a while. */
static void test_denied_later(void **state)
{
	char command[128];
	struct got got;

	(void)state;
	(void)snprintf(command, sizeof(command), "chown -R %u %s", NOBODY, fixture_dir);
	if (getuid() == 0) /* which reads everything */
		assert_int_equal(system(command), 0);
	if (getuid() == 0)
		assert_int_equal(seteuid(NOBODY), 0);
	assert_int_equal(file_mkdirs(fixture_in("origin/empty"), 0755), 0);
	assert_int_equal(file_mkdirs(fixture_in("origin/closed"), 0755), 0);
	fixture_put("closed/c", "c");
	change_mode("closed", 0);
	got = sf_ask(true, NULL);
	assert_non_null(strstr(got.notice, "cannot read 1 files or directories"));
	sf_expect_generation(&got, 1, 2);
	change_mode("empty", 0); /* nothing of it is missing, nor of what was closed before */
	got = sf_ask(true, NULL);
	assert_true(got.listed);
	assert_non_null(strstr(got.notice, "cannot read 2 files or directories"));
	sf_expect_generation(&got, 2, 2); /* of its marker */
	fixture_put("c", "cc");
	change_mode("sub", 0);
	expect_fallback(2, 2, "/origin/sub/: permission denied to user");
	change_mode("sub", 0600); /* names, but no attributes */
	expect_fallback(2, 2, "/origin/sub/b: permission denied to user");
	change_mode("sub", 0755);
	got = sf_ask(true, NULL);
	sf_expect_generation(&got, 3, 3);
	if (getuid() == 0)
		assert_int_equal(seteuid(0), 0);
	change_mode("closed", 0700); /* to be removed */
	change_mode("empty", 0700);
}

/* One more generation, with one more file. */
static struct got next_generation(void)
{
	static unsigned int number;
	struct got got;
	char name[16];

	(void)snprintf(name, sizeof(name), "n%u", number++);
	fixture_put(name, name);
	got = sf_ask(true, NULL);
	if (got.status < 0)
		fail_msg("%s", got.e.text);
	sf_drop(&got);
	return got;
}

static int hold(const struct got *got, uint8_t mount, bool end)
{
	struct source_hold h = { .volume = got->generation.id.volume,
		.lineage = got->generation.id.lineage,
		.generation = got->generation.id.generation,
		.mount = { mount },
		.end = end };
	struct err e = ERR_INIT;

	return source_set_hold(sf.set, &h, &e);
}

/* The generations that the retention settings retain, as bits; `ret_n`: how many, those unknown too. */
static uint64_t retained(size_t *ret_n)
{
	uint64_t next = 1;
	size_t len = 0;
	uint8_t *packed = source_set_retention(sf.set, 0, &next, &len);
	Granary__Retention *retention = granary__retention__unpack(NULL, len, packed);
	uint64_t bits = 0;

	assert_non_null(retention);
	assert_int_equal(next, 0);
	assert_int_equal(retention->n_sources, 1);
	*ret_n = retention->sources[0]->n_retained;
	for (size_t i = 0; i < *ret_n; i++) {
		const Granary__Retained *r = retention->sources[0]->retained[i];

		if (r->has_hash) {
			bits |= 1ull << r->generation;
			assert_true(r->has_end && r->end > 0);
		}
	}
	granary__retention__free_unpacked(retention, NULL);
	free(packed);
	return bits;
}

static void expect_retained(uint64_t bits, size_t unknown)
{
	size_t n;

	assert_int_equal(retained(&n), bits);
	assert_int_equal(n, (size_t)__builtin_popcountll(bits) + unknown);
}

/* The last two, and what mounts show, at most eight. */
static void test_retention(void **state)
{
	struct got made[13];
	struct got got;
	json_t *json;

	(void)state;
	for (unsigned int i = 1; i <= 4; i++)
		made[i] = next_generation();
	assert_int_equal(sf_count_tables(), 2);
	expect_retained(1 << 4 | 1 << 3, 0);
	assert_int_equal(hold(&made[3], 1, false), 0);
	assert_int_equal(hold(&made[4], 2, false), 0);
	assert_int_equal(hold(&made[1], 3, false), -ESTALE); /* its table is gone */
	for (unsigned int i = 5; i <= 12; i++) {
		made[i] = next_generation();
		assert_int_equal(hold(&made[i], (uint8_t)i, false), 0);
	}
	/* 3 and 4 are mounted, but there are eight newer ones. */
	assert_int_equal(sf_count_tables(), GENERATIONS_KEPT);
	expect_retained(0xff << 5, 0);
	json = source_set_json(sf.set, false);
	assert_non_null(
		strstr(json_string_value(json_object_get(json_array_get(json, 0), "notice")),
			"generation 4"));
	json_decref(json);
	assert_int_equal(hold(&made[4], 2, false), -ESTALE);
	got = sf_ask_table(&made[4].generation.id.volume, 0, 4, NULL);
	assert_int_equal(got.status, -ESTALE);
	got = sf_ask_table(&made[4].generation.id.volume, 0, 5, NULL);
	sf_expect_generation(&got, 5, 7);
	for (unsigned int i = 5; i <= 12; i++)
		assert_int_equal(hold(&made[i], (uint8_t)i, i != 7), 0);
	expect_retained(1 << 12 | 1 << 11 | 1 << 7, 0);
	(void)next_generation();
	assert_int_equal(sf_count_tables(), 3);
	expect_retained(1 << 13 | 1 << 12 | 1 << 7, 0);
}

/* Many generations soon after a start: the one that a mount shows stays, whoever else might come. */
static void test_held_in_grace(void **state)
{
	struct got first;

	(void)state;
	sf_close();
	sf.grace_ns = 3600 * CLOCK_SECOND;
	sf_open();
	first = next_generation();
	assert_int_equal(hold(&first, 1, false), 0);
	for (unsigned int i = 0; i < 2 * GENERATIONS_KEPT; i++)
		(void)next_generation();
	assert_int_equal(hold(&first, 1, false), 0);
	assert_int_equal(sf_count_tables(), GENERATIONS_KEPT);
}

/* A restart forgets the mounts, not that a generation was held; and first gives nothing up. */
static void test_holds_survive_restart(void **state)
{
	struct got made[5];

	(void)state;
	for (unsigned int i = 1; i <= 4; i++) {
		made[i] = next_generation();
		assert_int_equal(hold(&made[i], 1, i > 2), 0); /* 1 and 2 stay mounted */
	}
	expect_retained(1 << 4 | 1 << 3 | 1 << 2 | 1 << 1, 0);
	assert_int_equal(hold(&made[2], 1, true), 0);
	sf_close();
	sf_open();
	expect_retained(1 << 4 | 1 << 3 | 1 << 1, 0);
	sf.grace_ns = 3600 * CLOCK_SECOND;
	sf_close();
	sf_open();
	expect_retained(0, 0);
	(void)next_generation();
	assert_int_equal(sf_count_tables(), 5); /* 2 was not asked for again, but nobody knows */
	sf.grace_ns = 0;
	sf.hold_ns = 0;
	sf_close();
	sf_open();
	expect_retained(1 << 5 | 1 << 4, 0);
	(void)next_generation();
	assert_int_equal(sf_count_tables(), 2);
}

/* What a mount shows and this master never made is named, so that no worker drops it. */
static void test_unknown_generation_held(void **state)
{
	struct got got = next_generation();
	struct got foreign = got;

	(void)state;
	foreign.generation.id.lineage ^= 1;
	assert_int_equal(hold(&foreign, 1, false), -ESTALE);
	expect_retained(1 << 1, 1);
	foreign.generation.id.generation = 77;
	assert_int_equal(hold(&foreign, 2, false), -ESTALE);
	assert_int_equal(hold(&foreign, 3, false), -ESTALE);
	expect_retained(1 << 1, 2);
	assert_int_equal(hold(&foreign, 2, true), 0);
	assert_int_equal(hold(&foreign, 3, true), 0);
	expect_retained(1 << 1, 1);
	foreign.generation.id.volume.bytes[0] ^= 1;
	assert_int_equal(hold(&foreign, 1, false), -ENXIO);
	/* More mounts than are told apart: everything counts as held. */
	for (unsigned int i = 0; i < HOLDS_MAX; i++) {
		struct source_hold h = { .volume = got.generation.id.volume,
			.lineage = got.generation.id.lineage,
			.generation = 1 };
		struct err e = ERR_INIT;

		memcpy(h.mount, &i, sizeof(i));
		assert_int_equal(source_set_hold(sf.set, &h, &e), 0);
	}
	for (unsigned int i = 0; i < 4; i++)
		(void)next_generation();
	assert_int_equal(sf_count_tables(), 5);
}

/* Ten thousand mounts of a source are told apart: what none of them shows any more is given up. */
static void test_many_holds(void **state)
{
	struct got first = next_generation();
	struct source_hold h = { .volume = first.generation.id.volume,
		.lineage = first.generation.id.lineage,
		.generation = first.generation.id.generation };
	struct err e = ERR_INIT;

	(void)state;
	for (unsigned int turn = 0; turn < 2; turn++)
		for (unsigned int i = 0; i < 10000; i++) {
			memcpy(h.mount, &i, sizeof(i));
			assert_int_equal(source_set_hold(sf.set, &h, &e), 0);
		}
	for (unsigned int i = 0; i < 3; i++)
		(void)next_generation();
	assert_int_equal(sf_count_tables(), 3);
	h.end = true;
	for (unsigned int i = 0; i < 10000; i++) {
		memcpy(h.mount, &i, sizeof(i));
		assert_int_equal(source_set_hold(sf.set, &h, &e), 0);
	}
	(void)next_generation();
	assert_int_equal(sf_count_tables(), 2);
}

/* A mount that says it shows ever other generations takes no more room, nor time, than this. */
static void test_shows_too_much(void **state)
{
	struct got first = next_generation();
	struct source_hold h = {
		.volume = first.generation.id.volume, .lineage = 4711, .mount = { 1 }
	};
	struct source_view view;
	struct err e = ERR_INIT;

	(void)state;
	for (h.generation = 1; h.generation <= SHOWN_MAX + 100; h.generation++)
		assert_int_equal(source_set_hold(sf.set, &h, &e), -ESTALE);
	assert_int_equal(source_set_view(sf.set, &h.volume, &view), 0);
	assert_int_equal(view.mounts, SHOWN_MAX + 1); /* and those that are not told apart */
	h.end = true;
	for (h.generation = 1; h.generation <= SHOWN_MAX; h.generation++)
		assert_int_equal(source_set_hold(sf.set, &h, &e), 0);
	assert_int_equal(source_set_view(sf.set, &h.volume, &view), 0);
	assert_int_equal(view.mounts, 1);
}

static struct allowance *some_allowance(uint8_t serial)
{
	const struct peer_identity peer = { .kind = PEER_TOKEN, .claims.serial = { serial } };
	struct allowance *a;

	assert_int_equal(allowance_get(&peer, &a), 0);
	return a;
}

/* A token's leases end with its bound; those of others go on, and nothing counts as held that nobody shows. */
static void test_leases_of_a_token(void **state)
{
	struct got first = next_generation();
	struct source_hold h = { .volume = first.generation.id.volume,
		.lineage = first.generation.id.lineage,
		.generation = first.generation.id.generation,
		.allowance = some_allowance(1) };
	struct source_view view;
	struct err e = ERR_INIT;

	(void)state;
	for (uint32_t i = 0; i < LIMIT_TOKEN_LEASES; i++) {
		memcpy(h.mount, &i, sizeof(i));
		assert_int_equal(source_set_hold(sf.set, &h, &e), 0);
	}
	memset(h.mount, 0xff, sizeof(h.mount));
	assert_int_equal(source_set_hold(sf.set, &h, &e), -EAGAIN);
	assert_non_null(strstr(e.text, "try again in"));
	assert_int_equal(source_set_view(sf.set, &h.volume, &view), 0);
	assert_int_equal(view.mounts, LIMIT_TOKEN_LEASES);
	allowance_unref(h.allowance);
	h.allowance = some_allowance(2);
	assert_int_equal(source_set_hold(sf.set, &h, &e), 0);
	h.end = true;
	assert_int_equal(source_set_hold(sf.set, &h, &e), 0);
	allowance_unref(h.allowance);
	/* One that ends makes room. */
	h.allowance = some_allowance(1);
	memset(h.mount, 0, sizeof(h.mount));
	assert_int_equal(source_set_hold(sf.set, &h, &e), 0);
	h.end = false;
	assert_int_equal(source_set_hold(sf.set, &h, &e), 0);
	allowance_unref(h.allowance);
}

/* Made up generations leave room for those that the cluster's own mounts show. */
static void test_token_shows_too_much(void **state)
{
	struct got first = next_generation();
	struct source_hold h = { .volume = first.generation.id.volume,
		.lineage = 4711,
		.allowance = some_allowance(1) };
	struct source_view view;
	struct err e = ERR_INIT;

	(void)state;
	for (h.generation = 1; h.generation <= SHOWN_MAX; h.generation++)
		assert_int_equal(source_set_hold(sf.set, &h, &e),
			h.generation <= SHOWN_MAX / 2 ? -ESTALE : -EAGAIN);
	assert_int_equal(source_set_view(sf.set, &h.volume, &view), 0);
	assert_int_equal(view.mounts, SHOWN_MAX / 2);
	allowance_unref(h.allowance);
}

static struct got ask_as(struct allowance *a)
{
	struct got got = { .wait = { .config = &sf.origin,
				   .refresh = true,
				   .allowance = a,
				   .on_done = sf_on_done },
		.status = 1 };

	source_open(sf.set, &got.wait);
	return got;
}

/* Past its bound a token is shown what there is. */
static void test_listings_of_a_token(void **state)
{
	struct allowance *a = some_allowance(3);
	struct got got;

	(void)state;
	for (uint32_t i = 0; i < 100; i++) {
		got = ask_as(a);
		assert_int_equal(got.listed, i < LIMIT_TOKEN_LISTINGS);
		assert_int_equal(
			strstr(got.notice, "try again in") != NULL, i >= LIMIT_TOKEN_LISTINGS);
		sf_expect_generation(&got, 1, 2);
	}
	got = ask_as(NULL); /* somebody else */
	assert_true(got.listed);
	sf_drop(&got);
	test_advance(LIMIT_TOKEN_LISTING_S * CLOCK_SECOND);
	got = ask_as(a);
	assert_true(got.listed);
	sf_drop(&got);
	allowance_unref(a);
}

/* Also where there is nothing to be shown: an origin that does not answer is not asked again and again. */
static void test_listings_that_fail(void **state)
{
	struct allowance *a = some_allowance(4);
	uint64_t began = clock_mono_ns();
	struct ufs_config s3 = { 0 };
	uint32_t listed = 0;
	struct got got;
	struct err e = ERR_INIT;

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "x", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "y", 1);
	assert_int_equal(ufs_config_parse("s3://bucket/p", &s3, &e), 0);
	s3.endpoint = strdup("http://127.0.0.1:1");
	for (uint32_t i = 0; i < 3 * LIMIT_TOKEN_LISTINGS; i++) {
		got = (struct got){
			.wait = { .config = &s3, .allowance = a, .on_done = sf_on_done },
			.status = 1
		};
		source_open(sf.set, &got.wait);
		assert_true(got.status == -ECONNREFUSED || got.status == -EAGAIN);
		if (got.status == -EAGAIN)
			assert_non_null(strstr(got.e.text, "try again in"));
		else
			listed++;
	}
	assert_true(listed >= LIMIT_TOKEN_LISTINGS);
	assert_true(
		listed <= LIMIT_TOKEN_LISTINGS + (clock_mono_ns() - began) /
							 (LIMIT_TOKEN_LISTING_S * CLOCK_SECOND));
	ufs_config_release(&s3);
	allowance_unref(a);
}

static void copy_state(const char *from, const char *to)
{
	char command[256];

	(void)snprintf(command, sizeof(command), "rm -rf %s/%s && cp -a %s/%s %s/%s", fixture_dir,
		to, fixture_dir, from, fixture_dir, to);
	assert_int_equal(system(command), 0);
}

/* State rolled back to generation 1; others have seen generation 2 with other contents. */
static void test_restored_from_old_copy(void **state)
{
	struct got got = sf_ask(true, NULL);
	uint64_t lineage = got.generation.id.lineage;
	struct volume_id volume = got.generation.id.volume;
	struct source_seen seen;
	struct source_seen older;

	(void)state;
	older = sf_seen_of(&got);
	sf_expect_generation(&got, 1, 2);
	sf_close();
	copy_state("state", "backup");
	sf_open();
	fixture_put("c", "first");
	got = sf_ask(true, NULL);
	seen = sf_seen_of(&got);
	sf_expect_generation(&got, 2, 3);
	sf_close();
	copy_state("backup", "state");
	sf_open();
	/* who has seen what is in the history changes nothing */
	got = sf_ask_table(&volume, 0, 0, &older);
	assert_int_equal(got.generation.id.lineage, lineage);
	sf_expect_generation(&got, 1, 2);
	/* newer than anything here: a new lineage, without asking the origin */
	got = sf_ask_table(&volume, lineage, 2, &seen);
	assert_int_equal(got.status, -ESTALE);
	got = sf_ask_table(&volume, 0, 0, &seen);
	assert_int_not_equal(got.generation.id.lineage, lineage);
	lineage = got.generation.id.lineage;
	sf_expect_generation(&got, 1, 2);
	/* once: the new lineage contradicts nobody */
	got = sf_ask(true, &seen);
	assert_int_equal(got.generation.id.lineage, lineage);
	assert_string_equal(got.notice, "");
	sf_expect_generation(&got, 2, 3);
}

/* The same number with another hash, found out by the mount that opens the source. */
static void test_other_hash(void **state)
{
	struct got got = sf_ask(true, NULL);
	uint64_t lineage = got.generation.id.lineage;
	struct source_seen seen = sf_seen_of(&got);

	(void)state;
	sf_expect_generation(&got, 1, 2);
	got = sf_ask(true, &seen);
	assert_int_equal(got.generation.id.lineage, lineage);
	sf_expect_generation(&got, 1, 2);
	fixture_put("c", "first");
	got = sf_ask(true, &seen);
	sf_expect_generation(&got, 2, 3);
	seen = sf_seen_of(&got);
	seen.hash[0] ^= 1;
	sf_seal(&got, &seen);
	got = sf_ask(true, &seen);
	assert_int_not_equal(got.generation.id.lineage, lineage);
	assert_non_null(strstr(got.notice, "a new lineage was started"));
	assert_non_null(strstr(got.notice, "(generation 2, seen 2)"));
	sf_expect_generation(&got, 1, 3);
}

/* Only what this master made contradicts it, or what a copy of its state made. */
static void test_without_a_seal(void **state)
{
	struct got got = sf_ask(true, NULL);
	uint64_t lineage = got.generation.id.lineage;
	struct source_seen seen = sf_seen_of(&got);

	(void)state;
	assert_memory_equal(seen.seal, got.newest.seal, SHA256_BYTES);
	sf_drop(&got);
	seen.generation += 5; /* with the seal of another one */
	got = sf_ask(false, &seen);
	assert_int_equal(got.generation.id.lineage, lineage);
	sf_seal(&got, &seen);
	sf_drop(&got);
	for (unsigned int bit = 0; bit < 8 * SHA256_BYTES; bit++) {
		seen.seal[bit / 8] ^= (uint8_t)(1u << bit % 8);
		got = sf_ask(false, &seen);
		assert_int_equal(got.generation.id.lineage, lineage);
		sf_drop(&got);
		seen.seal[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	seen.hash[0] ^= 1;
	got = sf_ask(false, &seen);
	assert_int_equal(got.generation.id.lineage, lineage);
	sf_drop(&got);
	sf.set->config.believe_unsealed = true;
	got = sf_ask(false, &seen);
	assert_int_not_equal(got.generation.id.lineage, lineage);
	sf_expect_generation(&got, 1, 2);
}

/* What was seen contradicts as often as somebody likes: lineages begin at a bounded rate. */
static void test_lineages_in_a_row(void **state)
{
	struct got got = sf_ask(true, NULL);
	struct source_seen seen;
	uint64_t lineage;

	(void)state;
	for (unsigned int i = 0; i < LINEAGES_AT_ONCE; i++) {
		lineage = got.generation.id.lineage;
		seen = sf_seen_of(&got);
		seen.generation += 5;
		sf_seal(&got, &seen);
		sf_drop(&got);
		got = sf_ask(false, &seen);
		assert_int_not_equal(got.generation.id.lineage, lineage);
	}
	lineage = got.generation.id.lineage;
	seen = sf_seen_of(&got);
	seen.generation += 5;
	sf_seal(&got, &seen);
	sf_expect_generation(&got, 1, 2);
	for (unsigned int i = 0; i < 3; i++) {
		got = sf_ask(false, &seen);
		assert_int_equal(got.generation.id.lineage, lineage);
		sf_expect_generation(&got, 1, 2);
	}
	test_advance(LINEAGE_EVERY_S * CLOCK_SECOND);
	got = sf_ask(false, &seen);
	assert_int_not_equal(got.generation.id.lineage, lineage);
	sf_expect_generation(&got, 1, 2);
}

static void test_table_lost(void **state)
{
	struct got got = sf_ask(true, NULL);
	uint64_t lineage = got.generation.id.lineage;
	char command[128];

	(void)state;
	sf_expect_generation(&got, 1, 2);
	(void)snprintf(command, sizeof(command), "rm -f %s/state/tables/*", fixture_dir);
	assert_int_equal(system(command), 0);
	got = sf_ask(false, NULL);
	assert_int_not_equal(got.generation.id.lineage, lineage);
	assert_non_null(strstr(got.notice, "lost"));
	sf_expect_generation(&got, 1, 2);
}

static void test_origin_refuses(void **state)
{
	char away[128];
	struct got got;

	(void)state;
	(void)snprintf(away, sizeof(away), "%s/away", fixture_dir);
	assert_int_equal(rename(fixture_in("origin"), away), 0);
	got = sf_ask(true, NULL);
	assert_true(got.status < 0);
	assert_true(strlen(got.e.text) > 0);
	assert_int_equal(rename(away, fixture_in("origin")), 0);
	got = sf_ask(true, NULL);
	sf_expect_generation(&got, 1, 2);
}

/* An S3 server that nobody runs: a first mount is refused with the line, a later one is served from
 * what is known. */
static void test_origin_away(void **state)
{
	struct ufs_config s3 = { 0 };
	struct err e = ERR_INIT;
	struct got got = { .wait = { .config = &s3, .refresh = true, .on_done = sf_on_done },
		.status = 1 };
	json_t *json;

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "x", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "y", 1);
	assert_int_equal(ufs_config_parse("s3://bucket/p", &s3, &e), 0);
	s3.endpoint = strdup("http://127.0.0.1:1");
	source_open(sf.set, &got.wait);
	assert_int_equal(got.status, -ECONNREFUSED);
	assert_non_null(strstr(got.e.text, "127.0.0.1"));
	json = source_set_json(sf.set, false);
	assert_int_equal(json_array_size(json), 1);
	assert_non_null(json_object_get(json_array_get(json, 0), "last_error"));
	json_decref(json);
	ufs_config_release(&s3);
}

/* A store over the real one that can be told to take nothing. */
struct full_store {
	struct store base;
	struct store *real;
	bool full;
};

static int full_get(struct store *s, const char *key, struct buf *value)
{
	struct full_store *f = container_of(s, struct full_store, base);

	return f->real->ops->get(f->real, key, value);
}

static int full_write(struct store *s, const struct store_change *changes, unsigned int n)
{
	struct full_store *f = container_of(s, struct full_store, base);

	return f->full ? -ENOSPC : f->real->ops->write(f->real, changes, n);
}

static int full_scan(struct store *s, const char *prefix, store_visit visit, void *arg)
{
	struct full_store *f = container_of(s, struct full_store, base);

	return f->real->ops->scan(f->real, prefix, visit, arg);
}

static void full_close(struct store *s)
{
	(void)s;
}

static const struct store_ops full_ops = { full_get, full_write, full_scan, full_close };

/* A generation that is not durable is not handed out, and its number and offsets are free for
 * another try. */
static void test_store_full(void **state)
{
	struct full_store full = { .base = { &full_ops }, .real = sf.store, .full = true };
	const struct source_set_config config = {
		.store = &full.base,
		.tables = "",
		.epoch = 1,
		.listing_bytes = 64 * MiB,
		.limits = UFS_LIMITS_DEFAULT,
	};
	struct source_set_config with_tables = config;
	struct source_set *other;
	struct source_set *mine = sf.set;
	struct err e = ERR_INIT;
	char tables[128];
	struct got got;

	(void)state;
	(void)snprintf(tables, sizeof(tables), "%s/state/tables", fixture_dir);
	with_tables.tables = tables;
	assert_int_equal(source_set_new(&with_tables, &other, &e), 0);
	sf.set = other;
	got = sf_ask(true, NULL);
	assert_int_equal(got.status, -ENOSPC);
	assert_non_null(strstr(got.e.text, "cannot write"));
	full.full = false;
	got = sf_ask(true, NULL);
	sf_expect_generation(&got, 1, 2);
	source_set_free(other);
	sf.set = mine;
}

struct asker {
	pthread_t thread;
	struct got got;
};

static void *ask_thread(void *arg)
{
	struct asker *asker = arg;

	asker->got = (struct got){ .status = 1,
		.wait = { .config = &sf.origin, .refresh = true, .on_done = sf_on_done } };
	source_open(sf.set, &asker->got.wait);
	test_wait(__atomic_load_n(&asker->got.status, __ATOMIC_ACQUIRE) != 1);
	return NULL;
}

/* Many at once end up with one generation. */
static void test_many_askers(void **state)
{
	struct asker askers[16];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(askers); i++)
		assert_int_equal(
			pthread_create(&askers[i].thread, NULL, ask_thread, &askers[i]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(askers); i++) {
		pthread_join(askers[i].thread, NULL);
		assert_memory_equal(askers[i].got.generation.id.hash,
			askers[0].got.generation.id.hash, SHA256_BYTES);
		assert_int_equal(askers[i].got.generation.id.generation, 1);
	}
	for (size_t i = 0; i < ARRAY_SIZE(askers); i++)
		sf_expect_generation(&askers[i].got, 1, 2);
	assert_int_equal(sf_count_tables(), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_policy_in_the_answer, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_generations, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_restart, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_denied_later, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_retention, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_holds_survive_restart, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_many_holds, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_shows_too_much, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_held_in_grace, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(
			test_unknown_generation_held, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_restored_from_old_copy, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_other_hash, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_leases_of_a_token, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_token_shows_too_much, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_listings_of_a_token, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_listings_that_fail, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_lineages_in_a_row, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_without_a_seal, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_table_lost, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_origin_refuses, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_origin_away, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_store_full, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_many_askers, sf_setup, sf_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
