/*
 * Makes the kernel learn that it need not ask us about opening: it sends one OPEN and one OPENDIR
 * of a connection, and none any more once they were answered ENOSYS.
 */
#pragma once

/*
 * Opens and closes the directory `root` and, unless NULL, `file` below it, in a process of its own:
 * who waits for an answer of this process must not be this process. 0, -ETIMEDOUT, or what open(2)
 * said.
 */
int learn_to_open(int root, const char *file) __attribute__((warn_unused_result));
