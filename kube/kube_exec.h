/*
 * Tokens of a program that a kubeconfig names (users[].user.exec), as clouds do it: client.authentication.k8s.io, v1 and v1beta1.
 *
 * It is run without a shell and without a terminal, with the arguments and variables of the kubeconfig; its token is kept until it
 * expires. Threads: any.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/yaml_tree.h"

struct kube_exec;

/* `node`: the value of exec, in the kubeconfig `config`. `server` and `ca_pem` (may be NULL) are what the program may learn about the
 * cluster. -EINVAL with its line. */
int kube_exec_new(const struct yaml_tree_node *node, const char *config, const char *server,
	const char *ca_pem, struct kube_exec **ret_exec, struct err *e) __must_check;
void kube_exec_free(struct kube_exec *exec);

/* Appends the token; runs the program when it has none, or it expires within a minute. -ENOKEY with its line. */
int kube_exec_token(struct kube_exec *exec, struct buf *out, struct err *e) __must_check;
/* The token is not accepted: the next one is asked for. */
void kube_exec_forget(struct kube_exec *exec);
