/* Which engine. See engine.h. */
#include "fuse/engine/engine.h"
#include "mount/kernel/kernel.h"
#include "mount/mounter.h"

#include <stdio.h>
#include <string.h>

const struct engine *const engine_list[] = { &engine_native, &engine_loop, &engine_fuse, NULL };

const struct engine *engine_of_number(uint32_t number)
{
	const struct engine *const *at = engine_list;

	while (*at && (*at)->number != number)
		at++;
	return *at;
}

static const struct engine *engine_of_option(const char *option)
{
	const struct engine *const *at = engine_list;

	while (*at && strcmp((*at)->option, option) != 0)
		at++;
	return *at;
}

/* The one that was asked for; if it cannot be had, whether another could. */
static int choose_named(const struct engine_query *query, const struct engine **ret, struct err *e)
{
	const struct engine *engine = engine_of_option(query->engine);
	int r;

	if (!engine)
		return err_set(e, -EINVAL, "unknown engine \"%s\": give auto, native, loop or fuse",
			query->engine);
	r = engine->probe(query, e);
	if (r < 0 && engine == &engine_native && engine_loop.probe(query, NULL) == 0) {
		engine = &engine_loop;
		r = 0;
	}
	if (r == 0) {
		*ret = engine;
		return 0;
	}
	if (engine != &engine_fuse && engine_fuse.probe(query, NULL) == 0 && e) {
		struct err line = *e;

		return err_set(e, r, "%s, or use --engine fuse", line.text);
	}
	return r;
}

/* A text that was cut inside a character of UTF-8 ends before it: JSON takes nothing else. */
static void end_whole(char *text)
{
	size_t len = strlen(text);
	size_t at = len;

	while (at > 0 && len - at < 3 && ((unsigned char)text[at - 1] & 0xc0) == 0x80)
		at--;
	if (at > 0 && (unsigned char)text[at - 1] >= 0xc0) {
		unsigned char first = (unsigned char)text[at - 1];
		size_t whole = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;

		if (len - (at - 1) < whole)
			text[at - 1] = '\0';
	}
}

/* One line more for what cannot be had. */
static void add_line(char why[SLOTS_WHY_BYTES], const char *what, const char *line)
{
	size_t len = strlen(why);

	(void)snprintf(why + len, SLOTS_WHY_BYTES - len, "%s%snot %s: %s", len ? "; " : "",
		len ? "" : "auto: ", what, line); /* cut where it is too long: only words */
	end_whole(why);
}

/* `why` gets the lines of those that cannot be had. */
static int choose_any(const struct engine_query *query, const struct engine **ret,
	char why[SLOTS_WHY_BYTES], struct err *e)
{
	struct err native = ERR_INIT;
	struct err loop = ERR_INIT;
	struct err fuse = ERR_INIT;
	int r = engine_native.probe(query, &native);

	why[0] = '\0';
	if (r == 0) {
		*ret = &engine_native;
		(void)snprintf(why, SLOTS_WHY_BYTES, "auto: %s", engine_native.auto_why); /* fits */
		return 0;
	}
	if (engine_loop.probe(query, &loop) == 0) {
		*ret = &engine_loop;
		add_line(why, "from files", native.text);
		return 0;
	}
	add_line(why, "native", native.text);
	if (strcmp(native.text, loop.text) != 0)
		add_line(why, "over a loop device", loop.text);
	r = engine_fuse.probe(query, &fuse);
	if (r == 0) {
		*ret = &engine_fuse;
		return 0;
	}
	return err_set(e, r, "neither engine can mount here: fuse: %s; native: %s", fuse.text,
		native.text);
}

static int check_context(const struct engine_query *query, struct err *e)
{
	if (!query->context)
		return 0;
	if (!kernel_has_selinux())
		return err_set(e, -EINVAL,
			"--context needs SELinux, which this kernel does not run: leave it out");
	if (!mounter_may_mount())
		return err_set(e, -EPERM, "--context needs root: run it as root, or leave it out");
	return 0;
}

int engine_choose(const struct engine_query *query, const struct engine **ret_engine,
	char ret_why[SLOTS_WHY_BYTES], struct err *e)
{
	char why[SLOTS_WHY_BYTES];
	int r = check_context(query, e);

	if (r < 0)
		return r;
	if (strcmp(query->engine, "auto") == 0) {
		r = choose_any(query, ret_engine, why, e);
	} else {
		r = choose_named(query, ret_engine, e);
		(void)snprintf(why, sizeof(why), "%s: requested", query->engine); /* fits */
	}
	if (r == 0)
		memcpy(ret_why, why, sizeof(why));
	return r;
}
