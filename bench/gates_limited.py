"""gates, limited: data four times the memory that reader and daemons together have, page cache included; tier on disk.

The last stage that uses the data: its mounts end with it.
"""

from cgroup import Group
from gates_data import FILES, SHARD, SHARDS, wait_sealed
from harness import GiB, MiB, ROUNDS, SMALL, drop_caches, say

TIMES = 4
LEAST = 384 * MiB  # below it daemons do not work: with a small BENCH_SCALE the data is less than four times
MEMORY = "192MiB"  # of that the daemons'
LIMITS = {"demand": 0.80, "sealed": 0.90}
THREADS = 4

TESTS = {"small": ("small files", FILES * SMALL), "shards": ("shards, each in order", SHARDS * SHARD)}


class Limited:
    """Each system in a group of its own."""

    def __init__(self, bench):
        self.bench = bench
        self.limit = max(min(total for _, total in TESTS.values()) // TIMES, LEAST)
        self.groups = {}

    def start(self, name):
        """The system's daemons end and begin again inside the group; their cache stays."""
        group = self.groups[name] = Group(name, self.limit)
        if name == "local":
            return
        data = self.bench.data
        self.bench.umount(data.mounts[name])
        data.mount(name, "--memory", MEMORY, within=group.within)
        group.check(self.bench.pids(name))
        if name == "sealed":
            wait_sealed(self.bench, data.mounts[name])

    def read(self, name, files, seed):
        out = self.bench.data.files(name, files, THREADS, seed=seed, within=self.groups[name].within)
        if files == "shards":
            return self.bench.sample(out, out["bytes"], MiB)
        return self.bench.sample(out, out["files"])

    def run(self, files):
        """{system: [Sample]}"""
        names = list(self.groups)
        results = {name: [] for name in names}
        drop_caches()
        for name in names:
            self.read(name, files, 1000)  # the caches as later rounds find them
        for number in range(ROUNDS):
            for name in names if number % 2 == 0 else reversed(names):
                results[name].append(self.read(name, files, number + 1))
        return results

    def close(self):
        for name, group in self.groups.items():
            if name in self.bench.data.mounts:
                self.bench.umount(self.bench.data.mounts.pop(name))
            group.remove()


def run(bench):
    limited = Limited(bench)
    say(
        "\nlimited: reader and daemons of each system in %d MiB, %d threads, another random order each round"
        % (limited.limit >> 20, THREADS)
    )
    try:
        for name in bench.data.systems:
            limited.start(name)
        for files, (what, total) in TESTS.items():
            title = "%s, memory limited: %.1f GiB, %.1f times the memory (%s)" % (
                what, total / GiB, total / limited.limit, "files/s" if files == "small" else "MiB/s"
            )  # fmt: skip
            bench.verdicts.table(title, "limited." + files, limited.run(files), LIMITS)
    finally:
        limited.close()
