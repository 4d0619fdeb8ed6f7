/*
 * A small HTTP server for tests of the S3 origin: one thread a connection, what it answers is the
 * test's.
 */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/check.h"

#define SERVER_CONNS 512
#define SERVER_HEAD  (128u << 10) /* of a request, with its body */

struct server;

struct server_conn {
	struct server *server;
	pthread_t thread;
	int fd; /* -1: ended */
};

struct server {
	/* Answers one request by server_put(); false: closes the connection. A body follows the blank line of the head. */
	bool (*answer)(struct server *server, int fd, const char *head);
	/* What lies between socket and HTTP, or NULL; returns false to give the connection up. */
	bool (*accepted)(struct server *server, int fd);
	void *arg;
	int fd;
	uint16_t port;
	pthread_t thread;
	pthread_mutex_t lock;
	struct server_conn conns[SERVER_CONNS];
	uint32_t n_conns;
};

/* Sends all of it, unless the client has gone. */
void server_put(int fd, const char *data, size_t len);
void server_puts(int fd, const char *text);

/* On a free port of 127.0.0.1. */
void server_start(struct server *server,
	bool (*answer)(struct server *server, int fd, const char *head), void *arg);

/* Closes all connections, and waits for their threads. */
void server_stop(struct server *server);

/* An answer as S3 gives it; `more` is further XML of the body. */
void server_error(int fd, int status, const char *code, const char *more);
