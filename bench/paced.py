"""paced: both engines with nothing cached, from an origin of 300 MB/s in total, next to a plain downloader.

    BENCH_PACED=large,small
"""

import os
import shutil

from harness import ENGINES, GiB, ROUNDS, SMALL, drop_caches, say

PACE = 300 * 1000 * 1000
COUNT = 10000
CONNECTIONS = 8
TARGETS = {"large": 0.90, "small": 0.95}  # of the downloader, each engine


class Paced:
    """One data set on a server of its own. Every run begins with an empty cache and none of the kernel's."""

    def __init__(self, bench, bucket, synthetic):
        self.bench = bench
        self.bucket = bucket
        self.endpoint, self.control = bench.start_s3d("--synthetic", synthetic, "--bucket", bucket)
        self.keys = bench.keys(self.endpoint, bucket)
        with open(bench.path("list-" + bucket), "w") as f:
            f.writelines(key + "\n" for key in self.keys)
        bench.control("POST", self.control + "/faults", kind="total", bps=PACE)

    def download(self):
        target = self.bench.path("download")
        url = "%s/%s" % (self.endpoint, self.bucket)
        options = ["--connections", str(CONNECTIONS)]
        if len(self.keys) == 1:
            url += "/" + self.keys[0]
        else:
            os.makedirs(target)
            options += ["--list", self.bench.path("list-" + self.bucket)]
        drop_caches()
        out = self.bench.measured("download", self.bench.build + "/bin/bench-downloader", *options, url, target)
        shutil.rmtree(target) if os.path.isdir(target) else os.unlink(target)
        return out

    def engine(self, engine):
        name = "%s-%s" % (self.bucket, engine)
        directory = self.bench.mount("s3://%s/" % self.bucket, self.endpoint, name, engine)
        drop_caches()
        before = self.bench.control("GET", self.control + "/stats")
        if len(self.keys) == 1:
            out = self.bench.read(name, os.path.join(directory, self.keys[0]), "--mode", "sequential")
        else:
            options = ("--mode", "small", "--threads", "4", "--seed", "1", "--list", self.bench.path("list-" + self.bucket))
            out = self.bench.read(name, directory, *options)
        after = self.bench.control("GET", self.control + "/stats")
        out["fetched"] = (after["get_bytes"] - before["get_bytes"]) / out["bytes"]
        self.bench.umount(directory, forget=True)
        return out

    def compare(self, title):
        results = {name: [] for name in ("download", *ENGINES)}
        fetched = 0
        for _ in range(ROUNDS):
            for name, samples in results.items():
                out = self.download() if name == "download" else self.engine(name)
                fetched = max(fetched, out.get("fetched", 0))
                samples.append(self.bench.sample(out, out["bytes"], 1e6))
        ratios = self.bench.table(title, "paced." + self.bucket, results, "download")
        say("  origin bytes per byte read: %.3f at most" % fetched)
        self.bench.keep("paced.%s.fetched" % self.bucket, fetched)
        for engine in ENGINES:
            self.bench.expect("paced, %s, %s" % (self.bucket, engine), ratios[engine], TARGETS[self.bucket])


def run(bench):
    say(
        "\npaced: origin of %d MB/s in total, kernel's and own caches empty; downloader: %d connections, into files through the "
        "page cache; %d rounds, interleaved" % (PACE / 1e6, CONNECTIONS, ROUNDS)
    )
    parts = {
        "large": ("1,%d,1" % GiB, "1 GiB in order, ranges of 8 MiB (MB/s)"),
        "small": (
            "%d,%d,100" % (COUNT, SMALL),
            "%d files of %d KiB; engines: random order, 4 threads; downloader: in order (MB/s)" % (COUNT, SMALL >> 10),
        ),
    }
    for name in os.environ.get("BENCH_PACED", "large,small").split(","):
        synthetic, title = parts[name]
        Paced(bench, name, synthetic).compare(title)
