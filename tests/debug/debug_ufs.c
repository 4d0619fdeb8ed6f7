/* Linked into debug programs that have a ufs: puts the fault plane over it before main(). */
#include "tests/debug/ufs_fault.h"

__attribute__((constructor)) static void begin(void)
{
	ufs_fault_install();
}
