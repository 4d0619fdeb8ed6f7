/*
 * Events about objects, as `kubectl describe` shows them.
 *
 * Sent by a thread of their own, so that a caller never waits for the server. An event that repeats is counted in the object that
 * exists (count, lastTimestamp); more than ten that differ in their message alone become one. An event that repeats without end is
 * sent 25 times at once and then every five minutes. What cannot be sent is dropped and counted: events are for people, and never
 * part of what a program decides.
 *
 * Lifetime: the client outlives the sender. Threads: any.
 */
#pragma once

#include "kube/kube.h"

/* Texts are copied. */
struct kube_event {
	const char *api_version; /* of the object that it is about */
	const char *kind;
	const char *name_space; /* NULL: the object has none */
	const char *name;
	const char *uid; /* NULL: not known */
	bool warning;
	const char *reason;  /* in CamelCase, for programs */
	const char *message; /* for people; cut at 1,024 bytes */
};

struct kube_events;

/* `component` and `host` name who reports: borrowed. NULL without memory or threads. */
struct kube_events *kube_events_new(struct kube *kube, const char *component, const char *host);
/* Sends what was accepted, then frees. */
void kube_events_free(struct kube_events *events);

/* -EAGAIN: too many wait already; -ENOMEM. */
int kube_event_send(struct kube_events *events, const struct kube_event *event) __must_check;
/* How many were accepted and not sent, because the server refused them or they repeated too often. */
uint64_t kube_events_dropped(const struct kube_events *events);
