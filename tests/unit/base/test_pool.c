/* The thread pool: its bound, its width, and that what was accepted is run. */
#include "base/pool.h"
#include "base/clock.h"
#include "tests/clock/test_clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/ioprio.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* While it is set no thread can be started. */
static atomic_bool no_threads;

int pthread_create(
	pthread_t *ret_thread, const pthread_attr_t *attr, void *(*main)(void *), void *arg)
{
	__typeof__(pthread_create) *next = (__typeof__(next))dlsym(RTLD_NEXT, "pthread_create");

	return atomic_load(&no_threads) ? EAGAIN : next(ret_thread, attr, main, arg);
}

struct job {
	struct pool_job job;
	sem_t *started;
	sem_t *gate;
	int ioprio;         /* of the thread that ran it */
	struct pool *again; /* submits itself there, once */
	int again_result;
	_Atomic unsigned int *ran;
};

static void run(struct pool_job *pool_job)
{
	struct job *job = container_of(pool_job, struct job, job);

	job->ioprio = (int)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
	if (job->started)
		sem_post(job->started);
	if (job->gate)
		while (sem_wait(job->gate) != 0)
			;
	if (job->again) {
		struct pool *pool = job->again;

		job->again = NULL;
		job->again_result = pool_submit(pool, &job->job);
	}
	atomic_fetch_add(job->ran, 1);
}

static void the_queue_is_bounded(void **state)
{
	struct pool *pool = pool_new("bounded", 1, 2);
	_Atomic unsigned int ran = 0;
	sem_t started;
	sem_t gate;
	struct job jobs[4];

	(void)state;
	assert_non_null(pool);
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	for (unsigned int i = 0; i < 4; i++)
		jobs[i] = (struct job){ .job.run = run, .ran = &ran };
	jobs[0].started = &started;
	jobs[0].gate = &gate;
	assert_int_equal(pool_submit(pool, &jobs[0].job), 0);
	while (sem_wait(&started) != 0)
		; /* it runs: the queue is empty again */
	assert_int_equal(pool_submit(pool, &jobs[1].job), 0);
	assert_int_equal(pool_submit(pool, &jobs[2].job), 0);
	assert_int_equal(pool_submit(pool, &jobs[3].job), -EAGAIN);
	assert_int_equal(atomic_load(&ran), 0);
	sem_post(&gate);
	pool_free(pool);
	assert_int_equal(atomic_load(&ran), 3);
	sem_destroy(&gate);
	sem_destroy(&started);
}

static void all_threads_work_at_once(void **state)
{
	enum { THREADS = 8 };
	struct pool *pool = pool_new("a name longer than fifteen", THREADS, THREADS);
	_Atomic unsigned int ran = 0;
	struct job jobs[THREADS];
	sem_t started;
	sem_t gate;

	(void)state;
	assert_non_null(pool);
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	for (unsigned int i = 0; i < THREADS; i++) {
		jobs[i] = (struct job){
			.job.run = run, .ran = &ran, .started = &started, .gate = &gate
		};
		assert_int_equal(pool_submit(pool, &jobs[i].job), 0);
	}
	for (unsigned int i = 0; i < THREADS; i++) /* every one started, none has ended */
		while (sem_wait(&started) != 0)
			;
	for (unsigned int i = 0; i < THREADS; i++)
		sem_post(&gate);
	pool_free(pool);
	assert_int_equal(atomic_load(&ran), THREADS);
	sem_destroy(&gate);
	sem_destroy(&started);
}

/* Threads of this process with that name, which a thread has from its last job. */
static unsigned int threads_named(const char *name)
{
	struct dirent *entry;
	unsigned int n = 0;
	DIR *dir = opendir("/proc/self/task");

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL) {
		char path[300];
		char line[32] = "";
		FILE *f;

		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		f = fopen(path, "re");
		if (f && fgets(line, sizeof(line), f))
			line[strcspn(line, "\n")] = '\0';
		n += strcmp(line, name) == 0;
		if (f)
			(void)fclose(f);
	}
	(void)closedir(dir);
	return n;
}

static void submit_and_wait(struct pool *pool, struct job *job)
{
	unsigned int before = atomic_load(job->ran);

	assert_int_equal(pool_submit(pool, &job->job), 0);
	test_wait(atomic_load(job->ran) > before);
}

/* As many as jobs that ran at one time, not as many as it may have. Some more where a job was submitted before the thread of the last
 * one had noted its end. */
static void threads_start_when_they_are_needed(void **state)
{
	struct pool *pool = pool_new("few", 16, 16);
	_Atomic unsigned int ran = 0;
	struct job jobs[2];
	sem_t gate;

	(void)state;
	assert_non_null(pool);
	jobs[0] = jobs[1] = (struct job){ .job.run = run, .ran = &ran };
	for (unsigned int i = 0; i < 100; i++)
		submit_and_wait(pool, &jobs[1]);
	assert_in_range(threads_named("few"), 1, 15);
	sem_init(&gate, 0, 0);
	jobs[0].gate = &gate;
	assert_int_equal(pool_submit(pool, &jobs[0].job), 0);
	submit_and_wait(pool, &jobs[1]);
	assert_in_range(threads_named("few"), 2, 15);
	sem_post(&gate);
	pool_free(pool);
	assert_int_equal(atomic_load(&ran), 102);
	sem_destroy(&gate);
}

static void idle_threads_end(void **state)
{
	enum { THREADS = 8 };
	struct pool *pool = pool_new("idle", THREADS, THREADS);
	_Atomic unsigned int ran = 0;
	struct job jobs[THREADS];
	sem_t started;
	sem_t gate;

	(void)state;
	assert_non_null(pool);
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	for (unsigned int round = 1; round <= 2; round++) {
		for (unsigned int i = 0; i < THREADS; i++) {
			jobs[i] = (struct job){
				.job.run = run, .ran = &ran, .started = &started, .gate = &gate
			};
			assert_int_equal(pool_submit(pool, &jobs[i].job), 0);
		}
		for (unsigned int i = 0; i < THREADS; i++)
			while (sem_wait(&started) != 0)
				;
		test_wait(threads_named("idle") ==
			  THREADS); /* the kernel removes a thread after it was joined */
		for (unsigned int i = 0; i < THREADS; i++)
			sem_post(&gate);
		test_wait(atomic_load(&ran) == round * THREADS);
		test_advance(30 * CLOCK_SECOND);
		test_wait(threads_named("idle") == 1);
	}
	pool_free(pool);
	sem_destroy(&gate);
	sem_destroy(&started);
}

/* Jobs that run at the same time only now and then do not keep their threads. */
static void threads_that_are_rarely_needed_end(void **state)
{
	enum { JOBS = 3, ROUNDS = 5 };
	struct pool *pool = pool_new("rarely", JOBS, JOBS);
	_Atomic unsigned int ran = 0;
	struct job jobs[JOBS];
	sem_t started;
	sem_t gate;

	(void)state;
	assert_non_null(pool);
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	for (unsigned int round = 1; round <= ROUNDS; round++) {
		for (unsigned int i = 0; i < JOBS; i++) {
			jobs[i] = (struct job){
				.job.run = run, .ran = &ran, .started = &started, .gate = &gate
			};
			assert_int_equal(pool_submit(pool, &jobs[i].job), 0);
		}
		for (unsigned int i = 0; i < JOBS; i++)
			while (sem_wait(&started) != 0)
				;
		for (unsigned int i = 0; i < JOBS; i++)
			sem_post(&gate);
		test_wait(atomic_load(&ran) == round * JOBS);
		assert_true(test_wait_for(3 * CLOCK_SECOND, threads_named("rarely") == 1));
	}
	pool_free(pool);
	sem_destroy(&gate);
	sem_destroy(&started);
}

struct timed {
	struct pool_timer timer;
	_Atomic unsigned int *ran;
	sem_t *gate;
};

static void run_timed(struct pool_job *job)
{
	const struct timed *timed = container_of(job, struct timed, timer.job);

	while (sem_wait(timed->gate) != 0)
		;
	atomic_fetch_add(timed->ran, 1);
}

/* What opens the gate. */
static void open_gate(struct pool_job *pool_job)
{
	const struct job *job = container_of(pool_job, struct job, job);

	sem_post(job->gate);
	atomic_fetch_add(job->ran, 1);
}

/* A job of one pool waits for one of another pool, which was accepted since that pool had a thread. There is one thread. */
static void a_thread_goes_on_with_its_pool(void **state)
{
	struct pool *pool = pool_new("accepts", 2, 2);
	struct pool *waits = pool_new("waits", 1, 1);
	_Atomic unsigned int ran = 0;
	struct job first = { .job.run = run, .ran = &ran };
	struct job second = { .job.run = open_gate, .ran = &ran };
	struct job refused = { .job.run = run, .ran = &ran };
	struct timed timed = { .timer.job.run = run_timed, .ran = &ran };
	sem_t started;
	sem_t gates[2];

	(void)state;
	assert_non_null(pool);
	assert_non_null(waits);
	sem_init(&started, 0, 0);
	sem_init(&gates[0], 0, 0);
	sem_init(&gates[1], 0, 0);
	first.started = &started;
	first.gate = &gates[0];
	second.gate = timed.gate = &gates[1];
	assert_int_equal(pool_submit(pool, &first.job), 0);
	while (sem_wait(&started) != 0)
		;
	test_wait(threads_named("accepts") == 1);
	atomic_store(&no_threads, true);
	pool_timer_start(waits, &timed.timer, 0);
	assert_int_equal(pool_submit(pool, &second.job), 0);
	assert_int_equal(pool_submit(waits, &refused.job), -EAGAIN);
	sem_post(&gates[0]);
	test_wait(atomic_load(&ran) == 3);
	atomic_store(&no_threads, false);
	pool_free(pool);
	pool_free(waits);
	sem_destroy(&gates[1]);
	sem_destroy(&gates[0]);
	sem_destroy(&started);
}

/* None of the threads is there in the new process: that is noticed, and nothing waits for them. */
static void a_forked_process_makes_no_pool(void **state)
{
	struct pool *pool = pool_new("parent", 1, 1);
	int status = 0;
	pid_t pid;

	(void)state;
	assert_non_null(pool);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)signal(SIGABRT, SIG_DFL);
		pool_free(pool_new("child", 1, 1));
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	pool_free(pool);
}

/* What one pool does not need another one uses. The threads end with the last pool. */
static void pools_share_threads(void **state)
{
	enum { POOLS = 5 };
	struct pool *pools[POOLS];
	_Atomic unsigned int ran = 0;
	struct job job = { .job.run = run, .ran = &ran };

	(void)state;
	for (unsigned int i = 0; i < POOLS; i++) {
		pools[i] = pool_new("shared", 4, 4);
		assert_non_null(pools[i]);
	}
	for (unsigned int i = 0; i < 10 * POOLS; i++) {
		submit_and_wait(pools[i % POOLS], &job);
		test_advance(CLOCK_SECOND); /* until the thread is idle */
	}
	test_wait(threads_named("shared") == 1);
	for (unsigned int i = 0; i < POOLS; i++)
		pool_free(pools[i]);
	test_wait(threads_named("shared") == 0);
}

/* A pool whose jobs all wait takes no thread from another one. */
static void pools_do_not_wait_for_each_other(void **state)
{
	enum { JOBS = 6 };
	struct pool *slow = pool_new("slow", 2, JOBS);
	struct pool *fast = pool_new("fast", 1, 1);
	_Atomic unsigned int ran = 0;
	_Atomic unsigned int fast_ran = 0;
	struct job jobs[JOBS];
	struct job job = { .job.run = run, .ran = &fast_ran };
	sem_t gate;

	(void)state;
	assert_non_null(slow);
	assert_non_null(fast);
	sem_init(&gate, 0, 0);
	for (unsigned int i = 0; i < JOBS; i++) {
		jobs[i] = (struct job){ .job.run = run, .ran = &ran, .gate = &gate };
		assert_int_equal(pool_submit(slow, &jobs[i].job), 0);
	}
	submit_and_wait(fast, &job);
	assert_int_equal(atomic_load(&ran), 0);
	test_wait(threads_named("slow") + threads_named("fast") <=
		  4); /* one that had not noted the end of its job */
	for (unsigned int i = 0; i < JOBS; i++)
		sem_post(&gate);
	pool_free(slow);
	assert_int_equal(atomic_load(&ran), JOBS);
	pool_free(fast);
	sem_destroy(&gate);
}

struct idler {
	struct pool *pool;
	struct pool_job *job;
	int r;
};

/* Submits a job as a thread does that checks files in the idle class. */
static void *submit_idle(void *arg)
{
	struct idler *idler = arg;

	idler->r = (int)syscall(
		SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
	if (idler->r == 0)
		idler->r = pool_submit(idler->pool, idler->job);
	return NULL;
}

static void threads_keep_the_priority_of_the_pool(void **state)
{
	struct pool *pool = pool_new("priority", 2, 2);
	_Atomic unsigned int ran = 0;
	struct job jobs[2];
	struct idler idler = { .pool = pool, .job = &jobs[1].job };
	pthread_t thread;
	sem_t started;
	sem_t gate;

	(void)state;
	assert_non_null(pool);
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	jobs[0] = jobs[1] = (struct job){ .job.run = run, .ran = &ran };
	jobs[0].started = &started;
	jobs[0].gate = &gate;
	assert_int_equal(pool_submit(pool, &jobs[0].job), 0);
	while (sem_wait(&started) != 0)
		; /* the first thread is busy: the next job starts another one */
	assert_int_equal(pthread_create(&thread, NULL, submit_idle, &idler), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(idler.r, 0);
	test_wait(atomic_load(&ran) == 1);
	sem_post(&gate);
	pool_free(pool);
	assert_int_equal(jobs[1].ioprio, jobs[0].ioprio);
	sem_destroy(&gate);
	sem_destroy(&started);
}

/* The same thread runs both. */
static void idle_io_ends_with_the_job(void **state)
{
	struct pool *idle = pool_new("idle-io", 1, 1);
	struct pool *other = pool_new("other-io", 1, 1);
	_Atomic unsigned int ran = 0;
	struct job job = { .job.run = run, .ran = &ran };
	int mine = (int)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);

	(void)state;
	assert_non_null(idle);
	assert_non_null(other);
	pool_set_idle_io(idle);
	for (unsigned int i = 0; i < 3; i++) {
		submit_and_wait(idle, &job);
		assert_int_equal(IOPRIO_PRIO_CLASS(job.ioprio), IOPRIO_CLASS_IDLE);
		test_advance(CLOCK_SECOND); /* until the thread is idle */
		submit_and_wait(other, &job);
		assert_int_equal(job.ioprio, mine);
		test_advance(CLOCK_SECOND);
	}
	test_wait(threads_named("idle-io") + threads_named("other-io") == 1);
	pool_free(idle);
	pool_free(other);
}

static void a_job_may_submit_itself_again(void **state)
{
	struct pool *pool = pool_new("again", 2, 4);
	_Atomic unsigned int ran = 0;
	struct job job = { .job.run = run, .ran = &ran, .again = pool, .again_result = 1 };

	(void)state;
	assert_non_null(pool);
	assert_int_equal(pool_submit(pool, &job.job), 0);
	test_wait(atomic_load(&ran) == 2);
	pool_free(pool);
	assert_int_equal(job.again_result, 0);
	assert_int_equal(atomic_load(&ran), 2);
}

#define BACKGROUND 128u

/* A gate that no test opens early holds every background job that runs; a reader's job passes them. */
static void background_leaves_a_thread(void **state)
{
	struct pool *pool = pool_new("later", 2, BACKGROUND + 1);
	_Atomic unsigned int ran = 0;
	_Atomic unsigned int urgent = 0;
	struct job jobs[BACKGROUND];
	struct job reader = { .job.run = run, .ran = &urgent };
	sem_t started;
	sem_t gate;

	(void)state;
	assert_non_null(pool);
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	for (unsigned int i = 0; i < BACKGROUND; i++) {
		jobs[i] = (struct job){ .job = { .run = run, .background = true },
			.ran = &ran,
			.started = &started,
			.gate = &gate };
		assert_int_equal(pool_submit(pool, &jobs[i].job), 0);
	}
	while (sem_wait(&started) != 0)
		;
	assert_int_equal(pool_submit(pool, &reader.job), 0);
	test_wait(atomic_load(&urgent) == 1);
	assert_int_equal(sem_trywait(&started), -1); /* no second one began */
	for (unsigned int i = 0; i < BACKGROUND; i++)
		sem_post(&gate);
	pool_free(pool);
	assert_int_equal(atomic_load(&ran), BACKGROUND);
	sem_destroy(&gate);
	sem_destroy(&started);
}

/* The last of many becomes a reader's. */
static void a_raised_job_runs_at_once(void **state)
{
	struct pool *pool = pool_new("raised", 2, BACKGROUND);
	_Atomic unsigned int ran = 0;
	_Atomic unsigned int urgent = 0;
	struct job jobs[3];
	sem_t started;
	sem_t gate;

	(void)state;
	assert_non_null(pool);
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	for (unsigned int i = 0; i < 3; i++)
		jobs[i] = (struct job){ .job = { .run = run, .background = true },
			.ran = &ran,
			.started = &started,
			.gate = &gate };
	jobs[2] = (struct job){ .job = { .run = run, .background = true }, .ran = &urgent };
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(pool_submit(pool, &jobs[i].job), 0);
	while (sem_wait(&started) != 0)
		;
	pool_raise(pool, &jobs[2].job);
	test_wait(atomic_load(&urgent) == 1);
	assert_int_equal(atomic_load(&ran), 0);
	pool_raise(pool, &jobs[2].job); /* it ran: nothing happens */
	sem_post(&gate);
	sem_post(&gate);
	pool_free(pool);
	assert_int_equal(atomic_load(&ran), 2);
	sem_destroy(&gate);
	sem_destroy(&started);
}

#define SUBMITTERS 4u
#define JOBS_EACH  2000u

struct submitter {
	struct pool *pool;
	pthread_t thread;
	unsigned int refused;
	struct job jobs[JOBS_EACH];
};

static bool submit(struct submitter *s, unsigned int i)
{
	bool taken = pool_submit(s->pool, &s->jobs[i].job) == 0;

	s->refused += !taken;
	return taken;
}

static void *submit_all(void *arg)
{
	struct submitter *s = arg;

	for (unsigned int i = 0; i < JOBS_EACH; i++)
		test_wait(submit(s, i));
	return NULL;
}

static void many_submitters_lose_nothing(void **state)
{
	static struct submitter s[SUBMITTERS];
	struct pool *pool = pool_new("many", 3, 16);
	_Atomic unsigned int ran = 0;

	(void)state;
	assert_non_null(pool);
	for (unsigned int i = 0; i < SUBMITTERS; i++) {
		s[i].pool = pool;
		for (unsigned int j = 0; j < JOBS_EACH; j++)
			s[i].jobs[j] = (struct job){ .job.run = run, .ran = &ran };
		assert_int_equal(pthread_create(&s[i].thread, NULL, submit_all, &s[i]), 0);
	}
	for (unsigned int i = 0; i < SUBMITTERS; i++)
		pthread_join(s[i].thread, NULL);
	pool_free(pool);
	assert_int_equal(atomic_load(&ran), SUBMITTERS * JOBS_EACH);
	pool_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_queue_is_bounded),
		cmocka_unit_test(all_threads_work_at_once),
		cmocka_unit_test(threads_start_when_they_are_needed),
		cmocka_unit_test(idle_threads_end),
		cmocka_unit_test(threads_that_are_rarely_needed_end),
		cmocka_unit_test(a_thread_goes_on_with_its_pool),
		cmocka_unit_test(a_forked_process_makes_no_pool),
		cmocka_unit_test(pools_share_threads),
		cmocka_unit_test(pools_do_not_wait_for_each_other),
		cmocka_unit_test(threads_keep_the_priority_of_the_pool),
		cmocka_unit_test(idle_io_ends_with_the_job),
		cmocka_unit_test(a_job_may_submit_itself_again),
		cmocka_unit_test(background_leaves_a_thread),
		cmocka_unit_test(a_raised_job_runs_at_once),
		cmocka_unit_test(many_submitters_lose_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
