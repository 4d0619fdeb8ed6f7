"""preload: cachectl preload of nothing cached, beside a downloader that keeps nothing, and one that writes files."""

import os
import resource
import shutil
import time

from harness import GiB, ROUNDS, SMALL, drop_caches, say

PACE = 300 * 1000 * 1000
COUNT = 10000
TARGETS = {"small": 0.60, "large": 0.90}


class Preload:
    """One data set on a server of its own. Every run begins with an empty cache and none of the kernel's."""

    def __init__(self, bench, bucket, synthetic, connections, pace=0):
        self.bench = bench
        self.bucket = bucket
        self.connections = connections
        self.endpoint, self.control = bench.start_s3d("--synthetic", synthetic, "--bucket", bucket)
        with open(bench.path("list-" + bucket), "w") as f:
            f.writelines(key + "\n" for key in bench.keys(self.endpoint, bucket))
        if pace:
            bench.control("POST", self.control + "/faults", kind="total", bps=pace)

    def download(self, *options):
        target = self.bench.path("download")
        os.makedirs(target)
        drop_caches()
        out = self.bench.measured(
            "download", self.bench.build + "/bin/bench-downloader", "--connections", str(self.connections), *options, "--list",
            self.bench.path("list-" + self.bucket), "%s/%s" % (self.endpoint, self.bucket), target
        )  # fmt: skip
        shutil.rmtree(target)
        return out

    def preload(self):
        """From the command's start to its end: all is cached and was checked."""
        name = "preload-" + self.bucket
        directory = self.bench.mount("s3://%s/" % self.bucket, self.endpoint, name, "native")
        drop_caches()
        pids = self.bench.pids(name)
        cpu = self.bench.daemon_cpu(pids)
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        before = self.bench.control("GET", self.control + "/stats")
        began = time.monotonic()
        self.bench.run(self.bench.build + "/bin/cachectl", "preload", directory)
        seconds = time.monotonic() - began
        after = self.bench.control("GET", self.control + "/stats")
        ours = resource.getrusage(resource.RUSAGE_CHILDREN)
        out = {
            "bytes": after["get_bytes"] - before["get_bytes"],
            "seconds": seconds,
            "cpu": ours.ru_utime + ours.ru_stime - own.ru_utime - own.ru_stime,
            "daemon_cpu": self.bench.daemon_cpu(pids) - cpu,
        }
        self.bench.umount(directory, forget=True)
        return out

    def compare(self, title):
        results = {name: [] for name in ("receive", "files", "preload")}
        fetched = set()
        for _ in range(ROUNDS):
            for name, samples in results.items():
                if name == "preload":
                    out = self.preload()
                else:
                    out = self.download(*(["--discard"] if name == "receive" else []))
                fetched.add(out["bytes"])
                samples.append(self.bench.sample(out, out["bytes"], 1e6))
        ratios = self.bench.table(title, "preload." + self.bucket, results, "receive")
        if len(fetched) != 1:
            self.bench.failures.append("preload of %s: not the same bytes in all runs: %s" % (self.bucket, sorted(fetched)))
        self.bench.expect("preload, " + self.bucket, ratios["preload"], TARGETS[self.bucket])


def run(bench):
    say(
        "\npreload: cachectl preload from its start to its end, cache empty; receive: a downloader that writes nothing; files: one "
        "that writes files through the page cache; kernel's caches empty; %d rounds, interleaved" % ROUNDS
    )
    small = Preload(bench, "small", "%d,%d,100" % (COUNT, SMALL), 16)
    small.compare("%d objects of %d KiB, downloaders with 16 connections (MB/s)" % (COUNT, SMALL >> 10))
    large = Preload(bench, "large", "4,%d,1" % GiB, 8, PACE)
    large.compare("4 objects of 1 GiB, origin of %d MB/s in total, downloaders with 8 connections (MB/s)" % (PACE / 1e6))
