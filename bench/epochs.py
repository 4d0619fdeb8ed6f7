"""epochs: many small files and one large from a Ceph RGW; both engines, ext4, s3fs, rclone; first epoch, warm, cold."""

import os

import peers
from harness import ENGINES, FILES, GiB, MiB, ROUNDS, SMALL, Sample, drop_caches, say

import dataset

SLOW = peers.NAMES
SLOW_FILES = 800  # of these the slow systems read so many per run: the rate is what counts
RANDOM_READS = 20000

# Warm, of the local file system's rate: {test: (native, fuse)}.
TARGETS = {
    "small-1": {"native": 0.85, "fuse": 0.70},
    "small-4": {"native": 0.85, "fuse": 0.85},
    "sequential": {"native": 0.85},
}


def make_dataset(bench, client):
    sizes = dataset.small_files(FILES, SMALL, "small/")
    os.makedirs(bench.path("ext4"))
    for key, size in sizes.items():
        path = os.path.join(bench.path("ext4"), key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(dataset.content(key, size))
    block = dataset.content("large.bin", 64 * MiB)
    with open(bench.path("ext4") + "/large.bin", "wb") as f:
        for _ in range(GiB // len(block)):
            f.write(block)
    client.create_bucket("bench")
    client.put_many("bench", dataset.objects(sizes))
    with open(bench.path("ext4") + "/large.bin", "rb") as f:
        client.put("bench", "large.bin", f.read())
    with open(bench.path("list"), "w") as f:
        f.writelines(key + "\n" for key in sizes)


class Epochs:
    def __init__(self, bench, systems):
        self.bench = bench
        self.systems = systems

    def small(self, name, threads, seed=7):
        count = SLOW_FILES if name in SLOW else 0
        out = self.bench.read(
            name, self.systems[name], "--mode", "small", "--threads", str(threads), "--seed", str(seed), "--list",
            self.bench.path("list"), "--count", str(count)
        )  # fmt: skip
        return self.bench.sample(out, out["files"])

    def sequential(self, name):
        out = self.bench.read(name, self.systems[name] + "/large.bin", "--mode", "sequential")
        return self.bench.sample(out, out["bytes"], MiB)

    def random(self, name):
        out = self.bench.read(name, self.systems[name] + "/large.bin", "--mode", "random", "--count", str(RANDOM_READS))
        return self.bench.sample(out, RANDOM_READS)

    def first(self):
        say("\nfirst epoch, all caches empty, random order, 4 threads; then the large file (once)")
        for name in self.systems:
            if name == "local":
                continue
            drop_caches()
            small = self.small(name, 4, seed=1)
            large = self.sequential(name)
            self.bench.keep("epochs.first.small.%s" % name, small.rate)
            self.bench.keep("epochs.first.large.%s" % name, large.rate)
            say(
                "  %-9s %8.0f files/s, CPU-s/GiB %.2f + %.2f   %8.0f MiB/s (1 GiB), CPU-s/GiB %.2f + %.2f"
                % (name, small.rate, small.reader_cpu, small.daemon_cpu, large.rate, large.reader_cpu, large.daemon_cpu)
            )

    def round(self, state, fill, tests, names, samples):
        """Each system once, in this order. Warm: all caches are emptied and filled again in this order first."""
        if state == "warm":
            drop_caches()
            for name in names:
                fill(name)
        for test, measure in tests.items():
            for name in names:
                if state == "cold":
                    drop_caches()
                samples[test][name].append(measure(name))

    def measure(self, state, fill, tests):
        """A round's figure of the engines and the local file system is the mean of two passes, in opposite order: pages that are
        filled last lie in faster memory here, 20 % for either system."""
        results = {test: {name: [] for name in self.systems} for test in tests}
        for _ in range(ROUNDS):
            samples = {test: {name: [] for name in self.systems} for test in tests}
            self.round(state, fill, tests, list(self.systems), samples)
            self.round(state, fill, tests, [name for name in reversed(self.systems) if name not in SLOW], samples)
            for test, of_test in samples.items():
                for name, values in of_test.items():
                    results[test][name].append(Sample.mean(values))
        return results


TITLES = {
    "small-1": "small files, 1 thread (files/s)",
    "small-4": "small files, 4 threads (files/s)",
    "sequential": "1 GiB sequential (MiB/s)",
    "random": "random 4 KiB of the large file (reads/s)",
}
STATES = {
    "warm": "warm: pages in the kernel",
    "cold": "cold: kernel's caches dropped, own cache full",
}


def check(bench, test, ratios):
    for name in ENGINES:
        bench.expect("%s warm, %s" % (test, name), ratios[name], TARGETS[test].get(name, 0))
        for slow in SLOW:
            if ratios[name] < ratios[slow]:
                bench.failures.append("%s warm: %s is faster than %s" % (test, slow, name))


def run(bench):
    say("epochs: %d files of %d KiB and one of 1 GiB; %d rounds, interleaved" % (FILES, SMALL >> 10, ROUNDS))
    client = bench.start_rgw()
    make_dataset(bench, client)
    endpoint = bench.environment["RGW_ENDPOINT"]
    systems = {name: bench.mount("s3://bench/", endpoint, name, name, "--cache-size", "8GiB") for name in ENGINES}
    systems.update({"local": bench.path("ext4")}, **peers.mount_all(bench, endpoint, "bench"))
    epochs = Epochs(bench, systems)
    epochs.first()
    small = {"small-1": lambda name: epochs.small(name, 1), "small-4": lambda name: epochs.small(name, 4)}
    large = {"sequential": epochs.sequential, "random": epochs.random}
    for state in ("warm", "cold"):
        results = epochs.measure(state, lambda name: epochs.small(name, 4), small)
        if state == "cold":
            large.pop("random")
        results.update(epochs.measure(state, epochs.sequential, large))
        for test, of_test in results.items():
            title = "%s, %s" % (TITLES[test], STATES[state])
            ratios = bench.table(title, "epochs.%s.%s" % (state, test), of_test, "local")
            if state == "warm" and test in TARGETS:
                check(bench, test, ratios)
