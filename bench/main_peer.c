/*
 * bench-peer: a mount's reads of a volume, without the mount: all that a reader has (client/), and no
 * FUSE before it.
 *
 *	bench-peer --master ADDR --dataset UUID.VOLUME [--cluster-key FILE | --token FILE]
 *
 * Reads --bytes of the volume from its start (again from there when it ends), --length at a time, --depth
 * of them in flight, each begun where another ended, every byte verified as a mount does. Prints one JSON line: bytes, seconds, CPU
 * seconds, failed reads.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/daemon.h"
#include "base/hash.h"
#include "base/option.h"
#include "base/units.h"
#include "bench/cpu.h"
#include "catalog/catalog.h"
#include "client/client.h"
#include "net/identity.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX    256u
#define BUDGET_BYTES (512 * MiB)
#define UUID_HEX     32u

struct options {
	const char *master;
	const char *worker;
	const char *dataset;
	const char *cluster_key;
	const char *token;
	uint64_t bytes;
	uint64_t length;
	uint64_t depth;
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct options, master, "master", OPTION_STRING, .metavar = "ADDR",
		.required = true, .help = "address of the master"),
	OPTION_STRING_ROW(struct options, worker, "worker", "ADDR", "the worker of this node"),
	OPTION_ROW(struct options, dataset, "dataset", OPTION_STRING, .metavar = "UUID.VOLUME",
		.required = true, .help = "what to read, of cachectl dataset show -o json"),
	OPTION_STRING_ROW(struct options, cluster_key, "cluster-key", "FILE", "the cluster's key"),
	OPTION_STRING_ROW(struct options, token, "token", "FILE", "a token for the dataset"),
	OPTION_SIZE_ROW(struct options, bytes, "bytes", MiB, 0, "to be read; 1GiB"),
	OPTION_SIZE_ROW(struct options, length, "length", BLOCK_BYTES, 0, "of one read; 1MiB"),
	OPTION_ROW(struct options, depth, "depth", OPTION_UINT, .min = 1, .max = DEPTH_MAX,
		.help = "reads in flight; 8"),
};

static const struct option_set option_set = { .program = "bench-peer",
	.about = "Reads a volume as a mount does, and says how fast.",
	.specs = specs,
	.n = ARRAY_SIZE(specs) };

struct work {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	struct client_volume *volume;
	uint64_t end;    /* of the volume */
	uint64_t length; /* of a read */
	uint64_t left;   /* bytes that are not asked for yet */
	uint64_t at;
	uint64_t bytes;
	uint64_t failed;
	uint32_t under_way; /* reads that go on as long as there is something to ask for */
};

static void on_done(struct client_read *read, int status, const void *data);

/* The next one, by whoever ended the last; false: all is asked for. */
static bool begin(struct work *w, struct client_read *read)
{
	bool more;

	pthread_mutex_lock(&w->lock);
	more = w->left > 0;
	if (more) {
		if (w->at + w->length > w->end)
			w->at = 0;
		*read = (struct client_read){
			.offset = w->at, .length = (uint32_t)w->length, .on_done = on_done, .arg = w
		};
		w->at += w->length;
		w->left -= min(w->left, w->length);
	} else if (--w->under_way == 0) {
		pthread_cond_signal(&w->ended);
	}
	pthread_mutex_unlock(&w->lock);
	return more;
}

static void on_done(struct client_read *read, int status, const void *data)
{
	struct work *w = read->arg;

	(void)data; /* the client has verified it */
	pthread_mutex_lock(&w->lock);
	if (status == 0)
		w->bytes += read->length;
	else
		w->failed++;
	pthread_mutex_unlock(&w->lock);
	if (begin(w, read))
		client_read(w->volume, read);
}

static void run(struct work *w, struct client_read *reads, uint32_t depth)
{
	w->under_way = depth;
	for (uint32_t i = 0; i < depth; i++)
		if (begin(w, &reads[i]))
			client_read(w->volume, &reads[i]);
	pthread_mutex_lock(&w->lock);
	while (w->under_way)
		pthread_cond_wait(&w->ended, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static int take_dataset(const char *text, struct client_dataset *ret)
{
	char uuid[UUID_HEX + 1] = "";
	int r;

	if (strlen(text) <= UUID_HEX || text[UUID_HEX] != '.')
		return -EINVAL;
	memcpy(uuid, text, UUID_HEX);
	r = hash_unhex(uuid, ret->id, sizeof(ret->id));
	return r < 0 ? r : hash_unhex(text + UUID_HEX + 1, ret->volume.bytes, VOLUME_ID_LEN);
}

static int open_client(const struct options *o, struct budget *budget, struct client **ret_client,
	struct client_volume **ret_volume, struct err *e)
{
	const struct net_keys_config keys = { .cluster_key = o->cluster_key, .token = o->token };
	struct client_dataset dataset = { .shown = false };
	const struct client_config config = { .master = o->master,
		.local_worker = o->worker,
		.budget = budget,
		.dataset = &dataset };
	int r = take_dataset(o->dataset, &dataset);

	if (r < 0)
		return err_set(e, r, "--dataset %s is no UUID.VOLUME", o->dataset);
	if (o->cluster_key || o->token)
		r = net_keys_load(&keys, e);
	if (r == 0)
		r = client_new(&config, ret_client, e);
	return r < 0 ? r
		     : client_open_volume(*ret_client, &dataset.volume, false, ret_volume, NULL, e);
}

int main(int argc, char **argv)
{
	static struct client_read reads[DEPTH_MAX];
	struct options options = { .bytes = GiB, .length = MiB, .depth = 8 };
	struct work w = { .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER };
	struct client *client = NULL;
	struct err e = ERR_INIT;
	struct budget budget;
	double cpu;
	uint64_t began;
	int r;

	(void)option_parse_or_exit(&option_set, argc, argv, &options); /* takes no arguments */
	budget_init(&budget, BUDGET_BYTES);
	r = daemon_begin("bench-peer", "warn", NULL, &e); /* keeps memory as a mount does */
	if (r == 0)
		r = open_client(&options, &budget, &client, &w.volume, &e);
	if (r == 0) {
		w.end = table_info(client_volume_table(w.volume))->end;
		w.length = min(options.length / BLOCK_BYTES * BLOCK_BYTES, (uint64_t)MiB);
		w.left = w.end < w.length ? 0 : options.bytes;
		cpu = cpu_seconds();
		began = clock_mono_ns();
		run(&w, reads, (uint32_t)options.depth);
		printf("{\"bytes\": %llu, \"seconds\": %.6f, \"cpu\": %.6f, \"errors\": %llu}\n",
			(unsigned long long)w.bytes, (double)(clock_mono_ns() - began) / 1e9,
			cpu_seconds() - cpu, (unsigned long long)w.failed);
		client_volume_close(w.volume);
	} else {
		fprintf(stderr, "bench-peer: %s\n", e.text);
	}
	client_free(client);
	return r < 0 || w.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
