/* What a load generator used itself. Any thread. */
#pragma once

/* CPU seconds of this process so far, user and system, all threads. */
double cpu_seconds(void);
