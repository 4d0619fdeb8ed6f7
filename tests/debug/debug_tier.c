/* Linked into debug programs that have a tier: puts the fault plane over it before main(). */
#include "tests/debug/tier_fault.h"

__attribute__((constructor)) static void begin(void)
{
	tier_fault_install();
}
