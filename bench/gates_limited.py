"""gates, limited: data four times the memory that reader and daemons together have, page cache included; tier on disk."""

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
    """One kind of files; each system in a group of its own."""

    def __init__(self, bench, files, total):
        self.bench = bench
        self.files = files
        self.limit = max(total // TIMES, LEAST)
        self.groups = {}
        self.results = {}

    def start(self, name):
        """The system's daemons end and begin again inside the group; their cache stays."""
        group = self.groups[name] = Group("%s-%s" % (self.files, name), self.limit)
        if name == "local":
            return
        data = self.bench.data
        self.bench.umount(data.mounts[name])
        data.mount(name, "--memory", MEMORY, within=group.within)
        if name == "sealed":
            wait_sealed(self.bench, data.mounts[name])

    def read(self, name, seed):
        out = self.bench.data.files(name, self.files, THREADS, seed=seed, within=self.groups[name].within)
        if self.files == "shards":
            return self.bench.sample(out, out["bytes"], MiB)
        return self.bench.sample(out, out["files"])

    def run(self, names):
        for name in names:
            self.start(name)
        drop_caches()
        for name in names:
            self.read(name, 1000)  # the caches as later rounds find them
        for number in range(ROUNDS):
            for name in names if number % 2 == 0 else reversed(names):
                self.results.setdefault(name, []).append(self.read(name, number + 1))

    def close(self):
        for name, group in self.groups.items():
            if name != "local":
                self.bench.umount(self.bench.data.mounts[name])
                self.bench.data.mount(name)
            group.remove()


def run(bench):
    names = list(bench.data.systems)
    for files, (what, total) in TESTS.items():
        limited = Limited(bench, files, total)
        say(
            "\nlimited: %s of %.1f GiB, reader and daemons of each system in %d MiB, %d threads, another random order each round"
            % (what, total / GiB, limited.limit >> 20, THREADS)
        )
        try:
            limited.run(names)
        finally:
            limited.close()
        title = "%s, memory limited: %.1f times the memory (%s)" % (
            what, total / limited.limit, "files/s" if files == "small" else "MiB/s"
        )  # fmt: skip
        bench.verdicts.table(title, "limited." + files, limited.results, LIMITS)
