/*
 * Answers for programs: JSON, or the same as YAML.
 *
 * Threads: any.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include "base/check.h"
#include "base/option.h"

#define YAML_OUT_BYTES (16u << 20)

/* What every command that answers takes; `wide` has more columns where there are more. */
#define OUTPUT_CHOICES "table|wide|json|yaml"

/* For the table of a command whose struct `type` has a const char *`member`, "table" at first. */
#define OUTPUT_OPTION_ROW(type, member, words)                                               \
	OPTION_ROW(type, member, "output", OPTION_CHOICE, .letter = 'o', .choices = (words), \
		.help = "Form of the answer (default: table)")

/* -ENOMEM, -ENOBUFS (more than YAML_OUT_BYTES), -E2BIG (too deep), -EIO. */
int yaml_out(const json_t *json, FILE *out) __must_check;
/* `format`: "json" or "yaml"; JSON has a newline behind it. */
int yaml_out_as(const char *format, const json_t *json, FILE *out) __must_check;
/* The same as a command's answer on standard output; NULL: there was no memory for it. An exit status,
 * with its line when it failed. */
int yaml_out_answer(const char *format, const json_t *json) __must_check;
/* The same of what was made for it, which it releases. */
int yaml_out_made(const char *format, json_t *json) __must_check;
/* For people: as a table, wide or not. */
bool output_is_table(const char *format);
