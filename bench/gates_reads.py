"""gates, reads: small files and a large one, cold from disk and warm; a second mount; what daemons use meanwhile."""

import time

import gates_data
import peers
from gates_data import SCALE, TITLES
from harness import GiB, MiB, ROUNDS, Sample, drop_caches, refaults, say

RANDOM_READS = max(int(500000 * SCALE), 1000)
PEER_FILES = 400  # of the small files s3fs and rclone read so many: the rate is compared

SMALL = {"demand": (0.55, 0.90), "sealed": (0.85, 0.90)}  # cold, warm
LARGE = {"demand": (0.50, 0.85, 0.60), "sealed": (0.85, 0.85, 0.60)}  # cold, warm, random
CPU_NOTHING = 0.01  # CPU seconds per GiB: two ticks of the clock in a pass
IDLE_SECONDS = 12  # for what daemons use when nothing is read: the clock ticks 100 times a second
WARM_PASSES = 5  # in each round
RETAKES = 10  # of those that were not warm

TESTS = {
    "small-cold-1": "small files, 1 thread, cold: kernel's caches dropped, tier on disk (files/s)",
    "small-cold-4": "small files, 4 threads, cold: as above (files/s)",
    "small-warm-1": "small files, 1 thread, warm: pages in the kernel (files/s)",
    "small-warm-4": "small files, 4 threads, warm: as above (files/s)",
    "large-cold": "large file in order, cold: kernel's caches dropped, tier on disk (MiB/s)",
    "large-warm": "large file in order, warm: pages in the kernel (MiB/s)",
    "large-random": "large file, random 4 KiB, warm: as above (reads/s)",
}


def limits(test):
    """{mode: least ratio}"""
    kind, _, rest = test.partition("-")
    if kind == "small":
        return {mode: pair[rest.startswith("warm")] for mode, pair in SMALL.items()}
    return {mode: three[("cold", "warm", "random").index(rest)] for mode, three in LARGE.items()}


class Reads:
    def __init__(self, bench):
        self.bench = bench
        self.data = bench.data
        self.results = {test: {} for test in TESTS}
        self.asked = {}  # {(state, mode): requests to the daemon, the most in a round}
        self.used = {}  # {(state, mode): [what the load generators printed]}
        self.retaken = 0

    def keep(self, test, name, taken):
        """One round's figure is the median of its passes: `taken`, pairs of what the load generator printed and a sample."""
        state = "cold" if "cold" in test else "warm"
        self.results[test].setdefault(name, []).append(Sample.median([sample for _, sample in taken]))
        self.used.setdefault((state, name), []).extend(out for out, _ in taken)

    def small(self, name, test, count=0):
        out = self.data.files(name, "small", int(test[-1]), seed=7, count=count)
        return out, self.bench.sample(out, out["files"])

    def large(self, name, test):
        options = ("--mode", "random", "--count", str(RANDOM_READS)) if test == "large-random" else ("--mode", "sequential")
        out = self.bench.read(name, self.data.where(name) + "/large.bin", *options)
        if test == "large-random":
            return out, self.bench.sample(out, RANDOM_READS)
        return out, self.bench.sample(out, out["bytes"], MiB)

    def requests(self, name):
        return gates_data.requests(self.bench, self.data.mounts[name]) if name in self.data.mounts else 0

    def asked_for(self, state, name, before):
        if name in self.data.mounts:
            asked = self.requests(name) - before
            self.asked[state, name] = max(self.asked.get((state, name), 0), asked)

    def take(self, name, test, count=0):
        return self.small(name, test, count) if test.startswith("small") else self.large(name, test)

    def cold(self, name, test):
        drop_caches()
        before = self.requests(name)
        self.keep(test, name, [self.take(name, test)])
        self.asked_for("cold", name, before)

    def warm(self, name, test, count=0):
        """Passes of tenths of a second: one that does not count, then several. Whatever the system, one during which the kernel
        had to take pages in again was not warm, and another is taken."""
        self.take(name, test, count)
        taken = []
        for _ in range(WARM_PASSES + RETAKES):
            before, refaulted = self.requests(name), refaults()
            one = self.take(name, test, count)
            if refaults() != refaulted:
                self.retaken += 1
                continue
            self.asked_for("warm", name, before)
            taken.append(one)
            if len(taken) == WARM_PASSES:
                break
        if not taken:
            raise RuntimeError("%s, %s: the kernel gives up pages all the time: is there less memory than data?" % (test, name))
        self.keep(test, name, taken)

    def round(self, name):
        for threads in "14":
            self.cold(name, "small-cold-" + threads)
        for threads in "14":
            self.warm(name, "small-warm-" + threads)
        self.cold(name, "large-cold")
        for test in ("large-warm", "large-random"):
            self.warm(name, test)

    def peer(self, name):
        drop_caches()
        self.data.files(name, "small", 4, seed=7, count=PEER_FILES)
        for threads in "14":
            self.warm(name, "small-warm-" + threads, PEER_FILES)

    def judge(self):
        verdicts = self.bench.verdicts
        for test, results in self.results.items():
            ratios = verdicts.table(TESTS[test], test, results, limits(test))
            for peer in peers.NAMES:
                if peer in ratios:
                    for mode in self.data.mounts:
                        what = "%s, %s: times the rate of %s" % (test, TITLES[mode], peer)
                        verdicts.at_least(what, ratios[mode] / ratios[peer], 1)
        for state, mode in sorted(self.asked):
            if (state, mode) == ("cold", "demand"):
                continue
            what = "%s, %s: requests to the daemon" % (state, TITLES[mode])
            verdicts.at_most(what, self.asked[state, mode], 0, form="%d")
            self.judge_cpu(state, mode)

    def judge_cpu(self, state, mode):
        """Of all passes together: the clock of processes ticks 100 times a second. Without what they use when idle."""
        bench = self.bench
        pids = bench.pids(mode)
        before = bench.daemon_cpu(pids)
        time.sleep(IDLE_SECONDS)
        idle = (bench.daemon_cpu(pids) - before) / IDLE_SECONDS
        runs = self.used[state, mode]
        used = sum(run["daemon_cpu"] - idle * run["seconds"] for run in runs) / (sum(run["bytes"] for run in runs) / GiB)
        what = "%s, %s: CPU seconds of the daemons per GiB (idle: %.3f a second)" % (state, TITLES[mode], idle)
        bench.keep("gates.cpu.%s.%s" % (state, mode), used)
        bench.verdicts.at_most(what, max(used, 0), CPU_NOTHING, form="%.3f")


def second_mount(bench, mode):
    """The same dataset mounted once more on the node: what was read through the first is not asked for again."""
    data = bench.data
    data.files(mode, "small", 4)
    data.files(mode, "small", 4)
    second = bench.path(mode + ".second")
    bench.mount("s3://gates/", data.endpoint, mode + ".second", "native", *gates_data.MODES[mode], cache=mode)
    before = gates_data.requests_of_all(bench)
    out = data.files(mode, "small", 4, path=second)
    asked = gates_data.requests_of_all(bench) - before
    say("  second mount, %s: %d files read, %d requests to daemons" % (TITLES[mode], out["files"], asked))
    bench.keep("gates.second.%s" % mode, asked)
    bench.verdicts.at_most("second mount, warm, %s: requests to daemons" % TITLES[mode], asked, 0, form="%d")
    bench.umount(second)


def run(bench):
    reads = Reads(bench)
    mounted = peers.mount_all(bench, bench.data.endpoint, "gates")
    names = list(bench.data.systems)
    for number in range(ROUNDS):
        for name in names if number % 2 == 0 else reversed(names):
            reads.round(name)
        for name in mounted:
            reads.peer(name)
    if reads.retaken:
        say("  %d warm passes were taken again: the kernel had given up pages meanwhile" % reads.retaken)
    reads.judge()
    peers.umount_all(bench)
    for mode in bench.data.mounts:
        second_mount(bench, mode)
