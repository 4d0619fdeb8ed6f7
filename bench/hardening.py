"""hardening: the same work by programs with and without the flags of hardening (docs/decisions/hardening.md).

    make HARDEN= B=DIR programs DIR/tests/s3d && BENCH_PLAIN=DIR bench/run BUILD hardening

Small files in random order and one large file in order, by the fuse engine from the tier with the kernel's caches dropped, so
that the mount's daemon takes part in each read: mostly the kernel's time. A listing that becomes object table and image: mostly
the program's. Compared is the CPU time of load generator and daemons, since rates depend on what else runs; four times the usual
rounds, since a ratio near 1 needs them.
"""

import os
import resource

from harness import GiB, MiB, ROUNDS, Bench, drop_caches, median, say

FILES = 4000
SIZE = 110 << 10
LARGE = 512 * MiB
KEYS = 200000
TARGET = 1.05


class System:
    def __init__(self, bench, name):
        self.bench = bench
        self.name = name
        self.endpoint, _ = bench.start_s3d(
            "--synthetic", "%d,%d,20" % (FILES, SIZE), "--synthetic", "1,%d,1,large/" % LARGE, "--bucket", "hardening"
        )
        self.listed, _ = bench.start_s3d("--synthetic", "%d,1000,200" % KEYS, "--bucket", "keys")
        keys = bench.keys(self.endpoint, "hardening")
        self.directory = bench.mount("s3://hardening/", self.endpoint, name, "fuse")
        self.large = os.path.join(self.directory, next(key for key in keys if key.startswith("large/")))
        self.list = bench.path("list")
        with open(self.list, "w") as f:
            f.writelines(key + "\n" for key in keys if not key.startswith("large/"))
        for kind in ("small", "large"):
            self.cpu(kind)  # into the tier

    def cpu(self, kind):
        """CPU seconds per GiB, or per million keys."""
        if kind == "listing":
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            build = self.bench.path("built")
            os.makedirs(build, exist_ok=True)
            self.bench.run(self.bench.build + "/bin/bench-lister", "--endpoint", self.listed, "--build", build, "s3://keys/")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / (KEYS / 1e6)
        drop_caches()
        if kind == "small":
            out = self.bench.read(self.name, self.directory, "--mode", "small", "--threads", "4", "--list", self.list)
        else:
            out = self.bench.read(self.name, self.large, "--mode", "sequential")
        return (out["cpu"] + out["daemon_cpu"]) / (out["bytes"] / GiB)


def run(bench):
    plain_build = os.environ.get("BENCH_PLAIN")
    if not plain_build:
        say("\nhardening: skipped: build with `make HARDEN= B=DIR programs DIR/tests/s3d` and set BENCH_PLAIN=DIR")
        return
    rounds = 4 * ROUNDS
    say("\nhardening: CPU seconds per GiB, or per million keys; %d rounds, interleaved" % rounds)
    plain_bench = Bench(plain_build)
    try:
        systems = {"hardened": System(bench, "hardened"), "plain": System(plain_bench, "plain")}
        for kind in ("small", "large", "listing"):
            used = {name: [] for name in systems}
            for number in range(rounds):
                for name in list(systems) if number % 2 == 0 else list(reversed(systems)):
                    used[name].append(systems[name].cpu(kind))
            ratio = median(used["hardened"]) / median(used["plain"])
            bench.keep("hardening.%s.ratio" % kind, ratio)
            for name, values in used.items():
                say("  %-8s %-9s %6.2f   (%.2f .. %.2f)" % (kind, name, median(values), min(values), max(values)))
            say("  %-8s ratio     %6.3f   (target %.2f at most)" % (kind, ratio, TARGET))
            if ratio > TARGET:
                bench.failures.append("hardening, %s: %.3f of the CPU time, target %.2f at most" % (kind, ratio, TARGET))
    finally:
        bench.failures += plain_bench.failures
        plain_bench.close()
