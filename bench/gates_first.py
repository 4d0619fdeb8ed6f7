"""gates, first: a first epoch from an origin of 20 ms per request and 300 MB/s in total; the share of that pace."""

import os

from gates_data import MODES, SCALE
from harness import GiB, MiB, ROUNDS, SMALL, drop_caches, median, say

PACE = 300 * 1000 * 1000
LATENCY_MS = 20
TESTS = {  # bucket: (title, s3d's objects, gate)
    "first-small": ("first epoch, small files in random order, 4 threads", "%d,%d,100" % (int(10000 * SCALE), SMALL), 0.75),
    "first-large": ("first epoch, one file in order", "1,%d,1" % (int(GiB * SCALE) // MiB * MiB), 0.90),
}


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

    def epoch(self, number):
        """Everything empty before: the cache, the kernel's."""
        bench = self.bench
        directory = bench.mount("s3://%s/" % self.bucket, self.endpoint, self.bucket, "native", *MODES["demand"])
        drop_caches()
        before = bench.control("GET", self.control + "/stats")
        if len(self.keys) == 1:
            out = bench.read(self.bucket, os.path.join(directory, self.keys[0]), "--mode", "sequential")
        else:
            out = bench.read(
                self.bucket, directory, "--mode", "small", "--threads", "4", "--seed", str(number + 1), "--list",
                bench.path("list." + self.bucket)
            )  # fmt: skip
        after = bench.control("GET", self.control + "/stats")
        bench.umount(directory, forget=True)
        return {
            "pace": out["bytes"] / out["seconds"] / PACE,
            "cpu": (out["cpu"] + out["daemon_cpu"]) / (out["bytes"] / GiB),
            "get_kib": (after["get_bytes"] - before["get_bytes"]) / (after["get"] - before["get"]) / 1024,
            "bytes": (after["get_bytes"] - before["get_bytes"]) / out["bytes"],
            "most": after["max_gets"],
        }


def run(bench):
    say("\nfirst epoch: origin of %d MB/s and %d ms per GET, all caches empty before every run" % (PACE / 1e6, LATENCY_MS))
    sources = {bucket: First(bench, bucket, synthetic) for bucket, (_, synthetic, _) in TESTS.items()}
    epochs = {bucket: [] for bucket in sources}
    for number in range(ROUNDS):
        for bucket, first in sources.items():
            epochs[bucket].append(first.epoch(number))
    for bucket, (title, _, gate) in TESTS.items():
        paces = [epoch["pace"] for epoch in epochs[bucket]]
        middle = {name: median([epoch[name] for epoch in epochs[bucket]]) for name in epochs[bucket][0]}
        say(
            "  %s: %.2f of the pace (%.2f .. %.2f), CPU-s/GiB %.2f, GETs of %.0f KiB, %.3f bytes fetched per byte, at most %d in "
            "flight" % (title, middle["pace"], min(paces), max(paces), middle["cpu"], middle["get_kib"], middle["bytes"],
                        middle["most"])
        )  # fmt: skip
        for name, value in middle.items():
            bench.keep("gates.%s.%s" % (bucket, name), value)
        bench.verdicts.at_least(title + ", of the origin's pace", middle["pace"], gate)
