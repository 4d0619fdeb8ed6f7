/*
 * The commands of cachectl: each parses its own arguments and returns an exit status (base/exit.h).
 * A failing command has printed its one line.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/exit.h"

int command_mount(int argc, char **argv);
int command_umount(int argc, char **argv);
int command_refresh(int argc, char **argv);
int command_status(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_scrub(int argc, char **argv);
int command_dataset(int argc, char **argv);
int command_preload(int argc, char **argv);
int command_worker(int argc, char **argv);
int command_slots(int argc, char **argv);
int command_evict(int argc, char **argv);
int command_pin(int argc, char **argv);
int command_unpin(int argc, char **argv);
int command_top(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_backup(int argc, char **argv);
int command_restore(int argc, char **argv);
int command_job(int argc, char **argv);
int command_key(int argc, char **argv);
int command_token(int argc, char **argv);
int command_upgrade(int argc, char **argv);
int command_config(int argc, char **argv);
int command_completion(int argc, char **argv);
int command_version(int argc, char **argv);

/* Prints "cachectl: LINE" on standard error (base/error_line.h) and returns `status`. */
int command_fail(int status, struct err *e);

/* The exit status of an error that a master, a worker or a keeper answered, or that a check of this program found. */
int command_exit(int r);

/* The line for a path at or below which no mount of ours is that answers: whose it is then, or what
 * to do. */
int command_not_found(const char *path, struct err *e);

#define COMMAND_USER_BYTES 64
/* Name of a user, or its number. Returns out. */
const char *command_user_name(uid_t user, char out[COMMAND_USER_BYTES]);

/* How the commands are run as that user: "sudo cachectl", "sudo -u '#1000' cachectl". */
const char *command_as_user(unsigned int user, char *out, size_t size);
