"""The data of the gates: small files, a large file and shards, as local files, from an S3 server, through each mode."""

import json
import os
import time

from harness import GiB, MiB, SMALL, say

import dataset

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
FILES = int(20000 * SCALE)
LARGE = int(2 * GiB * SCALE) // MiB * MiB
SHARDS = 16
SHARD = int(128 * MiB * SCALE) // MiB * MiB
FILL_THREADS = 16
SEAL_SECONDS = 180

MODES = {"demand": ("--integrity", "strict"), "sealed": ("--integrity", "sealed", "--seal-pause", "1000")}
TITLES = {"demand": "on demand", "sealed": "sealed", "s3fs": "s3fs", "rclone": "rclone", "local": "local"}
CACHE = ("--cache-size", "16GiB")


def modes(bench):
    """Those wanted that this build has. A build without the option never seals."""
    wanted = os.environ.get("BENCH_MODES", "demand,sealed").split(",")
    if "--integrity" in bench.run(bench.build + "/bin/cachectl", "mount", "--help"):
        return wanted
    if "sealed" in wanted:
        bench.failures.append("sealed: this build's `cachectl mount` has no --integrity")
    MODES["demand"] = ()
    return ["demand"]


def mounts(bench):
    return json.loads(bench.run(bench.build + "/bin/cachectl", "status", "-o", "json"))["mounts"]


def status(bench, directory):
    """What `cachectl status` says of the mount at `directory`."""
    return next(mount for mount in mounts(bench) if mount.get("mountpoint") == directory)


def requests(bench, directory):
    return status(bench, directory)["daemon_requests"]


def requests_of_all(bench):
    return sum(mount["daemon_requests"] for mount in mounts(bench))


def wait_sealed(bench, directory):
    began = time.monotonic()
    while True:
        sealed = status(bench, directory)["sealed"]
        if sealed["mode"] == "sealed":
            break
        if time.monotonic() - began > SEAL_SECONDS:
            raise RuntimeError("%s is not sealed after %d s: %s" % (directory, SEAL_SECONDS, sealed))
        time.sleep(0.2)
    return time.monotonic() - began


def write_file(path, key, size):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        for at in range(0, size, 64 * MiB):
            f.write(dataset.content(key, min(size - at, 64 * MiB), offset=at))


class Data:
    """Everything in one bucket, cached whole by each mode's own mount."""

    def __init__(self, bench, names):
        self.bench = bench
        self.local = bench.path("local")
        self.make()
        self.endpoint, self.control = bench.start_s3d("--dir", self.local, "--bucket", "gates")
        self.mounts = {}
        for name in names:
            self.mount(name)
        for name in sorted(names, reverse=True):  # the sealed one first: it is sealed while others are filled
            self.fill(name)
        if "sealed" in names:
            say("  sealed: all extents %.0f s later" % wait_sealed(bench, self.mounts["sealed"]))
        self.systems = dict(self.mounts, local=self.local)

    def make(self):
        self.small = dataset.small_files(FILES, SMALL, "small/")
        self.shards = ["shards/shard-%05d.tar" % i for i in range(SHARDS)]
        for key, size in {**self.small, **dict.fromkeys(self.shards, SHARD), "large.bin": LARGE}.items():
            write_file(os.path.join(self.local, key), key, size)
        for name, keys in (("small", self.small), ("shards", self.shards)):
            with open(self.list(name), "w") as f:
                f.writelines(key + "\n" for key in keys)
        os.sync()

    def list(self, name):
        return self.bench.path("list." + name)

    def mount(self, name, *options, within=()):
        options += CACHE + MODES[name]
        self.mounts[name] = self.bench.mount("s3://gates/", self.endpoint, name, "native", *options, within=within)

    def fill(self, name):
        """Reads all once; then it is in the cache."""
        began = time.monotonic()
        directory = self.mounts[name]
        for files, threads in (("small", FILL_THREADS), ("shards", 4)):
            self.files(name, files, threads)
        self.bench.read(name, directory + "/large.bin", "--mode", "sequential")
        say("  %s: cache filled in %.0f s from the origin" % (TITLES[name], time.monotonic() - began))

    def files(self, name, files, threads, seed=1, count=0, path=None, within=()):
        """Whole files in random order. path: where, instead of the system's directory; within: what the reader is started by."""
        return self.bench.measured(
            name, *within, self.bench.build + "/bin/bench-reader", "--mode", "small", "--threads", str(threads), "--seed",
            str(seed), "--list", self.list(files), "--count", str(count), path or self.where(name)
        )  # fmt: skip

    def where(self, name):
        return self.local if name == "local" else self.bench.path(name)
