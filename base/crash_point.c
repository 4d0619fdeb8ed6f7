/* See crash_point.h. */
#include "base/crash_point.h"

void (*crash_point_hook)(const char *name);
