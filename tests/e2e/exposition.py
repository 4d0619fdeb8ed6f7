"""A strict reader of what /metrics answers: the text format of Prometheus (0.0.4), and OpenMetrics 1.0."""

import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|Inf)|NaN")


class Family:
    def __init__(self, name, help_text):
        self.name = name
        self.help = help_text
        self.kind = None
        self.samples = {}  # {(name, ((label, value), ...)): number}


def wrong(number, line, why):
    raise AssertionError("line %d of /metrics: %s: %s" % (number, why, line))


def labels_of(text, number, line):
    found, at = [], 0
    while at < len(text):
        match = LABEL.match(text, at)
        if not match:
            wrong(number, line, "labels")
        found.append((match.group(1), re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), match.group(2))))
        at = match.end()
        if at < len(text):
            if text[at] != ",":
                wrong(number, line, "labels")
            at += 1
    if len({name for name, _ in found}) != len(found):
        wrong(number, line, "a label twice")
    return tuple(sorted(found))


def suffixes(family, is_open):
    if family.kind == "histogram":
        return ("_bucket", "_sum", "_count")
    return ("_total",) if family.kind == "counter" and is_open else ("",)


def parse(text, is_open=False):
    """{name: Family}; a counter's name is with _total in both formats. Raises on anything that is not as it must be."""
    families, current = {}, None
    if not text.endswith("# EOF\n" if is_open else "\n"):
        raise AssertionError("the end of /metrics: %r" % text[-80:])
    for number, line in enumerate(text.split("\n")[:-1], 1):
        if line == "# EOF" and is_open:
            if number != text.count("\n"):
                wrong(number, line, "not at the end")
            break
        if line.startswith("# HELP "):
            name, _, help_text = line[7:].partition(" ")
            if not NAME.fullmatch(name) or not help_text or name in families:
                wrong(number, line, "a family twice, or without a name or help")
            current = families[name] = Family(name, help_text)
        elif line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            if not current or current.name != name or current.kind or kind not in ("counter", "gauge", "histogram"):
                wrong(number, line, "type")
            if not is_open and (kind == "counter") != name.endswith("_total"):
                wrong(number, line, "counters end with _total, nothing else does")
            current.kind = kind
        else:
            sample(families, current, number, line, is_open)
    for family in families.values():
        if not family.kind:
            raise AssertionError(family.name + " has no type")
        if family.kind == "histogram":
            check_histogram(family)
    return {f.name + ("_total" if is_open and f.kind == "counter" else ""): f for f in families.values()}


def sample(families, current, number, line, is_open):
    match = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", line)
    if not match or not NUMBER.fullmatch(match.group(3)):
        wrong(number, line, "no sample")
    name, labels = match.group(1), labels_of(match.group(2) or "", number, line)
    if not current or not current.kind or name not in [current.name + s for s in suffixes(current, is_open)]:
        wrong(number, line, "not in its family")
    if (name, labels) in current.samples:
        wrong(number, line, "twice")
    value = float(match.group(3))
    if current.kind != "gauge" and value < 0:
        wrong(number, line, "negative")
    current.samples[name, labels] = value


def check_histogram(family):
    series = {}
    for (name, labels), value in family.samples.items():
        if name.endswith("_bucket"):
            rest = tuple(item for item in labels if item[0] != "le")
            series.setdefault(rest, []).append((float(dict(labels)["le"]), value))
    for rest, buckets in series.items():
        buckets.sort()
        counts = [count for _, count in buckets]
        if buckets[-1][0] != float("inf") or counts != sorted(counts):
            raise AssertionError("%s: buckets %s" % (family.name, buckets))
        if family.samples[family.name + "_count", rest] != counts[-1] or (family.name + "_sum", rest) not in family.samples:
            raise AssertionError("%s: count or sum" % family.name)


def value(families, name, **labels):
    """The sum of the samples of that name that have these labels."""
    family = families[re.sub(r"_(bucket|sum|count)$", "", name) if name not in families else name]
    found = [v for (n, have), v in family.samples.items() if n == name and set(labels.items()) <= set(have)]
    if not found:
        raise AssertionError("no sample %s%s" % (name, labels))
    return sum(found)
