/* The workers as a mount knows them. See peers_json.h. */
#include "fuse/peers_json.h"
#include "base/clock.h"
#include "client/client_peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEERS_SHOWN    256u
#define PEERS_LABELLED 32u

json_t *peers_json(const struct client *client)
{
	struct client_peer *peers = calloc(PEERS_SHOWN, sizeof(*peers));
	uint32_t n = peers ? client_peers(client, peers, PEERS_SHOWN) : 0;
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++) {
		const struct client_peer *p = &peers[i];

		(void)json_array_append_new(
			list, json_pack("{s:s, s:s, s:s, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:f}",
				      "name", p->name, "address", p->address, "state", p->state,
				      "local", p->local, "connected", p->connected, "broken",
				      p->broken, "bytes", (json_int_t)p->bytes, "answers",
				      (json_int_t)p->answers, "failures", (json_int_t)p->failures,
				      "in_flight", (json_int_t)p->in_flight, "p99_s",
				      (double)p->p99_ns / (double)CLOCK_SECOND)); /* a row less */
	}
	free(peers);
	return list;
}

static uint64_t bytes_of(const struct client_peer *p)
{
	return p->bytes;
}

static uint64_t failures_of(const struct client_peer *p)
{
	return p->failures;
}

static uint64_t usable_of(const struct client_peer *p)
{
	return !p->broken && strcmp(p->state, "down") != 0;
}

static void write_family(struct metrics *m, const struct metric_family *family,
	const struct client_peer *peers, uint32_t n, uint64_t (*value)(const struct client_peer *p))
{
	uint64_t others = 0;

	metrics_family(m, family);
	for (uint32_t i = 0; i < n; i++) {
		if (i < PEERS_LABELLED)
			metrics_value(m, family,
				METRIC_LABELS(
					{ "worker", peers[i].name[0] ? peers[i].name : "local" }),
				value(&peers[i]));
		else
			others += value(&peers[i]);
	}
	if (n > PEERS_LABELLED)
		metrics_value(m, family, METRIC_LABELS({ "worker", "others" }), others);
}

void peers_metrics(const struct client *client, struct metrics *m)
{
	static const struct metric_family bytes = { "granary_mount_peer_bytes_total", COUNTER,
		"bytes", "Bytes that workers answered, by worker" };
	static const struct metric_family failures = { "granary_mount_peer_failures_total", COUNTER,
		"requests", "Requests that a worker did not answer" };
	static const struct metric_family usable = { "granary_mount_peer_usable", GAUGE, "workers",
		"1: the worker is used; 0: it is down, or passed over as it did not answer" };
	static const struct metric_family up = { "granary_mount_workers_up", GAUGE, "workers",
		"Workers that the slot table in use calls up or draining" };
	static const struct metric_family known = { "granary_mount_workers", GAUGE, "workers",
		"Workers that the slot table in use names, but for those that are out" };
	struct client_peer *peers = calloc(PEERS_SHOWN, sizeof(*peers));
	uint32_t n = peers ? client_peers(client, peers, PEERS_SHOWN) : 0;
	struct client_cluster cluster;

	client_cluster(client, &cluster);
	write_family(m, &bytes, peers, n, bytes_of);
	write_family(m, &failures, peers, n, failures_of);
	write_family(m, &usable, peers, n, usable_of);
	metrics_one(m, &up, cluster.up);
	metrics_one(m, &known, cluster.known);
	free(peers);
}

json_t *peers_cluster_json(const struct client *client)
{
	struct client_cluster cluster;

	client_cluster(client, &cluster);
	return json_pack("{s:I, s:I, s:i, s:i}", "epoch", (json_int_t)cluster.epoch, "sequence",
		(json_int_t)cluster.sequence, "up", (int)cluster.up, "known", (int)cluster.known);
}

void peers_chunk_json(const struct client *client, const struct client_volume *volume,
	uint64_t chunk, json_t *json)
{
	struct client_cluster cluster;
	struct client_serving serving;
	char text[2 * CLIENT_PEER_NAME + 2];

	client_cluster(client, &cluster);
	client_serving(volume, chunk, &serving);
	if ((cluster.known < 2 && serving.here) || !serving.owner[0])
		return;                                                       /* one host */
	(void)json_object_set_new(json, "owner", json_string(serving.owner)); /* absent without */
	if (strcmp(serving.owner, serving.serves) != 0)                       /* memory, each */
		(void)json_object_set_new(json, "serves", json_string(serving.serves));
	(void)snprintf(text, sizeof(text), "%s%s%s", serving.deputies[0],
		serving.deputies[0][0] && serving.deputies[1][0] ? " " : "",
		serving.deputies[1]); /* fits */
	if (text[0])
		(void)json_object_set_new(json, "deputies", json_string(text));
	if (serving.previous[0] && strcmp(serving.previous, serving.owner) != 0)
		(void)json_object_set_new(json, "previous_owner", json_string(serving.previous));
	if (serving.hot)
		(void)json_object_set_new(json, "hot", json_true());
	(void)json_object_set_new(json, "here", json_boolean(serving.here));
}
