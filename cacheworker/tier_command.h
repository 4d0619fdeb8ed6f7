/*
 * cacheworker tier init DIR: makes a tier, or takes over one that came from another disk, and ends.
 */
#pragma once

/* argv[0] is "tier". Returns the exit status; a failing command has printed its line. */
int tier_command(int argc, char **argv);
