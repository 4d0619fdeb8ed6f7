/*
 * A server over TCP, files of keys and of a token, and both ends of a handshake by hand: what test_tls.c and test_handshake.c have
 * in common. What fails ends the test.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "net/net.h"
#include "net/tls_internal.h"

#define KEY_A                           \
	"granary-cluster-key 0000000a " \
	"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a\n"
#define KEY_B                           \
	"granary-cluster-key 0000000b " \
	"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b\n"
/* The id of A, and another key. */
#define KEY_FALSE                       \
	"granary-cluster-key 0000000a " \
	"0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c\n"

extern const struct rpc_server_ops world_ops; /* answers each FETCH with `answer` */

struct tls_world {
	char dir[64];
	char key[96];
	char token[96];
	struct loop *server_loop;
	struct loop *client_loop;
	struct rpc_server *server;
	struct peer_identity seen; /* of the last request */
	uint8_t answer[40000];
};

/* For cmocka. The world has KEY_A, and the process has loaded it. */
int world_set_up(void **state);
int world_tear_down(void **state);

uint64_t now_s(void);
void world_write(const char *path, const char *text);
/* As net_keys_load(). */
int world_load(const char *key, const char *token, bool encrypt_data);
/* One call over a connection of its own, made with what is loaded now; its status. The server has what was loaded when it accepted. */
int world_call(struct tls_world *f, struct err *e);
/* A token of KEY_A in f->token. */
void world_make_token(struct tls_world *f, uint64_t expires_s, bool admin);
/* The text of that file. */
void world_token_text(const struct tls_world *f, char out[TOKEN_TEXT_MAX]);
void world_read_token(const struct tls_world *f, struct token *ret_token);

/* Both ends, with the same key file. A reference to the client's keys. */
struct keyring *tls_pair(bool server_encrypts, bool client_encrypts, const char *key,
	struct tls **ret_server, struct tls **ret_client);
/* What one has to say to the other. */
void tls_carry(struct tls *from, struct tls *to);
/* The handshake up to its end: of the server, and of the client. */
int tls_shake(struct tls *server, struct tls *client, int *ret_client);
/* The client shows who it is: 1, and *ret_peer, if the server believes it. */
int tls_show(const struct tls *client, const struct tls *server, struct peer_identity *ret_peer);
/* A client with these keys (NULL: without) and token, and a server with those: 1, and f->seen, when both believe each other. */
int world_meet(struct tls_world *f, const char *server_keys, const char *client_keys,
	const char *client_token);
