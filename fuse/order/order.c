/* The life of an order feed, and its thread: the socket, the jobs that are connected, asking for what comes next. See order.h. */
#include "fuse/order/order_internal.h"
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define BACKLOG       64
#define BUSY_MS       2 /* asks again after so long */
#define HELLO_NS      (10 * CLOCK_SECOND)
#define HELLO_LOOK_MS 1000 /* looks so often for who says nothing */

#define NEXT "+" /* the name of a socket until it takes the place of another one */

#define TOO_MANY \
	"64 jobs announce an order to this mount already: end one, or read without an order"
_Static_assert(ORDER_JOBS == 64, "TOO_MANY says so");

const struct counter_info *order_counter_table(uint32_t *ret_n)
{
#define ROW(...) COUNTER_ROW(order_counters, __VA_ARGS__)
	static const struct counter_info table[] = { ORDER_COUNTERS(ROW) };
#undef ROW

	*ret_n = ARRAY_SIZE(table);
	return table;
}

const struct order_counters *order_counters(const struct order *order)
{
	return &order->counters;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static struct order_job *free_job(struct order *order)
{
	struct order_job *oldest = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(order->jobs); i++) {
		struct order_job *job = &order->jobs[i];

		if (job->fd < 0)
			return job;
		if (job->state == ORDER_JOB_NEW && (!oldest || job->since < oldest->since))
			oldest = job;
	}
	/* Who has not even said hello makes room. */
	if (oldest)
		order_job_end(oldest);
	return oldest;
}

static void take_jobs(struct order *order)
{
	int fd;

	while ((fd = accept4(order->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		struct order_job *job = free_job(order);

		if (job) {
			order_job_begin(order, job, fd);
			continue;
		}
		counter_add(&order->counters.refused, 1);
		order_job_refuse(fd, -EUSERS, TOO_MANY);
		(void)close(fd); /* a socket */
		LOG_LIMITED(LOG_WARN, "a job was refused",
			"why=\"%u jobs announce orders already\"", ORDER_JOBS);
	}
}

static void serve_job(struct order_job *job, short events)
{
	bool goes_on;

	/* An answer that is not sent yet comes first. It never will be once he has shut the
	 * connection down, and what he said before that is not answered. */
	if (job->out_len > 0)
		goes_on = events & POLLOUT ? order_job_send(job) : !(events & (POLLHUP | POLLERR));
	else
		goes_on = order_job_receive(job);
	if (!goes_on)
		order_job_end(job);
}

/* True while somebody has not said hello. */
static bool end_silent(struct order *order)
{
	uint64_t now = clock_mono_ns();
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(order->jobs); i++) {
		struct order_job *job = &order->jobs[i];

		if (job->fd < 0 || job->state != ORDER_JOB_NEW)
			continue;
		if (now - job->since > HELLO_NS)
			order_job_end(job);
		else
			any = true;
	}
	return any;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int timeout_ms(enum order_pumped pumped, bool silent)
{
	switch (pumped) {
	case ORDER_PUMPED_SOME:
		return 0;
	case ORDER_PUMPED_BUSY:
		return BUSY_MS;
	case ORDER_PUMPED_ALL:
		break;
	}
	return silent ? HELLO_LOOK_MS : -1;
}

static void end_jobs(struct order *order)
{
	for (size_t i = 0; i < ARRAY_SIZE(order->jobs); i++)
		order_job_end(&order->jobs[i]);
}

/* The mount has another daemon: jobs are hung up on, and announce to that one. */
static void retire(struct order *order)
{
	log_info("orders are announced to the mount's next daemon", "socket=\"%s\"", order->path);
	(void)close(order->listen_fd); /* a socket */
	order->listen_fd = -1;
	end_jobs(order);
}

static void *run(void *arg)
{
	struct order *order = arg;
	struct pollfd wait[2 + ORDER_JOBS];

	while (!atomic_load(&order->stopping)) {
		enum order_pumped pumped;
		eventfd_t events;

		atomic_store(&order->woken, false);
		if (atomic_load(&order->replaced) && order->listen_fd >= 0)
			retire(order);
		if (atomic_exchange(&order->changed, false))
			end_jobs(order);
		pumped = order_pump(order);
		wait[0] = (struct pollfd){ .fd = order->wake_fd, .events = POLLIN };
		wait[1] = (struct pollfd){ .fd = order->listen_fd, .events = POLLIN };
		for (size_t i = 0; i < ORDER_JOBS; i++)
			wait[2 + i] = (struct pollfd){ .fd = order->jobs[i].fd,
				.events = order->jobs[i].out_len > 0 ? POLLOUT : POLLIN };
		/* EINTR: look around */
		(void)poll(wait, ARRAY_SIZE(wait),
			timeout_ms(pumped, end_silent(order) || order_greeters(order) > 0));
		(void)eventfd_read(order->wake_fd, &events); /* only a wake-up */
		for (size_t i = 0; i < ORDER_JOBS; i++)
			if (wait[2 + i].revents && order->jobs[i].fd == wait[2 + i].fd)
				serve_job(&order->jobs[i], wait[2 + i].revents);
		if (wait[1].revents)
			take_jobs(order);
	}
	return NULL;
}

/* ---- the socket ------------------------------------------------------------------------------ */

/* Root's way to the directory may be passed by everybody; nothing else of it is given away. */
static void open_parent(const char *directory)
{
	_cleanup_close_ int fd = -1;
	char parent[SOCKET_PATH_MAX];
	struct stat st;
	char *slash;

	(void)snprintf(parent, sizeof(parent), "%s", directory); /* shorter than a socket's path */
	slash = strrchr(parent, '/');
	if (geteuid() != 0 || !slash || slash == parent)
		return;
	*slash = '\0';
	fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == 0 && (st.st_mode & 011) != 011)
		(void)fchmod(fd, (st.st_mode & 07777) | 011); /* else root's jobs only */
}

/*
 * The directory may be passed by everybody. What belongs to an ordinary user stays closed to others.
 * Where others may write, one of them may have put a link there: it leads nowhere.
 */
static int open_directory(const char *directory, struct err *e)
{
	_cleanup_close_ int fd = -1;
	int r = file_mkdirs(directory, 0755);

	if (r < 0)
		return err_set(e, r, "the directory %s for announced orders cannot be created: %s",
			directory, err_str(r));
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchmod(fd, 0755) != 0)
		return err_set(e, err_errno(),
			"access to the directory %s for announced orders cannot be granted: %m",
			directory);
	open_parent(directory);
	return 0;
}

/*
 * The socket is for everybody; each client is checked when it connects. It is made under another
 * name and renamed: after a refresh the mount's previous daemon lives for as long as files are open
 * there, and its socket is replaced.
 */
static int listen_at(struct order *order, const char *path, struct err *e)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ char *next = NULL;
	struct stat st;
	int r;

	if (asprintf(&next, "%s" NEXT, path) < 0) {
		next = NULL;
		return err_set(e, -ENOMEM, "out of memory");
	}
	r = unix_socket_listen(next, BACKLOG, &fd, e);
	if (r < 0)
		return r;
	if (fchmodat(AT_FDCWD, next, 0666, AT_SYMLINK_NOFOLLOW) != 0 || lstat(next, &st) != 0 ||
		rename(next, path) != 0) {
		r = err_set(e, err_errno(), "access to %s cannot be granted: %m", path);
		(void)unlink(next); /* ours */
		return r;
	}
	order->path_dev = st.st_dev;
	order->path_ino = st.st_ino;
	order->listen_fd = TAKE_FD(fd);
	return 0;
}

/* The socket at order->path is this order's, not its successor's. */
static bool has_path(const struct order *order)
{
	struct stat st;

	return order->path && !atomic_load(&order->replaced) && lstat(order->path, &st) == 0 &&
	       st.st_dev == order->path_dev && st.st_ino == order->path_ino;
}

int order_listen(struct order *order, const char *directory, const char *name, struct err *e)
{
	_cleanup_free_ char *path = NULL;
	int r;

	if (asprintf(&path, "%s/%s", directory, name) < 0) {
		path = NULL;
		return err_set(e, -ENOMEM, "out of memory");
	}
	order->directory = strdup(directory);
	if (!order->directory)
		return err_set(e, -ENOMEM, "out of memory");
	r = open_directory(directory, e);
	if (r == 0)
		r = listen_at(order, path, e);
	if (r < 0)
		return r;
	pthread_mutex_lock(&order->lock);
	order->path = TAKE(path);
	pthread_mutex_unlock(&order->lock);
	if (pthread_create(&order->thread, NULL, run, order) != 0)
		return err_set(e, -EAGAIN, "no thread for orders: raise the limit of processes");
	(void)pthread_setname_np(order->thread, "fuse-order"); /* for people */
	order->started = true;
	return 0;
}

/* The link is made beside and renamed, so that there always is one. */
static char *link_to(const struct order *order, uint64_t dev)
{
	const char *name = strrchr(order->path, '/') + 1;
	char *fresh = NULL;
	char *shown = NULL;

	if (asprintf(&shown, "%s/%u:%u", order->directory, major((dev_t)dev), minor((dev_t)dev)) <
		0)
		return NULL;
	if (asprintf(&fresh, "%s.new", order->path) < 0) {
		free(shown);
		return NULL;
	}
	(void)unlink(fresh); /* of a daemon that died here */
	if (symlink(name, fresh) != 0 || rename(fresh, shown) != 0) {
		log_warn("orders cannot be announced", "link=\"%s\" error=%s", shown,
			err_name(err_errno()));
		free(shown);
		shown = NULL;
	}
	free(fresh);
	return shown;
}

void order_changed(struct order *order)
{
	atomic_store(&order->changed, true);
	order_wake(order);
}

/* Another socket is there. None at all is no successor's doing. */
static bool is_replaced(const struct order *order)
{
	struct stat st;

	return lstat(order->path, &st) == 0 && !has_path(order);
}

void order_show(struct order *order, uint64_t dev)
{
	uint32_t n = order->n_devs;
	char *shown;

	if (order->started && !atomic_load(&order->replaced) && is_replaced(order)) {
		atomic_store(&order->replaced, true);
		order_wake(order);
	}
	if (!order->started || atomic_load(&order->replaced) || dev == 0 ||
		(n > 0 && order->devs[(n - 1) % ORDER_DEVS] == dev))
		return;
	shown = link_to(order, dev);
	pthread_mutex_lock(&order->lock);
	order->devs[order->n_devs++ % ORDER_DEVS] = dev;
	pthread_mutex_unlock(&order->lock);
	if (order->shown && shown && strcmp(order->shown, shown) != 0)
		(void)unlink(order->shown); /* or it is gone */
	free(order->shown);
	order->shown = shown;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct order *order_new(const struct order_config *config)
{
	struct order *order = calloc(1, sizeof(*order));

	if (!order)
		return NULL;
	order->config = *config;
	order->space = (struct order_space){
		.directory = config->directory, .memory = config->memory, .disk = config->disk
	};
	order->listen_fd = -1;
	pthread_mutex_init(&order->lock, NULL);
	list_init(&order->lists);
	list_init(&order->feeds);
	for (size_t i = 0; i < ARRAY_SIZE(order->jobs); i++)
		order->jobs[i].fd = -1;
	order->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (order->wake_fd < 0) {
		order_free(order);
		return NULL;
	}
	return order;
}

void order_free(struct order *order)
{
	if (!order)
		return;
	atomic_store(&order->stopping, true);
	if (order->started) {
		order_wake(order);
		(void)pthread_join(order->thread, NULL); /* it is there */
	}
	for (size_t i = 0; i < ARRAY_SIZE(order->jobs); i++)
		order_job_end(&order->jobs[i]);
	if (has_path(order)) {
		(void)unlink(order->path); /* or it is gone already */
		if (order->shown)
			(void)unlink(order->shown);
	}
	cleanup_close(&order->listen_fd);
	cleanup_close(&order->wake_fd);
	pthread_mutex_destroy(&order->lock);
	free(order->directory);
	free(order->path);
	free(order->shown);
	free(order);
}

static json_t *job_json(const struct order_job *job)
{
	const struct order_feed *feed = job->feed;
	const struct order_window *w = feed ? &feed->window : NULL;

	return json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "pid",
		(int)job->pid, "uid", (json_int_t)job->uid, "samples",
		(json_int_t)(job->samples ? job->samples->n : 0), "places",
		(json_int_t)(feed ? feed->sequence->n : 0), "asked",
		(json_int_t)(w ? w->n_passed : 0), "runs", (json_int_t)(w ? w->n_runs : 0),
		"files_ahead", (json_int_t)(w ? w->files : 0), "bytes_ahead",
		(json_int_t)(w ? w->bytes : 0), "reads", (json_int_t)(w ? w->reads : 0), "hits",
		(json_int_t)(w ? w->hits : 0), "suspended", w && w->off);
}

json_t *order_json(struct order *order)
{
	uint32_t n;
	const struct counter_info *table = order_counter_table(&n);
	json_t *jobs = json_array();
	json_t *json;

	pthread_mutex_lock(&order->lock);
	for (size_t i = 0; i < ARRAY_SIZE(order->jobs); i++)
		if (order->jobs[i].fd >= 0)
			/* without memory: a row less */
			(void)json_array_append_new(jobs, job_json(&order->jobs[i]));
	json = json_pack("{s:s?, s:I, s:o}", "socket", order->path, "window_bytes",
		(json_int_t)order->window_bytes, "jobs", jobs);
	pthread_mutex_unlock(&order->lock);
	if (json)
		(void)json_object_set_new(
			json, "counters", admin_counters_json(table, n, &order->counters));
	return json;
}
