/* The way to a tier's disk. See gate_internal.h. */
#include "tiers/gate_internal.h"

#include <errno.h>
#include <stdatomic.h>

void gate_init(struct gate *gate)
{
	*gate = (struct gate){ .stall_ns = GATE_STALL_NS };
	pthread_mutex_init(&gate->lock, NULL);
	pthread_cond_init(&gate->freed, NULL);
}

void gate_release(struct gate *gate)
{
	pthread_cond_destroy(&gate->freed);
	pthread_mutex_destroy(&gate->lock);
}

void gate_set_stall(struct gate *gate, uint64_t ns)
{
	pthread_mutex_lock(&gate->lock);
	gate->stall_ns = ns;
	pthread_mutex_unlock(&gate->lock);
}

bool gate_is_stalled(const struct gate *gate)
{
	return atomic_load_explicit(&gate->stalled, memory_order_relaxed);
}

static bool find_free_locked(const struct gate *gate, struct gate_call *call)
{
	for (call->slot = 0; call->slot < GATE_CALLS; call->slot++)
		if (gate->began[call->kind][call->slot] == 0)
			return true;
	return false;
}

int gate_enter(struct gate *gate, enum gate_kind kind, struct gate_call *ret_call)
{
	struct gate_call call = { .kind = kind };
	bool probe = kind == GATE_PROBE;
	int r = -EIO;

	pthread_mutex_lock(&gate->lock);
	while (probe || !gate_is_stalled(gate)) {
		if (find_free_locked(gate, &call)) {
			gate->began[kind][call.slot] = clock_mono_ns();
			*ret_call = call;
			r = 0;
			break;
		}
		pthread_cond_wait(&gate->freed, &gate->lock);
	}
	pthread_mutex_unlock(&gate->lock);
	return r;
}

static uint64_t longest_locked(const struct gate *gate, uint64_t now)
{
	uint64_t longest = 0;

	for (uint32_t kind = 0; kind < GATE_KINDS; kind++) {
		for (uint32_t slot = 0; slot < GATE_CALLS; slot++) {
			uint64_t began = gate->began[kind][slot];

			if (began && began < now)
				longest = max(longest, now - began);
		}
	}
	return longest;
}

static void set_stalled_locked(struct gate *gate, bool stalled)
{
	if (gate_is_stalled(gate) == stalled)
		return;
	atomic_store(&gate->stalled, stalled);
	pthread_cond_broadcast(&gate->freed);
}

void gate_leave(struct gate *gate, const struct gate_call *call)
{
	pthread_mutex_lock(&gate->lock);
	gate->began[call->kind][call->slot] = 0;
	if (gate_is_stalled(gate) && longest_locked(gate, clock_mono_ns()) < gate->stall_ns)
		set_stalled_locked(gate, false);
	pthread_cond_broadcast(&gate->freed); /* some wait for other kinds */
	pthread_mutex_unlock(&gate->lock);
}

uint64_t gate_tick(struct gate *gate, uint64_t now)
{
	uint64_t longest;

	pthread_mutex_lock(&gate->lock);
	longest = longest_locked(gate, now);
	set_stalled_locked(gate, longest >= gate->stall_ns);
	pthread_mutex_unlock(&gate->lock);
	return longest;
}
