/*
 * What one job says to the feed, and what it is answered. Nothing that it sends is believed: every
 * length is checked, every array is paid for before it is made, and whoever says something that
 * makes no sense is answered with a line and let go.
 */
#include "fuse/order/order_internal.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/little.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOO_LONG "a list or an order has 16777216 samples at most: announce it in parts"
_Static_assert(ORDER_SAMPLES_MAX == 16777216, "TOO_LONG says so");

struct message {
	uint32_t kind;
	uint32_t length;
	const uint8_t *body;
};

/* ---- answers --------------------------------------------------------------------------------- */

/* Writes a REPLY to `out` and returns its length. */
static uint32_t pack_reply(
	uint8_t out[ORDER_REPLY_MAX], const struct order_job *job, int status, const char *text)
{
	const struct order_samples *samples = job ? job->samples : NULL;
	uint32_t text_len =
		(uint32_t)strnlen(text, ORDER_REPLY_MAX - ORDER_HEAD_BYTES - ORDER_REPLY_MIN);
	uint8_t *body = out + ORDER_HEAD_BYTES;

	memset(out, 0, ORDER_HEAD_BYTES + ORDER_REPLY_MIN);
	little_put32(out, ORDER_REPLY);
	little_put32(out + 4, ORDER_REPLY_MIN + text_len);
	little_put32(body, (uint32_t)status);
	little_put64(body + 8, samples ? samples->n : 0);
	little_put64(body + 16, samples ? samples->unknown : 0);
	if (job && job->feed) {
		pthread_mutex_lock(&job->order->lock);
		little_put32(body + 4, job->feed->window.off);
		little_put64(body + 24, job->feed->window.reads);
		little_put64(body + 32, job->feed->window.hits);
		pthread_mutex_unlock(&job->order->lock);
	}
	memcpy(body + ORDER_REPLY_MIN, text, text_len);
	return ORDER_HEAD_BYTES + ORDER_REPLY_MIN + text_len;
}

static void reply(struct order_job *job, int status, const char *text)
{
	ensure(job->out_len == 0);
	job->out_len = pack_reply(job->out, job, status, text);
	job->out_sent = 0;
}

void order_job_refuse(int fd, int status, const char *text)
{
	uint8_t out[ORDER_REPLY_MAX];
	uint32_t len = pack_reply(out, NULL, status, text);

	/* A new socket has room for it; a peer that has closed it needs no answer. */
	(void)send(fd, out, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A line for whoever wrote the job; the connection goes once it is sent. */
static bool refuse(struct order_job *job, int status, const char *text)
{
	counter_add(&job->order->counters.refused, 1);
	reply(job, status, text);
	(void)order_job_send(job); /* as far as it goes at once */
	return false;
}

/* The same, and it may go on. */
static bool decline(struct order_job *job, int status, const char *text)
{
	counter_add(&job->order->counters.refused, 1);
	reply(job, status, text);
	return true;
}

static bool accept_it(struct order_job *job)
{
	reply(job, 0, job->samples && job->samples->unknown ? job->missing : "");
	return true;
}

bool order_job_send(struct order_job *job)
{
	while (job->out_sent < job->out_len) {
		ssize_t n = send(job->fd, job->out + job->out_sent, job->out_len - job->out_sent,
			MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		job->out_sent += (uint32_t)n;
	}
	job->out_len = 0;
	job->out_sent = 0;
	return true;
}

/* ---- what it has ----------------------------------------------------------------------------- */

static void drop_feed(struct order_job *job)
{
	struct order *order = job->order;
	struct order_feed *feed = job->feed;

	pthread_mutex_lock(&order->lock);
	job->feed = NULL;
	pthread_mutex_unlock(&order->lock);
	order_feed_remove(order, feed);
}

static void drop_samples(struct order_job *job)
{
	struct order *order = job->order;
	struct order_samples *samples;

	drop_feed(job);
	pthread_mutex_lock(&order->lock);
	samples = TAKE(job->samples);
	if (samples && samples->refs == 1)
		list_remove(&samples->link);
	pthread_mutex_unlock(&order->lock);
	order_samples_unref(samples); /* frees files: not under the lock */
}

static void drop_numbers(struct order_job *job)
{
	order_array_release(&job->numbers_array);
	job->numbers = NULL;
}

static void drop_loading(struct order_job *job)
{
	uint8_t digest[SHA256_BYTES];

	if (job->sha)
		hash_sha256_final(job->sha, digest); /* which frees it */
	job->sha = NULL;
	order_samples_unref(job->loading);
	job->loading = NULL;
}

/* There is no array for a list or an order: the job reads on without. */
static bool no_room(struct order_job *job, int status)
{
	const char *directory = job->order->space.directory;
	char text[256];

	switch (status) {
	case -E2BIG:
		(void)snprintf(text, sizeof(text), "%s", TOO_LONG); /* fits, as the next */
		break;
	case -EDQUOT:
		(void)snprintf(text, sizeof(text),
			"the orders of all jobs are too long for this mount: announce fewer "
			"samples");
		break;
	case -ENOMEM:
		(void)snprintf(text, sizeof(text),
			"out of memory for the order: give the mount more (--memory)");
		break;
	default: /* the file's; jobs take some statuses for another answer */
		(void)snprintf(text, sizeof(text), "the order cannot be stored in %.100s: %s",
			directory, strerrordesc_np(-status));
		status = status == -ENOSPC ? status : -EIO;
	}
	LOG_LIMITED(LOG_WARN, "an announced order was refused", "why=\"%s\"", text);
	return decline(job, status, text);
}

/* ---- hello ----------------------------------------------------------------------------------- */

/* Of the mount's root or of anything below it, and open to him who sends it. */
static bool is_of_mount(struct order *order, const struct order_shown *shown)
{
	bool found = false;

	pthread_mutex_lock(&order->lock);
	for (uint32_t i = 0; i < min(order->n_devs, ORDER_DEVS); i++)
		found |= shown->given && order->devs[i] == shown->dev;
	pthread_mutex_unlock(&order->lock);
	return found || (shown->given && order->config.ops->shows &&
				order->config.ops->shows(order->config.arg, shown->dev));
}

/* A greeting is sent in one piece, so that its descriptor comes with it. */
static bool on_hello(struct order_job *job)
{
	struct order_shown shown = { 0 };
	uint8_t data[ORDER_HELLO_BYTES];
	/* Without the descriptor: the kernel closes that of a greeting that is not taken. */
	ssize_t n = recv(job->fd, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT);

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	if (n != sizeof(data) || little_get32(data) != ORDER_HELLO || little_get32(data + 4) != 4)
		return refuse(job, -EPROTO, "no greeting of an order: is this Granary's library?");
	if (little_get32(data + ORDER_HEAD_BYTES) != ORDER_VERSION)
		return refuse(job, -EPROTONOSUPPORT,
			"another version of orders: use the library that came with the mount");
	if (order_greeting(job->order, job, &shown) < 0)
		return refuse(
			job, -EAGAIN, "the mount cannot check descriptors now: try again later");
	if (shown.bytes != sizeof(data) || !is_of_mount(job->order, &shown))
		return refuse(job, -EACCES,
			"announcing needs a descriptor of the mount that the order is for");
	job->state = ORDER_JOB_READY;
	return accept_it(job);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static struct order_samples *find_list(
	const struct order *order, const uint8_t digest[SHA256_BYTES], uint32_t n)
{
	list_for_each (node, &order->lists) {
		struct order_samples *list = list_entry(node, struct order_samples, link);

		if (list->n == n && memcmp(list->digest, digest, SHA256_BYTES) == 0)
			return list;
	}
	return NULL;
}

static void use_list(struct order_job *job, struct order_samples *list)
{
	pthread_mutex_lock(&job->order->lock);
	list->refs++;
	job->samples = list;
	pthread_mutex_unlock(&job->order->lock);
	if (list->unknown && job->missing[0] == '\0')
		(void)snprintf(job->missing, sizeof(job->missing),
			"some files of the list are not there"); /* fits */
}

static bool loads_elsewhere(const struct order_job *job)
{
	const struct order *order = job->order;

	for (size_t i = 0; i < ARRAY_SIZE(order->jobs); i++) {
		const struct order_job *other = &order->jobs[i];

		if (other != job && other->fd >= 0 && other->state == ORDER_JOB_SAMPLES &&
			other->expected == job->expected &&
			memcmp(other->digest, job->digest, SHA256_BYTES) == 0)
			return true;
	}
	return false;
}

/* The list is known, or somebody sends it, or the job is to. */
static bool begin_list(struct order_job *job)
{
	struct order_samples *list = find_list(job->order, job->digest, job->expected);
	int r;

	if (list) {
		use_list(job, list);
		job->state = ORDER_JOB_READY;
		return accept_it(job);
	}
	if (loads_elsewhere(job)) {
		job->state = ORDER_JOB_WAITS;
		return true;
	}
	job->state = ORDER_JOB_READY;
	r = order_samples_new(&job->order->space, job->expected, job->digest, &job->loading);
	job->sha = r == 0 ? hash_sha256_new() : NULL;
	if (!job->sha) {
		drop_loading(job);
		return no_room(job, r < 0 ? r : -ENOMEM);
	}
	job->filled = 0;
	job->missing[0] = '\0';
	job->state = ORDER_JOB_SAMPLES;
	reply(job, -ENOENT, "");
	return true;
}

/* A list has become whole, or will not: those that wait for it go on. */
static void retry_jobs(struct order *order)
{
	for (size_t i = 0; i < ARRAY_SIZE(order->jobs); i++) {
		struct order_job *job = &order->jobs[i];

		if (job->fd >= 0 && job->state == ORDER_JOB_WAITS &&
			(!begin_list(job) || !order_job_send(job)))
			order_job_end(job);
	}
}

static bool on_list(struct order_job *job, const struct message *m)
{
	if (m->length != 4 + SHA256_BYTES)
		return refuse(job, -EPROTO, "a list's announcement is cut off");
	drop_samples(job);
	job->expected = little_get32(m->body);
	memcpy(job->digest, m->body + 4, SHA256_BYTES);
	return begin_list(job);
}

/* Where a sample lies: whole blocks of what the job reads of its file. */
static void fill_sample(struct order_job *job, const char *path, uint64_t offset, uint64_t length)
{
	const struct order_config *config = &job->order->config;
	struct order_sample *sample = &job->loading->samples[job->filled++];
	uint64_t start;
	uint64_t size;
	uint64_t end;

	if (config->ops->find(config->arg, path, &start, &size) < 0) {
		if (job->loading->unknown++ == 0)
			(void)snprintf(job->missing, sizeof(job->missing), "no such file: %.100s",
				path); /* fits */
		return;
	}
	if (offset >= size)
		return;
	end = length == 0 || length > size - offset ? size : offset + length;
	sample->start = start + align_down(offset, BLOCK_BYTES);
	sample->length = start + align_up(end, BLOCK_BYTES) - sample->start;
}

static bool end_list(struct order_job *job)
{
	struct order *order = job->order;
	struct order_samples *list = TAKE(job->loading);
	uint8_t digest[SHA256_BYTES];
	int r;

	hash_sha256_final(TAKE(job->sha), digest);
	job->state = ORDER_JOB_READY;
	if (memcmp(digest, job->digest, sizeof(digest)) != 0) {
		order_samples_unref(list);
		retry_jobs(order);
		return refuse(job, -EBADMSG, "the list is not the one that was named");
	}
	r = order_samples_sort(list);
	if (r < 0) {
		order_samples_unref(list);
		retry_jobs(order);
		return no_room(job, r);
	}
	pthread_mutex_lock(&order->lock);
	list_push_back(&order->lists, &list->link);
	job->samples = list;
	pthread_mutex_unlock(&order->lock);
	retry_jobs(order);
	return accept_it(job);
}

static bool on_samples(struct order_job *job, const struct message *m)
{
	char path[ORDER_PATH_MAX];
	uint32_t at = 0;

	hash_sha256_update(job->sha, m->body, m->length);
	while (at < m->length) {
		const uint8_t *row = m->body + at;
		uint32_t len;

		if (m->length - at < ORDER_SAMPLE_MIN || job->filled == job->expected)
			return refuse(job, -EPROTO, "a sample is cut off, or one too many");
		len = little_get32(row + 16);
		if (len >= ORDER_PATH_MAX || len > m->length - at - ORDER_SAMPLE_MIN ||
			memchr(row + ORDER_SAMPLE_MIN, '\0', len))
			return refuse(job, -EPROTO, "a sample's path is cut off or no path");
		memcpy(path, row + ORDER_SAMPLE_MIN, len);
		path[len] = '\0';
		fill_sample(job, path, little_get64(row), little_get64(row + 8));
		at += ORDER_SAMPLE_MIN + len;
	}
	return job->filled < job->expected || end_list(job);
}

/* ---- orders ---------------------------------------------------------------------------------- */

static bool feed(struct order_job *job, struct order_sequence *sequence)
{
	struct order_feed *fresh;
	int r = sequence ? order_feed_add(job->order, sequence, &fresh) : -ENOMEM;

	if (r < 0) {
		order_sequence_unref(sequence);
		return no_room(job, r);
	}
	pthread_mutex_lock(&job->order->lock);
	job->feed = fresh;
	pthread_mutex_unlock(&job->order->lock);
	return accept_it(job);
}

static bool on_listed(struct order_job *job)
{
	drop_feed(job);
	if (!job->samples)
		return decline(job, -EINVAL, "an order needs a list of samples first");
	return feed(job, order_sequence_listed(job->samples));
}

static bool end_numbers(struct order_job *job)
{
	struct order_sequence *sequence = NULL;
	int r = order_sequence_of(job->samples, &job->numbers_array, job->n_numbers, &sequence);

	drop_numbers(job);
	job->state = ORDER_JOB_READY;
	return r < 0 ? no_room(job, r) : feed(job, sequence);
}

/* The first of them makes room for all; what follows is more of the same. */
static bool on_numbers(struct order_job *job, const struct message *m)
{
	uint32_t n;
	int r;

	if (m->length < 4 || m->length % 4 != 0)
		return refuse(job, -EPROTO, "an order's numbers are cut off");
	n = little_get32(m->body);
	if (job->state == ORDER_JOB_READY) {
		drop_feed(job);
		if (!job->samples)
			return decline(job, -EINVAL, "an order needs a list of samples first");
		r = n > ORDER_SAMPLES_MAX ? -E2BIG
					  : order_array_new(&job->order->space, n,
						    sizeof(*job->numbers), &job->numbers_array);
		if (r < 0) {
			/* The job sends the other numbers without waiting for this answer. */
			(void)(no_room(job, r) && order_job_send(job)); /* as far as it goes */
			return false;
		}
		job->numbers = job->numbers_array.data;
		job->expected = n;
		job->n_numbers = 0;
		job->state = ORDER_JOB_NUMBERS;
	}
	if (n != job->expected || m->length / 4 - 1 > n - job->n_numbers)
		return refuse(job, -EPROTO, "an order has more numbers than announced");
	for (uint32_t at = 4; at < m->length; at += 4) {
		uint32_t number = little_get32(m->body + at);

		if (number >= job->samples->n)
			return refuse(job, -ERANGE, "a number is beyond the list of samples");
		job->numbers[job->n_numbers++] = number;
	}
	return job->n_numbers < job->expected || end_numbers(job);
}

static bool on_message(struct order_job *job, const struct message *m)
{
	if (job->state == ORDER_JOB_SAMPLES && m->kind == ORDER_SAMPLES)
		return on_samples(job, m);
	if (job->state == ORDER_JOB_NUMBERS && m->kind == ORDER_NUMBERS)
		return on_numbers(job, m);
	if (job->state != ORDER_JOB_READY)
		return refuse(job, -EPROTO, "not what was to come next");
	switch (m->kind) {
	case ORDER_LIST:
		return on_list(job, m);
	case ORDER_LISTED:
		return on_listed(job);
	case ORDER_NUMBERS:
		return on_numbers(job, m);
	case ORDER_FORGET:
		drop_feed(job);
		return accept_it(job);
	case ORDER_HITS:
		return accept_it(job);
	default:
		return refuse(job, -EPROTO, "unknown message");
	}
}

/* ---- connections ----------------------------------------------------------------------------- */

void order_job_begin(struct order *order, struct order_job *job, int fd)
{
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);

	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len); /* for people only */
	pthread_mutex_lock(&order->lock);
	*job = (struct order_job){
		.order = order,
		.fd = fd,
		.state = ORDER_JOB_NEW,
		.since = clock_mono_ns(),
		.pid = peer.pid,
		.uid = peer.uid,
		.in = arena_calloc(ARENA_ORDERS, 1, ORDER_FRAME_MAX),
	};
	pthread_mutex_unlock(&order->lock);
	counter_add(&order->counters.jobs, 1);
	if (!job->in)
		order_job_end(job);
}

void order_job_end(struct order_job *job)
{
	struct order *order = job->order;
	bool loaded;

	if (job->fd < 0)
		return;
	loaded = job->loading != NULL;
	drop_loading(job);
	drop_numbers(job);
	drop_samples(job);
	arena_free(ARENA_ORDERS, job->in, ORDER_FRAME_MAX);
	pthread_mutex_lock(&order->lock);
	(void)close(job->fd); /* a socket */
	*job = (struct order_job){ .order = order, .fd = -1 };
	pthread_mutex_unlock(&order->lock);
	counter_sub(&order->counters.jobs, 1);
	if (loaded)
		retry_jobs(order);
}

/* One message, or a part of it. Descriptors come with the greeting only: elsewhere the kernel closes
 * them. */
bool order_job_receive(struct order_job *job)
{
	uint32_t want = ORDER_HEAD_BYTES;
	struct message m = { 0 };
	ssize_t n;

	if (job->state == ORDER_JOB_NEW)
		return on_hello(job) && order_job_send(job);
	if (job->have >= ORDER_HEAD_BYTES)
		want += little_get32(job->in + 4);
	do
		n = recv(job->fd, job->in + job->have, want - job->have, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 && errno == EAGAIN;
	job->have += (uint32_t)n;
	if (job->have < ORDER_HEAD_BYTES)
		return true;
	m.kind = little_get32(job->in);
	m.length = little_get32(job->in + 4);
	m.body = job->in + ORDER_HEAD_BYTES;
	if (m.length > ORDER_BODY_MAX)
		return refuse(job, -EPROTO, "a message is longer than messages are");
	if (job->have < ORDER_HEAD_BYTES + m.length)
		return true;
	job->have = 0;
	return on_message(job, &m) && order_job_send(job);
}
