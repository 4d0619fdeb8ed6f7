/*
 * The linter: what webhooks and operators refuse, and what they accept though it never runs or runs wrong. A table of rules
 * (lint_rules.c) over objects of the engines; nothing is asked of a cluster.
 *
 * Lifetime: caller's. Threads: any; no globals.
 */
#pragma once

#include <jansson.h>
#include "base/err.h"

/*
 * Checks an array of objects, which may belong together. `findings`, an array, gets for each thing found {"object":
 * "PyTorchJob/x", "field": path, "rule": id, "level": "error"|"warning", "reason": text, "fix": text}. 0, or -ENOMEM.
 */
int job_lint(const json_t *objects, json_t *findings, struct err *e) __must_check;

/* Findings of level error. */
size_t job_lint_errors(const json_t *findings);

/* All rules, as {"rule", "level", "kinds", "field", "reason", "fix"}; NULL: -ENOMEM. */
json_t *job_lint_rules(void);
