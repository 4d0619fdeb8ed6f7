/*
 * What the files of members share. See members.h.
 *
 *	members		the object: finding, numbers, beats
 *	member_join	who comes in, and as whom
 *	member_state	up, down, out
 *	member_drain	taking members out
 *	member_record	as the store has them
 */
#pragma once

#include "master/events.h"
#include "master/members.h"

/* ---- members.c ------------------------------------------------------------------------------- */

/* Also one whose number rests. */
struct member *members_any_by_id(const struct members *members, uint64_t id);
bool member_is(const struct member *m); /* NULL, or one whose number rests: not */
/* Owns slots, or is to. */
bool member_owns(const struct member *m);
bool member_is_alive(const struct member *m);
/* Does anybody else? `up`: who is up, too. */
bool members_another_owns(const struct members *members, const struct member *than, bool up);
void members_set_id(struct members *members, struct member *m, uint64_t id);
/* The number of a failure domain: one of its own for a new name. */
uint16_t members_domain(const struct members *members, const char *name);

/* ---- member_state.c -------------------------------------------------------------------------- */

void members_changed(struct members *members, const struct member *m, bool moves);
/* For people: an event and a line of the log. */
void member_note(const struct member *m, enum event_level level, const char *what);
void members_set_state(struct members *members, struct member *m, enum cluster_state state);
enum cluster_state member_alive_state(const struct member *m);
/* It is heard of: whatever it was, it is there. */
void members_be_heard(struct members *members, struct member *m, uint64_t now);

/* ---- member_drain.c -------------------------------------------------------------------------- */

/* The number of a new drain: random, not 0. What was counted for another drain says nothing of this one, as between
 * the two it owned slots. */
uint32_t member_drain_number(void);
