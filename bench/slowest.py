"""What the slowest requests of readers waited for, as a worker counts it (granary_worker_origin_wait_seconds_total)."""

import re
import socket

PARTS = ("plan", "queue", "first_byte", "body", "joined", "reply")
VALUE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')


def metrics(path):
    """[(name, labels, value)] of the daemon with that admin socket."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.sendall(b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n")
        text = b"".join(iter(lambda: s.recv(1 << 16), b"")).decode()
    found = (VALUE.match(line) for line in text.splitlines())
    return [(m[1], dict(LABEL.findall(m[2] or "")), float(m[3])) for m in found if m]


def admin_socket(pids):
    """The admin socket of the cacheworker among these processes."""
    for pid in pids:
        with open("/proc/%s/cmdline" % pid, "rb") as f:
            words = f.read().decode().split("\0")
        if words[0].endswith("cacheworker") and "--admin" in words:
            return words[words.index("--admin") + 1]
    raise RuntimeError("no worker with an admin socket")


def parts(pids, most):
    """(requests, their mean time in seconds, {part: share}) of the slowest, by whole buckets, until there are `most`."""
    counts, seconds = {}, {}
    for name, labels, value in metrics(admin_socket(pids)):
        if name == "granary_worker_fetch_seconds_bucket" and labels["from"] == "origin":
            counts[float(labels["le"])] = value
        elif name == "granary_worker_origin_wait_seconds_total":
            seconds.setdefault(float(labels["took"]), {})[labels["part"]] = value
    n, below = 0, 0
    of_bucket = {}
    for bound in sorted(counts):  # as /metrics has them, each includes those below
        of_bucket[bound] = counts[bound] - below
        below = counts[bound]
    total = dict.fromkeys(PARTS, 0.0)
    for bound in sorted(of_bucket, reverse=True):
        if n >= most:
            break
        n += of_bucket[bound]
        for part, value in seconds.get(bound, {}).items():
            total[part] += value
    every = sum(total.values())
    return int(n), every / n if n else 0, {part: value / every if every else 0 for part, value in total.items()}
