/* The client: what its parts stand on, in order. See client.h. */
#include "base/bounds.h"
#include "base/clock.h"
#include "base/log.h"
#include "client/client_ask.h"
#include "client/client_back.h"
#include "client/client_internal.h"
#include "client/client_op.h"

#include <stdlib.h>
#include <string.h>

#define VERIFY_AGE   (24 * 3600 * CLOCK_SECOND)
#define IO_THREADS   2
#define AHEAD_BYTES  (32ull << 20)
#define AHEAD_GROWTH 4u
#define VIEW_WAIT    (30 * CLOCK_SECOND)
#define CHUNKS_LEAST 4u
#define BUDGET_MIN \
	(4ull * CLIENT_READ_MAX) /* less, and no read of several parts would ever find room */

/* This node's worker; NULL: there is none for this process, which then reaches it as it reaches those of other hosts. */
static const char *local_worker(const struct client_config *config)
{
	if (!config->local_worker || rpc_address_access(config->local_worker) != -EACCES)
		return config->local_worker;
	log_warn("worker of this node not used over its socket",
		"address=%s cause=\"permission denied\" next=\"used over TCP, if it has a TCP "
		"address\"",
		config->local_worker);
	return NULL;
}

static void init_parts(
	struct client *client, const struct client_config *config, const char *worker)
{
	client->magic = CLIENT_MAGIC;
	client->budget = config->budget;
	client->pause_ns = config->pause_ns;
	client->read_deadline_ns =
		config->read_deadline_ns ? config->read_deadline_ns : CLIENT_READ_DEADLINE;
	client->verify_age_ns = config->verify_age_ns ? config->verify_age_ns : VERIFY_AGE;
	client->ahead_bytes = config->ahead_bytes ? config->ahead_bytes : AHEAD_BYTES;
	client->ahead_max_bytes = config->ahead_max_bytes ? config->ahead_max_bytes
							  : AHEAD_GROWTH * client->ahead_bytes;
	client->seen_dir = config->seen_dir;
	client->direct_bandwidth =
		config->direct_bandwidth ? config->direct_bandwidth : CLIENT_DIRECT_BANDWIDTH;
	client->policy = config->policy;
	client->of_dataset = config->dataset != NULL;
	if (config->dataset)
		client->dataset = *config->dataset;
	pthread_mutex_init(&client->lock, NULL);
	pthread_cond_init(&client->idle, NULL);
	client_guard_init(&client->guard);
	fence_init(&client->fence);
	client_near_init(client, worker != NULL);
	client->map_wanted = true;
	list_init(&client->volumes);
	list_init(&client->notes_free);
	for (size_t i = 0; i < ARRAY_SIZE(client->notes); i++)
		list_push_back(&client->notes_free, &client->notes[i].link);
}

/* A reader that has never heard of the cluster waits for the master, and says what is wrong with it. */
static int open_view(struct client *client, const struct client_config *config, const char *worker,
	struct err *e)
{
	struct view_config view = { .master = client->master,
		.local_worker = worker,
		.dir = config->seen_dir,
		.on_table = client_back,
		.on_back = client_back,
		.on_hang = client_ask_hang,
		.arg = client };
	struct err trouble;
	uint64_t sequence;
	uint64_t epoch;
	int r;

	cluster_host(view.host);
	memcpy(&client->rank, view.host, sizeof(client->rank));
	r = view_open(client->loop, &view, VIEW_WAIT, &client->view, e);
	if (r < 0)
		return r;
	view_version(client->view, &epoch, &sequence);
	view_trouble(client->view, &trouble);
	return epoch == 0 && trouble.code < 0 ? err_set(e, trouble.code, "%s", trouble.text) : 0;
}

static int start_parts(struct client *client, const struct client_config *config,
	const char *worker, struct err *e)
{
	unsigned int io_threads = config->io_threads ? config->io_threads : IO_THREADS;
	uint32_t chunks = bounds_descriptor_share(CHUNKS_LEAST, LIMIT_CHUNK_FDS);
	int r = client_ops_init(client, io_threads);

	if (config->chunks)
		chunks = max(min(chunks, config->chunks), CHUNKS_LEAST);
	client->chunks = client_chunks_new(chunks);
	if (r < 0 || !client->chunks)
		return err_set(e, -ENOMEM, "no memory for reads and chunks");
	client->loop = loop_new("client");
	client->pool = pool_new("client-io", io_threads, LIMIT_POOL_QUEUE);
	client->disk = pool_new("client-disk", io_threads, LIMIT_POOL_QUEUE);
	if (!client->loop || !client->pool || !client->disk)
		return err_set(e, -EAGAIN,
			"cannot start the client's threads: raise the limit of processes or "
			"descriptors");
	r = client->seen_dir ? fence_load(&client->fence, client->seen_dir, e) : 0;
	if (r == 0)
		r = rpc_client_new(client->loop, config->master, &client->master, e);
	if (r == 0)
		rpc_client_fence(client->master, &client->fence);
	if (r == 0)
		r = open_view(client, config, worker, e);
	return r < 0 ? err_default(e, r, "slot table") : 0;
}

int client_new(const struct client_config *config, struct client **ret_client, struct err *e)
{
	const char *worker;
	struct client *client;
	int r;

	ensure(config->master && config->budget);
	if (config->budget->max < BUDGET_MIN)
		return err_set(e, -EINVAL, "memory of %llu bytes is too little: give at least %llu",
			(unsigned long long)config->budget->max, (unsigned long long)BUDGET_MIN);
	client = calloc(1, sizeof(*client));
	if (!client)
		return err_set(e, -ENOMEM, "no memory for the client");
	worker = local_worker(config);
	init_parts(client, config, worker);
	r = start_parts(client, config, worker, e);
	if (r < 0) {
		client_free(client);
		return r;
	}
	*ret_client = client;
	return 0;
}

void client_free(struct client *client)
{
	if (!client)
		return;
	CHECK_MAGIC(client, CLIENT_MAGIC);
	ensure(list_empty(&client->volumes));
	if (client->loop && client->ops)
		loop_call(client->loop, client_fetch_stop, client);
	view_close(client->view);
	rpc_client_free(client->master);
	pool_free(client->pool);
	pool_free(client->disk);
	loop_free(client->loop);
	client_near_release(client);
	client_ops_release(client);
	client_chunks_free(client->chunks);
	client_guard_release(&client->guard);
	fence_release(&client->fence);
	pthread_cond_destroy(&client->idle);
	pthread_mutex_destroy(&client->lock);
	client->magic = 0;
	free(client);
}

const struct client_counters *client_counters(const struct client *client)
{
	return &client->counters;
}

const struct client_histograms *client_histograms(const struct client *client)
{
	return &client->histograms;
}

const struct histogram_info *client_histogram_table(uint32_t *ret_n)
{
#define ROW(...) HISTOGRAM_ROW(client_histograms, __VA_ARGS__)
	static const struct histogram_info table[] = { CLIENT_HISTOGRAMS(ROW) };
#undef ROW

	*ret_n = ARRAY_SIZE(table);
	return table;
}

const struct counter_info *client_counter_table(uint32_t *ret_n)
{
#define ROW(...) COUNTER_ROW(client_counters, __VA_ARGS__)
	static const struct counter_info table[] = { CLIENT_COUNTERS(ROW) };
#undef ROW

	*ret_n = ARRAY_SIZE(table);
	return table;
}
