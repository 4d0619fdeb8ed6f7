/* What a reader knows of the workers. See client_peers.h. */
#include "client/client_peers.h"
#include "client/client_internal.h"

#include <stdlib.h>
#include <string.h>

static void copy_text(char *out, size_t size, const char *in)
{
	size_t len = strnlen(in, size - 1);

	memcpy(out, in, len);
	out[len] = '\0';
}

uint32_t client_peers(const struct client *client, struct client_peer *peers, uint32_t max)
{
	struct view_status *statuses = calloc(max, sizeof(*statuses));
	uint32_t n = statuses ? view_list(client->view, statuses, max) : 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct view_status *s = &statuses[i];

		peers[i] = (struct client_peer){ .state = cluster_state_name(s->state),
			.local = s->local,
			.connected = s->connected,
			.broken = s->broken,
			.bytes = s->bytes,
			.answers = s->answers,
			.failures = s->failures,
			.in_flight = s->in_flight,
			.p99_ns = s->p99_ns };
		copy_text(peers[i].name, sizeof(peers[i].name), s->name);
		copy_text(peers[i].address, sizeof(peers[i].address), s->address);
	}
	free(statuses);
	return n;
}

void client_cluster(const struct client *client, struct client_cluster *ret)
{
	view_version(client->view, &ret->epoch, &ret->sequence);
	view_count(client->view, &ret->up, &ret->known);
}

static void name_of(struct view *view, uint16_t number, char out[CLIENT_PEER_NAME])
{
	const struct view_peer *peer = view_peer(view, number);

	out[0] = '\0';
	if (peer)
		copy_text(out, CLIENT_PEER_NAME, peer->name);
}

void client_serving(const struct client_volume *volume, uint64_t chunk, struct client_serving *ret)
{
	struct view *view = volume->client->view;
	struct view_candidates c;

	view_find(view, volume->hash, chunk, &c);
	*ret = (struct client_serving){ .hot = c.hot };
	name_of(view, c.owner, ret->owner);
	name_of(view, c.previous, ret->previous);
	name_of(view, c.replicas[0], ret->deputies[0]);
	name_of(view, c.replicas[1], ret->deputies[1]);
	if (c.n)
		copy_text(ret->serves, sizeof(ret->serves), c.peers[0]->name);
	ret->here = c.n && c.peers[0] == view_local(view);
}
