"""gates, first: a first epoch from an origin of 20 ms per request and 300 MB/s in total; the share of that pace.

Judged is whether enough requests are in flight to fill the way to the origin: the rate at which the origin sends from the first
tenth of the bytes to the last twentieth. Before that a random epoch fetches little more than it is asked for (fill policy), and what
was read when the last byte has come depends on how many read (docs/decisions/first-epoch.md).
"""

import os
import threading
import time

from gates_data import MODES, SCALE
from harness import GiB, MiB, ROUNDS, SMALL, drop_caches, median, say

PACE = 300 * 1000 * 1000
LATENCY_MS = 20
GATE = 0.90
SAMPLE_SECONDS = 0.05
TESTS = {  # bucket: (title, s3d's objects)
    "first-small": ("first epoch, small files in random order, 4 threads", "%d,%d,100" % (int(10000 * SCALE), SMALL)),
    "first-large": ("first epoch, one file in order", "1,%d,1" % (int(GiB * SCALE) // MiB * MiB)),
}


class Sent:
    """Bytes that the origin has sent, as time goes by."""

    def __init__(self, stats):
        self.stats = stats
        self.samples = []  # (seconds, bytes)
        self.enough = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        while not self.enough.wait(SAMPLE_SECONDS):
            self.samples.append((time.monotonic(), self.stats()["get_bytes"]))

    def rate(self):
        """Bytes per second in the middle. Ends it."""
        self.enough.set()
        self.thread.join()
        first, last = self.samples[0][1], self.samples[-1][1]
        began = next(s for s in self.samples if s[1] - first >= 0.10 * (last - first))
        ended = next(s for s in self.samples if s[1] - first >= 0.95 * (last - first))
        return (ended[1] - began[1]) / (ended[0] - began[0]) if ended[0] > began[0] else float("nan")


class First:
    def __init__(self, bench, bucket, synthetic):
        self.bench = bench
        self.bucket = bucket
        self.endpoint, self.control = bench.start_s3d("--synthetic", synthetic, "--bucket", bucket)
        self.keys = bench.keys(self.endpoint, bucket)
        with open(bench.path("list." + bucket), "w") as f:
            f.writelines(key + "\n" for key in self.keys)
        for rule in ({"kind": "total", "bps": PACE}, {"kind": "latency", "ms": LATENCY_MS, "op": "get"}):
            bench.control("POST", self.control + "/faults", **rule)

    def stats(self):
        return self.bench.control("GET", self.control + "/stats")

    def epoch(self, number):
        """Everything empty before: the cache, the kernel's."""
        bench = self.bench
        directory = bench.mount("s3://%s/" % self.bucket, self.endpoint, self.bucket, "native", *MODES["demand"])
        drop_caches()
        before = self.stats()
        sent = Sent(self.stats)
        if len(self.keys) == 1:
            out = bench.read(self.bucket, os.path.join(directory, self.keys[0]), "--mode", "sequential")
        else:
            out = bench.read(
                self.bucket, directory, "--mode", "small", "--threads", "4", "--seed", str(number + 1), "--list",
                bench.path("list." + self.bucket)
            )  # fmt: skip
        rate = sent.rate()
        after = self.stats()
        bench.umount(directory, forget=True)
        return {
            "sent": rate / PACE,
            "pace": out["bytes"] / out["seconds"] / PACE,
            "cpu": (out["cpu"] + out["daemon_cpu"]) / (out["bytes"] / GiB),
            "get_kib": (after["get_bytes"] - before["get_bytes"]) / (after["get"] - before["get"]) / 1024,
            "bytes": (after["get_bytes"] - before["get_bytes"]) / out["bytes"],
            "most": after["max_gets"],
        }


def run(bench):
    say("\nfirst epoch: origin of %d MB/s and %d ms per GET, all caches empty before every run" % (PACE / 1e6, LATENCY_MS))
    sources = {bucket: First(bench, bucket, synthetic) for bucket, (_, synthetic) in TESTS.items()}
    epochs = {bucket: [] for bucket in sources}
    for number in range(ROUNDS):
        for bucket, first in sources.items():
            epochs[bucket].append(first.epoch(number))
    for bucket, (title, _) in TESTS.items():
        paces = [epoch["pace"] for epoch in epochs[bucket]]
        middle = {name: median([epoch[name] for epoch in epochs[bucket]]) for name in epochs[bucket][0]}
        say(
            "  %s: the origin sends %.2f of its pace, the epoch takes %.2f of it (%.2f .. %.2f), CPU-s/GiB %.2f, GETs of %.0f KiB, "
            "%.3f bytes fetched per byte, at most %d in flight" % (
                title, middle["sent"], middle["pace"], min(paces), max(paces), middle["cpu"], middle["get_kib"], middle["bytes"],
                middle["most"]
            )
        )  # fmt: skip
        for name, value in middle.items():
            bench.keep("gates.%s.%s" % (bucket, name), value)
        bench.verdicts.at_least(title + ": the origin sends, of its pace", middle["sent"], GATE)
