/*
 * cachectl plan: what a cache of some size would give a dataset, before anything runs.
 *
 * With epochs in random order and room for the fraction c of a dataset no policy hits more often than
 * c, and what never evicts inside the dataset reaches it; least-recently-used gives c + (1-c) ln(1-c).
 * Nothing is read, and no origin asked: files and bytes are those of the dataset's generation.
 */
#include "base/cleanup.h"
#include "base/units.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/dataset_command.h"
#include "ctl/price.h"
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNSET UINT64_MAX

struct plan_options {
	struct master_where where;
	uint64_t capacity;
	const char *evict;
	uint64_t epochs;
	struct price_options price;
	uint64_t rate; /* of the origin, bytes per second; 0: not known */
	const char *format;
};

static const struct option_spec specs[] = {
	OPTION_SIZE_ROW(struct plan_options, capacity, "cache-size", 0, 0,
		"Size of the cache (default: that of the workers)"),
	OPTION_ROW(struct plan_options, evict, "evict", OPTION_CHOICE, .choices = "never|lru",
		.help = "Policy of a full cache (default: that of the dataset)"),
	OPTION_ROW(struct plan_options, epochs, "epochs", OPTION_UINT, .min = 1, .max = 1000000,
		.help = "Number of epochs (default: 10)"),
	PRICE_OPTION_ROWS(struct plan_options, price),
	OPTION_ROW(struct plan_options, rate, "origin-bandwidth", OPTION_RATE,
		.help = "Bandwidth of the origin, such as 2GB/s, to compute the time it takes "
			"(default: unknown)"),
	/* Their earlier names. */
	OPTION_ROW(struct plan_options, capacity, "capacity", OPTION_SIZE, .hidden = true,
		.help = "Same as --cache-size"),
	OPTION_ROW(struct plan_options, rate, "origin-rate", OPTION_RATE, .hidden = true,
		.help = "Same as --origin-bandwidth"),
	MASTER_OPTION_ROWS(struct plan_options, where),
	OUTPUT_OPTION_ROW(struct plan_options, format, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl plan",
	.exits = { EXIT_MOUNTPOINT, EXIT_CACHE },
	.arguments = "NAME|URL|DIR",
	.about = "Computes the hit ratio of a cache of --cache-size for a dataset, and the bytes "
		 "and GETs "
		 "from the\norigin, for epochs in random order. Nothing is read for it.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

/* What is known, and what is asked. */
struct plan {
	double bytes;
	double files;
	double capacity;
	bool lru;
	double epochs;
	struct price price;
	double rate; /* bytes a second; 0: not said */
};

/* Of one epoch, or of several. */
struct outcome {
	double hit_ratio;
	double origin_bytes;
	double gets;
	double cost;
	double seconds;
};

/* ---- the arithmetic -------------------------------------------------------------------------- */

static double later_hit_ratio(const struct plan *p)
{
	double c = p->bytes > 0 ? min(p->capacity / p->bytes, 1.0) : 1.0;

	return p->lru && c < 1.0 ? c + (1.0 - c) * log1p(-c) : c;
}

/* One GET for each object up to 1 MiB, one for each MiB of others: no more than that. */
static double all_gets(const struct plan *p)
{
	return p->files + floor(p->bytes / (double)MiB);
}

static struct outcome of_misses(const struct plan *p, double misses, double of)
{
	struct outcome o = { .hit_ratio = 1.0 - misses / of,
		.origin_bytes = misses * p->bytes,
		.gets = ceil(misses * all_gets(p)) };

	o.cost = price_of(&p->price, o.origin_bytes, o.gets);
	o.seconds = p->rate > 0 ? o.origin_bytes / p->rate : 0;
	return o;
}

/* ---- what was said --------------------------------------------------------------------------- */

static int take_options(const struct plan_options *options, struct plan *p, struct err *e)
{
	int r = price_parse(&options->price, &p->price, e);

	p->rate = (double)options->rate;
	p->epochs = (double)options->epochs;
	return r;
}

static int take_dataset(const struct plan_options *options, const char *name, const json_t *dataset,
	struct plan *p, struct err *e)
{
	const json_t *files = json_object_get(dataset, "total_files");
	const json_t *bytes = json_object_get(dataset, "total_bytes");
	const json_t *capacity = json_object_get(dataset, "cache_capacity");
	const char *evict = options->evict ?: json_string_value(json_object_get(dataset, "evict"));

	if (!json_is_integer(files) || !json_is_integer(bytes))
		return err_set(e, -EAGAIN,
			"dataset %s was not listed yet: mount it once, or wait for its phase Ready "
			"(cachectl dataset show %s)",
			name, name);
	if (options->capacity == UNSET && !json_is_integer(capacity))
		return err_set(e, -EINVAL,
			"the capacity of the workers is not known yet: give --cache-size SIZE");
	p->files = json_number_value(files);
	p->bytes = json_number_value(bytes);
	p->capacity = options->capacity != UNSET ? (double)options->capacity
						 : json_number_value(capacity);
	p->lru = evict && strcmp(evict, "lru") == 0;
	return 0;
}

/* ---- what is printed ------------------------------------------------------------------------- */

static json_t *outcome_json(const struct outcome *o)
{
	return json_pack("{s:f, s:I, s:I, s:f, s:f}", "hit_ratio", o->hit_ratio, "origin_bytes",
		(json_int_t)o->origin_bytes, "gets", (json_int_t)o->gets, "cost", o->cost,
		"origin_s", o->seconds);
}

static int print_json(const struct plan *p, const char *format, const struct outcome all[3])
{
	json_t *json = json_pack("{s:I, s:I, s:I, s:s, s:I, s:o, s:o, s:o}", "total_files",
		(json_int_t)p->files, "total_bytes", (json_int_t)p->bytes, "capacity",
		(json_int_t)p->capacity, "evict", p->lru ? "lru" : "never", "epochs",
		(json_int_t)p->epochs, "first_epoch", outcome_json(&all[0]), "later_epoch",
		outcome_json(&all[1]), "all_epochs", outcome_json(&all[2]));
	int r = json ? yaml_out_as(format, json, stdout) : -ENOMEM;

	json_decref(json);
	return r;
}

static int add_row(
	struct columns *table, const struct plan *p, const char *what, const struct outcome *o)
{
	char ratio[16];
	char bytes[24];
	char gets[32];
	char cost[48] = "";
	char time[24];

	(void)units_percent(o->hit_ratio, 1, ratio, sizeof(ratio));
	(void)snprintf(gets, sizeof(gets), "%.0f", o->gets); /* fits */
	if (p->price.gib > 0 || p->price.million > 0)
		(void)snprintf(cost, sizeof(cost), "%.2f", o->cost); /* likewise */
	return columns_add(
		table, (const char *[]){ what, ratio,
			       units_size((uint64_t)o->origin_bytes, bytes, sizeof(bytes)), gets,
			       cost[0] ? cost : NULL,
			       p->rate > 0 ? units_duration((uint64_t)min(o->seconds * 1e9, 0x1p63),
						     time, sizeof(time))
					   : NULL });
}

static int print_table(const struct plan *p, const char *name, const struct outcome all[3])
{
	static const char *const titles[] = { "EPOCH", "HIT RATIO", "FROM ORIGIN", "GETS", "COST",
		"WAITED FOR" };
	_cleanup_(columns_release) struct columns table = { 0 };
	char bytes[24];
	char capacity[24];
	char count[32];
	int r = columns_init(&table, titles, ARRAY_SIZE(titles), 0x3e);

	(void)snprintf(count, sizeof(count), "all %.0f", p->epochs); /* fits */
	if (r == 0)
		r = add_row(&table, p, "first", &all[0]);
	if (r == 0)
		r = add_row(&table, p, "each later", &all[1]);
	if (r == 0)
		r = add_row(&table, p, count, &all[2]);
	if (r < 0)
		return r;
	(void)printf("%s: %.0f files, %s, in a cache of %s, evict %s\n", name, p->files,
		units_size((uint64_t)p->bytes, bytes, sizeof(bytes)),
		units_size((uint64_t)p->capacity, capacity, sizeof(capacity)),
		p->lru ? "lru" : "never");
	columns_print(&table, stdout);
	if (p->lru && p->capacity < p->bytes)
		(void)printf("With --evict never the hit ratio of later epochs is %s.\n",
			units_percent(p->capacity, p->bytes, count, sizeof(count)));
	return 0;
}

int command_plan(int argc, char **argv)
{
	struct plan_options options = { .capacity = UNSET, .epochs = 10, .format = "table" };
	struct plan p = { 0 };
	struct outcome all[3];
	struct err e = ERR_INIT;
	json_t *dataset = NULL;
	double miss;
	int status;
	int r;

	(void)option_parse_or_exit(&set, argc, argv, &options); /* one argument */
	if (take_options(&options, &p, &e) < 0)
		return command_fail(EXIT_USAGE, &e);
	status = target_dataset(&options.where, &argv[1], &e);
	if (status == EXIT_OK)
		status = dataset_call(&options.where, NULL, argv[1], "", NULL, &dataset, &e);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	r = take_dataset(&options, argv[1], dataset, &p, &e);
	json_decref(dataset);
	if (r < 0)
		return command_fail(r == -EINVAL ? EXIT_USAGE : EXIT_RUNTIME, &e);
	miss = 1.0 - later_hit_ratio(&p);
	all[0] = of_misses(&p, 1.0, 1.0);
	all[1] = of_misses(&p, miss, 1.0);
	all[2] = of_misses(&p, 1.0 + (p.epochs - 1.0) * miss, p.epochs);
	r = output_is_table(options.format) ? print_table(&p, argv[1], all)
					    : print_json(&p, options.format, all);
	if (r < 0) {
		(void)err_default(&e, r, "the plan cannot be printed");
		return command_fail(EXIT_RUNTIME, &e);
	}
	return EXIT_OK;
}
