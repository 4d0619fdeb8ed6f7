/* Connections that fail as the fault plane says, around any transport (net/transport.h). */
#pragma once

/* Every connection made or taken from here on. Once per process, before the first. */
void net_fault_install(void);
