/* Pipes that answers go out through. See pipes.h. */
#include "cacheworker/pipes.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <unistd.h>

void pipes_init(struct pipes *pipes)
{
	*pipes = (struct pipes){ .n = 0 };
	pthread_mutex_init(&pipes->lock, NULL);
}

static void pipe_close(const struct pipe_ends *pipe)
{
	(void)close(pipe->out); /* nothing is written to a disk by it */
	(void)close(pipe->in);  /* as above */
}

void pipes_release(struct pipes *pipes)
{
	ensure(pipes->n == pipes->n_idle);
	for (uint32_t i = 0; i < pipes->n_idle; i++)
		pipe_close(&pipes->idle[i]);
	pthread_mutex_destroy(&pipes->lock);
}

static int pipe_open(struct pipe_ends *ret_pipe)
{
	int ends[2];
	struct pipe_ends pipe;
	int r;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return err_errno();
	pipe = (struct pipe_ends){ .out = ends[0], .in = ends[1] };
	r = fcntl(pipe.in, F_SETPIPE_SZ, LIMIT_PAYLOAD_BYTES) < 0 ? err_errno() : 0;
	if (r < 0)
		pipe_close(&pipe);
	else
		*ret_pipe = pipe;
	return r;
}

static void forget(struct pipes *pipes)
{
	pthread_mutex_lock(&pipes->lock);
	pipes->n--;
	pthread_mutex_unlock(&pipes->lock);
}

int pipes_take(struct pipes *pipes, struct pipe_ends *ret_pipe)
{
	bool made = false;
	int r = 0;

	pthread_mutex_lock(&pipes->lock);
	if (pipes->n_idle) {
		*ret_pipe = pipes->idle[--pipes->n_idle];
	} else if (pipes->n < LIMIT_PIPES) {
		pipes->n++;
		made = true;
	} else {
		r = -EBUSY;
	}
	pthread_mutex_unlock(&pipes->lock);
	if (!made)
		return r;
	r = pipe_open(ret_pipe);
	if (r < 0)
		forget(pipes);
	return r;
}

void pipes_give(struct pipes *pipes, struct pipe_ends pipe)
{
	int left = 0;

	if (pipe.out <= 0)
		return;
	if (ioctl(pipe.out, FIONREAD, &left) != 0 || left > 0) {
		pipe_close(&pipe); /* its answer was not sent, or not all of it */
		forget(pipes);
		return;
	}
	pthread_mutex_lock(&pipes->lock);
	pipes->idle[pipes->n_idle++] = pipe;
	pthread_mutex_unlock(&pipes->lock);
}
