/*
 * bench-sim: many workers and mounts of a cluster before a real master (bench/sim.py starts several).
 *
 *	bench-sim --master ADDR [--hold VOLUME.LINEAGE.GENERATION] [--cluster-key FILE]
 *
 * Commands come on standard input, one a line; each is answered with one line of JSON:
 *
 *	workers FROM TO PER_RACK	starts them: w<FROM> to w<TO - 1>
 *	mounts FROM TO			likewise
 *	stop FROM TO			workers vanish without a word
 *	counts				what was done and answered since the start; the slowest beat since the last time
 *	version				of the newest table, and how many actors have it
 *	receipts SEQUENCE		when each actor got that version or a later one, ms of the monotonic clock
 *	owners FILE			the owners of all slots, u16 each, into that file
 */
#include "base/bounds.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/option.h"
#include "bench/sim.h"
#include "net/identity.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACTORS_MAX 20000u
#define BATCH      25u /* started at a time: the master's backlog is no wider than others' */
#define PAUSE_NS   (20 * CLOCK_MS)
#define LINE_BYTES 1024u
#define MAP_BYTES  (128 << 10)

struct options {
	const char *master;
	const char *hold;
	const char *cluster_key;
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct options, master, "master", OPTION_STRING, .metavar = "ADDR",
		.required = true, .help = "address of the master"),
	OPTION_STRING_ROW(struct options, hold, "hold", "VOLUME.LINEAGE.GENERATION",
		"what mounts show, two of them in hex"),
	OPTION_STRING_ROW(
		struct options, cluster_key, "cluster-key", "FILE", "the cluster's key: TLS"),
};

static const struct option_set option_set = { .program = "bench-sim",
	.about = "Is many workers and mounts of a cluster.",
	.specs = specs,
	.n = ARRAY_SIZE(specs) };

struct crowd {
	struct sim sim;
	struct sim_actor *actors[ACTORS_MAX];
	uint32_t n;
};

/* One command, on the loop. */
struct command {
	struct crowd *crowd;
	char what[16];
	char text[LINE_BYTES];
	uint64_t a;
	uint64_t b;
	uint64_t c;
	struct err e;
};

/* ---- starting and stopping ------------------------------------------------------------------- */

static void start_on_loop(void *arg)
{
	struct command *c = arg;
	struct crowd *crowd = c->crowd;
	bool worker = strcmp(c->what, "workers") == 0;

	for (uint32_t i = 0; i < BATCH && c->a < c->b && !c->e.code; i++, c->a++) {
		uint32_t rack = (uint32_t)(c->a / max(c->c, (uint64_t)1));

		if (crowd->n == ACTORS_MAX) {
			(void)err_set(&c->e, -ENOSPC, "at most %u in one process", ACTORS_MAX);
			return;
		}
		if (sim_actor_start(&crowd->sim, worker, (uint32_t)c->a, rack,
			    &crowd->actors[crowd->n], &c->e) == 0)
			crowd->n++;
	}
}

static void start(struct command *c)
{
	while (c->a < c->b && !c->e.code) {
		loop_call(c->crowd->sim.loop, start_on_loop, c);
		clock_sleep_ns(PAUSE_NS);
	}
	if (c->e.code)
		printf("{\"error\": \"%s\"}\n", c->e.text);
	else
		printf("{}\n");
}

static void take_on_loop(void *arg)
{
	struct command *c = arg;
	struct crowd *crowd = c->crowd;

	c->c = 0;
	for (uint32_t i = 0; i < crowd->n; i++) {
		struct sim_actor *actor = crowd->actors[i];

		if (!actor->worker || actor->index < c->a || actor->index >= c->b)
			continue;
		crowd->actors[i] = crowd->actors[--crowd->n];
		/* Behind those that remain. */
		crowd->actors[crowd->n] = actor;
		c->c = 1;
		return;
	}
}

/* One of those that remain. */
static void keep_on_loop(void *arg)
{
	struct crowd *crowd = arg;

	if (!crowd->sim.keeper && crowd->n > 0)
		crowd->sim.keeper = crowd->actors[0];
}

static void stop(struct command *c)
{
	uint32_t n = 0;

	for (;; n++) {
		loop_call(c->crowd->sim.loop, take_on_loop, c);
		if (!c->c)
			break;
		sim_actor_free(c->crowd->actors[c->crowd->n]);
	}
	loop_call(c->crowd->sim.loop, keep_on_loop, c->crowd);
	printf("{\"stopped\": %u}\n", n);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void print_counts(struct crowd *crowd)
{
	struct sim *s = &crowd->sim;
	uint32_t joined = 0;
	uint32_t connected = 0;

	for (uint32_t i = 0; i < crowd->n; i++) {
		joined += crowd->actors[i]->joined;
		connected += rpc_client_connected(crowd->actors[i]->client);
	}
	printf("{\"actors\": %u, \"connected\": %u, \"joined\": %u, \"joins\": %" PRIu64
	       ", \"beats\": %" PRIu64 ", \"retention\": %" PRIu64 ", \"holds\": %" PRIu64
	       ", \"slots\": %" PRIu64 ", \"wholes\": %" PRIu64 ", \"bytes\": %" PRIu64
	       ", \"failures\": %" PRIu64 ", \"slowest_beat_ms\": %.1f}\n",
		crowd->n, connected, joined, s->joins, s->beats, s->retention, s->holds, s->slots,
		s->wholes, s->bytes, s->failures, (double)s->slowest_ns / (double)CLOCK_MS);
	s->slowest_ns = 0;
}

static void print_version(const struct crowd *crowd)
{
	const struct placement_table *table = crowd->sim.table;
	uint32_t has = 0;

	for (uint32_t i = 0; i < crowd->n; i++)
		has += crowd->actors[i]->epoch == table->epoch &&
		       crowd->actors[i]->sequence == table->sequence;
	printf("{\"epoch\": %" PRIu64 ", \"sequence\": %" PRIu64
	       ", \"have\": %u, \"actors\": %u}\n",
		table->epoch, table->sequence, has, crowd->n);
}

/* When it got that version or a later one, ns; 0: it has not, or it is long ago. */
static uint64_t receipt_of(const struct sim_actor *actor, uint64_t sequence)
{
	uint64_t ns = 0;

	for (uint32_t i = 0; i < min(actor->n_receipts, SIM_RECEIPTS); i++) {
		const struct sim_receipt *r = &actor->receipts[i];

		if (r->sequence >= sequence && (ns == 0 || r->ns < ns))
			ns = r->ns;
	}
	return ns;
}

static void print_receipts(const struct crowd *crowd, uint64_t sequence)
{
	const char *between = "";

	printf("{\"ms\": [");
	for (uint32_t i = 0; i < crowd->n; i++) {
		uint64_t ns = receipt_of(crowd->actors[i], sequence);

		printf("%s%.1f", between, (double)ns / (double)CLOCK_MS);
		between = ", ";
	}
	printf("]}\n");
}

static void print_owners(const struct crowd *crowd, const char *path)
{
	_cleanup_fclose_ FILE *f = fopen(path, "we");
	bool whole = f != NULL;

	for (uint32_t i = 0; i < PLACEMENT_SLOTS && whole; i++)
		whole = fwrite(&crowd->sim.table->slots[i].owner, sizeof(uint16_t), 1, f) == 1;
	printf(whole ? "{}\n" : "{\"error\": \"the file cannot be written\"}\n");
}

static void ask_on_loop(void *arg)
{
	struct command *c = arg;

	if (strcmp(c->what, "counts") == 0)
		print_counts(c->crowd);
	else if (strcmp(c->what, "version") == 0)
		print_version(c->crowd);
	else if (strcmp(c->what, "receipts") == 0)
		print_receipts(c->crowd, c->a);
	else if (strcmp(c->what, "owners") == 0)
		print_owners(c->crowd, c->text);
	else
		printf("{\"error\": \"no such command\"}\n");
}

static void obey(struct crowd *crowd, char *line)
{
	struct command c = { .crowd = crowd };
	char *at = NULL;
	char *word = strtok_r(line, " \n", &at);
	uint64_t *numbers[] = { &c.a, &c.b, &c.c };

	if (!word)
		return;
	(void)snprintf(c.what, sizeof(c.what), "%s", word);
	for (uint32_t i = 0; (word = strtok_r(NULL, " \n", &at)) && i < ARRAY_SIZE(numbers); i++) {
		if (i == 0)
			(void)snprintf(c.text, sizeof(c.text), "%s", word);
		*numbers[i] = strtoull(word, NULL, 10);
	}
	if (strcmp(c.what, "workers") == 0 || strcmp(c.what, "mounts") == 0)
		start(&c);
	else if (strcmp(c.what, "stop") == 0)
		stop(&c);
	else
		loop_call(crowd->sim.loop, ask_on_loop, &c);
	(void)fflush(stdout);
}

/* ---- main ------------------------------------------------------------------------------------ */

/* 32 digits, a point, 16 digits, a point, a number. */
static bool parse_hold(struct sim *sim, const char *text)
{
	char *end;

	if (strlen(text) < 2 * VOLUME_ID_LEN + 1)
		return false;
	for (uint32_t i = 0; i < VOLUME_ID_LEN; i++) {
		const char byte[] = { text[2 * i], text[2 * i + 1], '\0' };

		sim->volume.bytes[i] = (uint8_t)strtoul(byte, &end, 16);
		if (*end)
			return false;
	}
	text += 2 * VOLUME_ID_LEN;
	if (*text != '.')
		return false;
	sim->lineage = strtoull(text + 1, &end, 16);
	if (*end != '.')
		return false;
	sim->generation = strtoull(end + 1, &end, 10);
	sim->has_hold = *end == '\0';
	return sim->has_hold;
}

int main(int argc, char **argv)
{
	static struct crowd crowd;
	struct options options = { 0 };
	char line[LINE_BYTES];
	struct err e = ERR_INIT;

	option_parse_or_exit(&option_set, argc, argv, &options);
	bounds_raise_descriptors();
	/* Whole tables come and go between small things: no holes of their size, please. */
	(void)mallopt(M_MMAP_THRESHOLD, MAP_BYTES); /* more memory without */
	if (options.cluster_key &&
		net_keys_load(&(struct net_keys_config){ .cluster_key = options.cluster_key }, &e) <
			0) {
		(void)fprintf(stderr, "bench-sim: %s\n", e.text);
		return 1;
	}
	crowd.sim.master = options.master;
	crowd.sim.loop = loop_new("sim");
	crowd.sim.table = placement_table_new();
	if (!crowd.sim.loop || !crowd.sim.table ||
		(options.hold && !parse_hold(&crowd.sim, options.hold))) {
		(void)fprintf(stderr, "bench-sim: no memory, or --hold is not understood\n");
		return 1;
	}
	while (fgets(line, sizeof(line), stdin))
		obey(&crowd, line);
	while (crowd.n)
		sim_actor_free(crowd.actors[--crowd.n]);
	loop_free(crowd.sim.loop);
	free(crowd.sim.table);
	return 0;
}
