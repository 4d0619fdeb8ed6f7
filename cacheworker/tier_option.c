/* --tier. See tier_option.h. */
#include "cacheworker/tier_option.h"
#include "base/units.h"

#include <string.h>

#define KIND     "kind="
#define CAPACITY "capacity="

/* One "name=value" behind the directory. */
static int take_setting(struct tier_config *config, const char *text, struct err *e)
{
	if (strncmp(text, KIND, strlen(KIND)) == 0) {
		const char *kind = text + strlen(KIND);

		if (tier_kind_parse(kind, &config->kind) == 0)
			return 0;
		return err_set(e, -EINVAL, "unknown kind '%s': use auto|ram|nvme|ssd|hdd", kind);
	}
	if (strncmp(text, CAPACITY, strlen(CAPACITY)) == 0) {
		int r = units_parse_size(text + strlen(CAPACITY), &config->capacity, e);

		return r < 0 ? -EINVAL : 0;
	}
	return err_set(
		e, -EINVAL, "unknown setting '%s': write DIR[,kind=KIND][,capacity=SIZE]", text);
}

/* Cuts the settings off, from the first comma on. */
static int parse_one(
	struct tier_config *config, char path[PATH_MAX], const char *given, struct err *e)
{
	char *rest;
	char *text;
	int r = 0;

	if (strlen(given) >= PATH_MAX)
		return err_set(e, -EINVAL, "the path is too long: at most %d bytes", PATH_MAX - 1);
	memcpy(path, given, strlen(given) + 1);
	text = strchr(path, ',');
	if (text)
		*text++ = '\0';
	if (!path[0])
		return err_set(e, -EINVAL, "no directory: write --tier DIR");
	for (text = text ? strtok_r(text, ",", &rest) : NULL; text && r == 0;
		text = strtok_r(NULL, ",", &rest))
		r = take_setting(config, text, e);
	return r;
}

int tier_option_check(const char *given, struct err *e)
{
	struct tier_config config = { 0 };
	struct err why = ERR_INIT;
	char path[PATH_MAX];

	if (parse_one(&config, path, given, &why) < 0)
		return err_set(e, -EINVAL,
			"'%.256s': %s; allowed: DIR[,kind=auto|ram|nvme|ssd|hdd][,capacity=SIZE]",
			given, why.text);
	return 0;
}

static int check_one(struct tier_options *options, unsigned int i, struct err *e)
{
	const struct tier_config *config = &options->configs[i];

	for (unsigned int other = 0; other < i; other++)
		if (strcmp(options->paths[other], options->paths[i]) == 0)
			return err_set(
				e, -EINVAL, "--tier %s is given twice: give it once", config->path);
	if (config->kind == TIER_RAM && config->capacity == 0)
		return err_set(e, -EINVAL,
			"--tier %s: a tier in memory needs a capacity: add capacity=SIZE",
			config->path);
	return 0;
}

int tier_options_parse(struct tier_options *options, const struct option_list *given,
	uint64_t capacity, bool create, const char *remembered, struct err *e)
{
	*options = (struct tier_options){ .n = given->n };
	for (unsigned int i = 0; i < given->n; i++) {
		struct tier_config *config = &options->configs[i];
		struct err why = ERR_INIT;
		int r;

		*config = (struct tier_config){ .path = options->paths[i],
			.capacity = i == 0 ? capacity : 0,
			.create = create,
			.remembered = remembered };
		r = parse_one(config, options->paths[i], given->values[i], &why);
		if (r < 0)
			return err_set(e, r, "--tier %.256s: %s", given->values[i], why.text);
		r = check_one(options, i, e);
		if (r < 0)
			return r;
		if (config->kind == TIER_RAM)
			options->ram += config->capacity;
	}
	return 0;
}

int tier_options_memory(const struct tier_options *options, uint64_t memory, uint64_t least,
	uint64_t *ret_rest, struct err *e)
{
	char ram[16];
	char wants[16];

	if (memory < options->ram || memory - options->ram < least)
		return err_set(e, -EINVAL,
			"--memory is too small: the tiers in memory are a part of it and take %s; "
			"give at least %s",
			units_size(options->ram, ram, sizeof(ram)),
			units_size(options->ram + least, wants, sizeof(wants)));
	*ret_rest = memory - options->ram;
	return 0;
}

const char *tier_options_home(const struct tier_options *options)
{
	for (unsigned int i = 0; i < options->n; i++)
		if (options->configs[i].kind != TIER_RAM)
			return options->configs[i].path;
	return options->configs[0].path;
}
