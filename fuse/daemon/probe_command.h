/* cachefuse --probe: which engines could mount here, for `cachectl doctor`. */
#pragma once

/*
 * Prints {"engines": [{"name", "ok", "text"}], "auto", "protocol"} and returns an exit status.
 * `auto`: the engine that --engine auto would take, absent when none; `protocol`: the kernel's FUSE
 * version, absent where it was not to be had without mounting for all to see. Leaves nothing
 * behind.
 */
int probe_command(int argc, char **argv);
