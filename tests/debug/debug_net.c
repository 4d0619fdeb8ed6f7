/* Linked into debug programs: puts the fault plane over every connection before main(). */
#include "tests/debug/net_fault.h"

__attribute__((constructor)) static void begin(void)
{
	net_fault_install();
}
