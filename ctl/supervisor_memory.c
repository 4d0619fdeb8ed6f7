/*
 * The memory of a private cluster (--memory) shared out between its daemons: three eighths for the
 * worker, a quarter for the master (a listing is faster when it need not go to disk), the rest for
 * mounts, which the keeper shares out.
 */
#include "ctl/supervisor.h"

uint64_t supervisor_memory_worker(const struct supervisor_config *config)
{
	return config->memory / 8 * 3;
}

uint64_t supervisor_memory_master(const struct supervisor_config *config)
{
	return config->memory / 4;
}

uint64_t supervisor_memory_keeper(const struct supervisor_config *config)
{
	return config->memory - supervisor_memory_worker(config) - supervisor_memory_master(config);
}
