"""preload: cachectl preload of nothing cached, next to wrk (small objects, RGW) and a plain downloader (large ones, paced).

    BENCH_PRELOAD=small,large
"""

import json
import os
import resource
import shutil
import time

import dataset
from harness import GiB, ROUNDS, SMALL, drop_caches, say

PACE = 300 * 1000 * 1000
COUNT = 10000
WRK_SECONDS = 5
TARGETS = {"small": 0.90, "large": 0.90}

# Each thread takes every n-th key, so that all are asked for in turn; what is not 200 is an error, wrk counts it.
WRK_SCRIPT = """
local keys, threads, next, step = {}, 0, 0, 0
for line in io.lines("%(list)s") do keys[#keys + 1] = "/%(bucket)s/" .. line end
function setup(thread) thread:set("number", threads); threads = threads + 1 end
function init() next = number end
function request() next = next + 2; return wrk.format("GET", keys[next %% #keys + 1]) end
function done(summary)
  local e = summary.errors
  io.write(string.format('\\n{"bytes": %%d, "requests": %%d, "microseconds": %%d, "errors": %%d}\\n', summary.bytes,
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout))
end
"""


def children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Preload:
    """One bucket. Every run begins with an empty cache and none of the kernel's."""

    def __init__(self, bench, bucket, endpoint, sizes):
        self.bench = bench
        self.bucket = bucket
        self.endpoint = endpoint
        self.bytes = sum(sizes.values())
        self.list = bench.path("list-" + bucket)
        with open(self.list, "w") as f:
            f.writelines(key + "\n" for key in sizes)

    def wrk(self):
        """What a load generator gets that keeps nothing."""
        script = self.bench.path("wrk.lua")
        with open(script, "w") as f:
            f.write(WRK_SCRIPT % {"list": self.list, "bucket": self.bucket})
        drop_caches()
        cpu = children_cpu()
        out = self.bench.run("wrk", "-c16", "-t2", "-d%ds" % WRK_SECONDS, "--timeout", "10s", "-s", script, self.endpoint)
        out = json.loads(out.splitlines()[-1])
        if out["errors"]:
            self.bench.failures.append("wrk: %d of %d requests failed" % (out["errors"], out["requests"]))
        return {"bytes": out["bytes"], "seconds": out["microseconds"] / 1e6, "cpu": children_cpu() - cpu, "daemon_cpu": 0}

    def download(self, *options):
        target = self.bench.path("download")
        os.makedirs(target)
        drop_caches()
        out = self.bench.measured(
            "download", self.bench.build + "/bin/bench-downloader", "--connections", "8", *options, "--list", self.list,
            "%s/%s" % (self.endpoint, self.bucket), target
        )  # fmt: skip
        shutil.rmtree(target)
        return out

    def receive(self):
        return self.download("--discard")

    def preload(self):
        """From the command's start to its end: all is cached and was checked."""
        name = "preload-" + self.bucket
        directory = self.bench.mount("s3://%s/" % self.bucket, self.endpoint, name, "native")
        drop_caches()
        pids = self.bench.pids(name)
        daemons = self.bench.daemon_cpu(pids)
        cpu = children_cpu()
        began = time.monotonic()
        self.bench.run(self.bench.build + "/bin/cachectl", "preload", directory)
        seconds = time.monotonic() - began
        out = {"seconds": seconds, "cpu": children_cpu() - cpu, "daemon_cpu": self.bench.daemon_cpu(pids) - daemons}
        show = self.bench.run(
            self.bench.build + "/bin/cachectl", "preload", "list", "-o", "json", "--cache", directory + ".cache"
        )  # fmt: skip
        job = json.loads(show)["preloads"][0]
        out["bytes"] = job["bytes_fetched"]
        if (job["state"], job["bytes_fetched"], job["bytes_done"]) != ("complete", self.bytes, self.bytes):
            self.bench.failures.append("preload of %s: not all fetched once: %s" % (self.bucket, job))
        self.bench.umount(directory, forget=True)
        return out

    def compare(self, title, *systems):
        """Each system is a method of this; the first is what the others are compared with."""
        results = {system.__name__: [] for system in systems}
        for _ in range(ROUNDS):
            for system in systems:
                out = system()
                results[system.__name__].append(self.bench.sample(out, out["bytes"], 1e6))
        ratios = self.bench.table(title, "preload." + self.bucket, results, systems[0].__name__)
        self.bench.expect("preload, " + self.bucket, ratios["preload"], TARGETS[self.bucket])


def small(bench):
    sizes = dataset.small_files(COUNT, SMALL)
    client = bench.start_rgw()
    client.create_bucket("small")
    client.put_many("small", dataset.objects(sizes))
    policy = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::small/*"}
    body = json.dumps({"Version": "2012-10-17", "Statement": [policy]}).encode()
    client.request("PUT", "small", query={"policy": ""}, body=body)  # wrk does not sign
    load = Preload(bench, "small", bench.environment["RGW_ENDPOINT"], sizes)
    load.compare(
        "%d objects of %d KiB from Ceph RGW, wrk with 16 connections for %d s (MB/s)" % (COUNT, SMALL >> 10, WRK_SECONDS),
        load.wrk, load.preload
    )  # fmt: skip
    bench.stop_rgw()


def large(bench):
    endpoint, control = bench.start_s3d("--synthetic", "4,%d,1" % GiB, "--bucket", "large")
    load = Preload(bench, "large", endpoint, {key: GiB for key in bench.keys(endpoint, "large")})
    bench.control("POST", control + "/faults", kind="total", bps=PACE)
    load.compare(
        "4 objects of 1 GiB, origin of %d MB/s in total, downloaders with 8 connections (MB/s)" % (PACE / 1e6),
        load.receive, load.download, load.preload
    )  # fmt: skip


def run(bench):
    say(
        "\npreload: cachectl preload of a mount's bucket from its start to its end, cache empty; receive: a downloader that writes "
        "nothing; download: one that writes files through the page cache; kernel's caches empty; %d rounds, interleaved" % ROUNDS
    )
    parts = {"small": small, "large": large}
    for name in os.environ.get("BENCH_PRELOAD", "small,large").split(","):
        parts[name](bench)
