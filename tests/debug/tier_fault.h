/* A disk that fails as the fault plane says, around another (tiers/disk.h). */
#pragma once

/* Puts it over the table in use; once per process, while no tier is open. */
void tier_fault_install(void);
