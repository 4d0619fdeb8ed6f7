/* The fault plane. See faults.h. */
#include "tests/debug/faults.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define RULES_MAX  32u
#define PATH_BYTES 128u
#define SLICE_NS   (10 * CLOCK_MS)

struct rule {
	enum fault_layer layer;
	enum fault_kind kind;
	double rate;
	uint64_t ms;
	uint64_t most;
	unsigned int calls;
	unsigned int files;
	char path[PATH_BYTES]; /* "": any */
	uint64_t seen;         /* calls it was about */
	uint64_t times;        /* of them, failed */
};

struct faults {
	pthread_mutex_t lock;
	struct rule rules[RULES_MAX];
	unsigned int n;
	uint64_t seed;
	_Atomic uint64_t version; /* of the line */
	_Atomic bool any;
	char line[FAULTS_LINE_BYTES];
};

static const char *const layers[FAULT_LAYERS] = { "tier", "ufs", "net" };
static const char *const kinds[FAULT_KINDS] = { "", "eio", "enospc", "erofs", "flip", "short",
	"torn", "stall", "delay", "stale", "cut", "refuse" };

#define KIND(k) (1u << FAULT_##k)
static const unsigned int kinds_of[FAULT_LAYERS] = {
	[FAULT_TIER] = KIND(EIO) | KIND(ENOSPC) | KIND(EROFS) | KIND(FLIP) | KIND(SHORT) |
		       KIND(TORN) | KIND(STALL) | KIND(DELAY),
	[FAULT_UFS] = KIND(EIO) | KIND(SHORT) | KIND(STALE) | KIND(STALL) | KIND(DELAY),
	[FAULT_NET] = KIND(CUT) | KIND(REFUSE) | KIND(FLIP) | KIND(STALL) | KIND(DELAY),
};
#define WAITS (KIND(STALL) | KIND(DELAY))

static const struct {
	const char *name;
	unsigned int bit;
	enum fault_layer layer;
} wheres[] = {
	{ "read", FAULT_READ, FAULT_TIER },
	{ "write", FAULT_WRITE, FAULT_TIER },
	{ "make", FAULT_MAKE, FAULT_TIER },
	{ "remove", FAULT_REMOVE, FAULT_TIER },
	{ "sync", FAULT_SYNC, FAULT_TIER },
	{ "look", FAULT_LOOK, FAULT_TIER },
	{ "data", FAULT_DATA, FAULT_TIER },
	{ "table", FAULT_TABLE, FAULT_TIER },
	{ "other", FAULT_OTHER, FAULT_TIER },
	{ "get", FAULT_GET, FAULT_UFS },
	{ "list", FAULT_LIST, FAULT_UFS },
	{ "connect", FAULT_CONNECT, FAULT_NET },
	{ "message", FAULT_MESSAGE, FAULT_NET },
};

struct faults *faults_new(void)
{
	struct faults *faults = calloc(1, sizeof(*faults));

	if (faults)
		pthread_mutex_init(&faults->lock, NULL);
	return faults;
}

void faults_free(struct faults *faults)
{
	if (!faults)
		return;
	pthread_mutex_destroy(&faults->lock);
	free(faults);
}

struct faults *faults_global(void)
{
	static struct faults global = { .lock = PTHREAD_MUTEX_INITIALIZER };

	return &global;
}

/* ---- the line ---------------------------------------------------------------------------------- */

/* The number of `s` among `names`, whose length is `len`; -1: none of them. */
static int find_name(const char *const *names, int n, const char *s, size_t len)
{
	for (int i = 0; i < n; i++)
		if (names[i][0] && strlen(names[i]) == len && memcmp(names[i], s, len) == 0)
			return i;
	return -1;
}

static int parse_where(struct rule *rule, const char *s)
{
	while (*s) {
		size_t len = strcspn(s, ",");
		bool known = false;

		if (*s == '/' && len < PATH_BYTES && rule->layer == FAULT_TIER) {
			memcpy(rule->path, s, len);
			rule->path[len] = '\0';
			known = true;
		}
		for (size_t i = 0; i < ARRAY_SIZE(wheres) && !known; i++) {
			if (wheres[i].layer != rule->layer || strlen(wheres[i].name) != len ||
				memcmp(wheres[i].name, s, len) != 0)
				continue;
			rule->calls |= wheres[i].bit & FAULT_CALLS;
			rule->files |= wheres[i].bit & FAULT_FILES;
			known = true;
		}
		if (!known)
			return -EINVAL;
		s += len;
		s += *s == ',';
	}
	return 0;
}

/* RATE[/MS][#MOST][@WHERE] */
static int parse_value(struct rule *rule, const char *s)
{
	char *end;

	rule->most = UINT64_MAX;
	rule->rate = strtod(s, &end);
	if (end == s || !(rule->rate >= 0 && rule->rate <= 1))
		return -EINVAL;
	if (*end == '/') {
		s = end + 1;
		rule->ms = strtoull(s, &end, 10);
		if (end == s)
			return -EINVAL;
	}
	if (*end == '#') {
		s = end + 1;
		rule->most = strtoull(s, &end, 10);
		if (end == s)
			return -EINVAL;
	}
	if (*end == '@' && parse_where(rule, end + 1) < 0)
		return -EINVAL;
	if (*end != '@' && *end != '\0')
		return -EINVAL;
	if (rule->calls == 0)
		rule->calls = FAULT_CALLS;
	if (rule->files == 0)
		rule->files = FAULT_FILES;
	return 0;
}

static int parse_item(struct faults *faults, const char *item)
{
	const char *dot = strchr(item, '.');
	const char *equal = strchr(item, '=');
	struct rule rule = { 0 };
	int layer;
	int kind;

	if (!equal)
		return -EINVAL;
	if (strncmp(item, "seed=", 5) == 0) {
		char *end;

		faults->seed = strtoull(equal + 1, &end, 10);
		return end != equal + 1 && *end == '\0' ? 0 : -EINVAL;
	}
	if (!dot || dot > equal || faults->n == RULES_MAX)
		return -EINVAL;
	layer = find_name(layers, FAULT_LAYERS, item, (size_t)(dot - item));
	kind = find_name(kinds, FAULT_KINDS, dot + 1, (size_t)(equal - dot - 1));
	if (layer < 0 || kind < 0 || !(kinds_of[layer] & (1u << kind)))
		return -EINVAL;
	rule.layer = (enum fault_layer)layer;
	rule.kind = (enum fault_kind)kind;
	if (parse_value(&rule, equal + 1) < 0)
		return -EINVAL;
	faults->rules[faults->n++] = rule;
	return 0;
}

int faults_set(struct faults *faults, const char *line, struct err *e)
{
	_cleanup_free_ struct faults *next = calloc(1, sizeof(*next));
	char text[FAULTS_LINE_BYTES];
	char *rest = NULL;

	if (!next)
		return err_set(e, -ENOMEM, "faults: no memory");
	if (strlen(line) >= sizeof(text))
		return err_set(
			e, -EINVAL, "faults: the line has %u bytes at most", FAULTS_LINE_BYTES - 1);
	memcpy(text, line, strlen(line) + 1);
	for (char *item = strtok_r(text, " \n", &rest); item; item = strtok_r(NULL, " \n", &rest))
		if (parse_item(next, item) < 0)
			return err_set(e, -EINVAL,
				"faults: \"%.200s\" is none: write seed=N or "
				"LAYER.KIND=RATE[/MS][#MOST][@WHERE,...], such as "
				"tier.eio=0.01@read,data or ufs.delay=1/20",
				item);
	pthread_mutex_lock(&faults->lock);
	memcpy(faults->rules, next->rules, sizeof(faults->rules));
	faults->n = next->n;
	faults->seed = next->seed;
	memcpy(faults->line, line, strlen(line) + 1);
	atomic_store(&faults->any, faults->n > 0);
	atomic_fetch_add(&faults->version, 1);
	pthread_mutex_unlock(&faults->lock);
	return 0;
}

int faults_text(struct faults *faults, struct buf *line, struct buf *times)
{
	int r;

	pthread_mutex_lock(&faults->lock);
	r = buf_puts(line, faults->line);
	for (unsigned int i = 0; i < faults->n && r == 0; i++) {
		const struct rule *rule = &faults->rules[i];

		r = buf_printf(times, "%s%s.%s=%llu", i ? " " : "", layers[rule->layer],
			kinds[rule->kind], (unsigned long long)rule->times);
	}
	pthread_mutex_unlock(&faults->lock);
	return r;
}

/* ---- decisions --------------------------------------------------------------------------------- */

static bool is_about(
	const struct rule *rule, enum fault_layer layer, unsigned int where, const char *path)
{
	return rule->layer == layer && (rule->calls & where) != 0 &&
	       (!(where & FAULT_FILES) || (rule->files & where) != 0) &&
	       (rule->path[0] == '\0' || (path && strstr(path, rule->path)));
}

/* By the seed, the rule and the number of the call: nothing else decides. */
static uint64_t roll(const struct faults *faults, unsigned int rule, uint64_t call)
{
	uint64_t key[2] = { rule, call };

	return hash_xxh3(key, sizeof(key), faults->seed);
}

static struct fault draw(struct faults *faults, unsigned int wanted, enum fault_layer layer,
	unsigned int where, const char *path)
{
	struct fault fault = { FAULT_NONE, 0, 0 };

	if (!atomic_load_explicit(&faults->any, memory_order_relaxed))
		return fault;
	pthread_mutex_lock(&faults->lock);
	for (unsigned int i = 0; i < faults->n; i++) {
		struct rule *rule = &faults->rules[i];
		uint64_t x;

		if (!(wanted & (1u << rule->kind)) || !is_about(rule, layer, where, path))
			continue;
		x = roll(faults, i, rule->seen++);
		if (fault.kind != FAULT_NONE || rule->times >= rule->most ||
			(double)(x >> 11) / (double)(1ull << 53) >= rule->rate)
			continue;
		rule->times++;
		fault = (struct fault){ rule->kind, rule->ms, hash_xxh3(&x, sizeof(x), 1) };
	}
	pthread_mutex_unlock(&faults->lock);
	return fault;
}

struct fault faults_draw(
	struct faults *faults, enum fault_layer layer, unsigned int where, const char *path)
{
	return draw(faults, ~WAITS, layer, where, path);
}

uint64_t faults_draw_wait(struct faults *faults, enum fault_layer layer, unsigned int where,
	const char *path, bool *ret_stall)
{
	struct fault fault = draw(faults, WAITS, layer, where, path);

	*ret_stall = fault.kind == FAULT_STALL;
	return fault.ms;
}

uint64_t faults_version(struct faults *faults)
{
	return atomic_load(&faults->version);
}

void faults_sleep(struct faults *faults, uint64_t ms, bool stall)
{
	uint64_t version = atomic_load(&faults->version);
	uint64_t end = clock_mono_ns() + ms * CLOCK_MS;

	for (uint64_t now = clock_mono_ns(); now < end; now = clock_mono_ns()) {
		if (stall && atomic_load(&faults->version) != version)
			return;
		clock_sleep_ns(min(end - now, (uint64_t)SLICE_NS));
	}
}
