"""docs/messages.md against what is really printed."""

import os
import re

import e2e

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LEAST = 6  # letters that a row must have to mean anything: "…: …" fits all


def _patterns():
    with open(os.path.join(TOP, "docs/messages.md"), encoding="utf-8") as f:
        rows = re.findall(r"^\| (`+) ?(.*?) ?\1 \| [A-Z0-9 ]*\|", f.read(), re.M)
    texts = [text.replace("\\|", "|") for _, text in rows]
    return [re.compile(".*?".join(map(re.escape, text.split("…")))) for text in texts if len(re.findall("[a-z]", text)) >= LEAST]


def check(line):
    """The line, or what stands behind one of its colons, is a row of the page."""
    starts = [0] + [match.end() for match in re.finditer(": ", line)]
    e2e.check(any(pattern.match(line, start) for pattern in PATTERNS for start in starts), "not in docs/messages.md: " + line)


PATTERNS = _patterns()
