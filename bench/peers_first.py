"""peers: a first epoch of both engines and of other file systems for S3, from one S3 server, with every cache empty; the second
and the third epoch of small files, with the same files on the local file system as the limit.

Each measurement uses a new mount: the system's cache is empty, and the kernel's caches are dropped before it. Each round measures
every system once, in an order that is reversed in every second round; figures are medians. The server (tests/s3d) counts requests
and bytes. It generates its objects in memory and has one thread; on few cores the systems compete with it, so its share of the CPU
time is shown.

    small-4, small-16   all files of 110 KB in random order, 4 and 16 threads
    again-4, warm-4     after small-4: all files again, with the kernel's caches dropped, then warm
    large               one file in order
    mixed               images of 110 KB, each next to three labels of 200 bytes that are not read
    tenth               a tenth of the small files at random
    find                find, then ls -lR

    BENCH_TESTS=small-4,small-16,large,mixed,tenth,find
    BENCH_LATENCIES=0,20    ms per request
    BENCH_SYSTEMS=          a subset, such as native,fuse,mountpoint; without it all whose program is installed or given
    BENCH_TRACE=1           after each first epoch of small files by an engine: what its slowest requests waited for
    BENCH_SCALE=1           sizes, times this; with 0.05 and BENCH_ROUNDS=1 it takes less than three minutes

bench/chart makes the charts in README.md from the figures. With these variables, a measurement can be repeated alone: only the objects that the selected tests read are made. An interrupted run prints
the tables of the rounds that it finished.
"""

import math
import os
import resource
import subprocess
import tempfile
import time

import dataset
import gates
import peers
import s3put
import slowest
from gates_data import SCALE
from harness import ENGINES, GiB, MiB, ROUNDS, drop_caches, median, say

SIZE = 110 * 1000
SMALL = int(4000 * SCALE)
LARGE = int(GiB * SCALE) // MiB * MiB
IMAGES = int(1000 * SCALE)
LABELS = ("cls", "json", "txt")
LABEL_BYTES = 200
NAMES = int(20000 * SCALE)
PER_DIRECTORY = 100
BUCKET = "bench"
LOCAL = "local"  # the same files on the local file system: takes part from the second epoch on, and in find
TRACE = os.environ.get("BENCH_TRACE") == "1"
LATENCIES = tuple(int(ms) for ms in os.environ.get("BENCH_LATENCIES", "0,20").split(","))  # ms per request
MOST_GETS = 130 if SCALE >= 1 else max(math.ceil(130 * SCALE), 8)  # of 1 GiB; 8: what a stream begins with

TESTS = {  # test: (title, prefix of its keys, options of the reader)
    "small-4": ("%d files of 110 KB, 4 threads" % SMALL, "small/", ("--threads", "4")),
    "small-16": ("%d files of 110 KB, 16 threads" % SMALL, "small/", ("--threads", "16")),
    "again-4": ("second epoch of %d files, kernel's caches dropped, 4 threads" % SMALL, "small/", ("--threads", "4")),
    "warm-4": ("third epoch of %d files, warm, 4 threads" % SMALL, "small/", ("--threads", "4")),
    "large": ("one file of %d MiB" % (LARGE // MiB), "large/", None),
    "mixed": ("%d images next to %d labels, 4 threads" % (IMAGES, IMAGES * len(LABELS)), "mixed/", ("--threads", "4")),
    "tenth": ("a tenth of %d files, 4 threads" % SMALL, "small/", ("--threads", "4", "--count", str(SMALL // 10))),
    "find": ("find, %d files" % NAMES, "names/", ("find", "-type", "f")),
    "ls": ("ls -lR, %d files" % NAMES, "names/", ("ls", "-lR")),
}
WANTED = [test for test in TESTS if test in os.environ.get("BENCH_TESTS", ",".join(TESTS)).split(",")]
FOLLOWING = {"small-4": ("again-4", "warm-4"), "find": ("ls",)}  # in the same mount
UNITS = {"large": "MiB/s", "find": "names/s", "ls": "names/s"}

# Lowest rate, as ratio to the best peer, by test and latency.
RATES = {
    ("small-4", 0): 1.7, ("small-16", 0): 1.3, ("large", 0): 1.05,
    ("small-4", 20): 6, ("small-16", 20): 2.2, ("large", 20): 1.1,
}  # fmt: skip
P99 = 1.2  # highest 99th percentile of the time per file, as ratio to the best peer
P99_OF = ("small-4", "small-16")
CPU_LARGE = 2.0  # seconds per GiB, at 0 ms
REQUESTS = 1.05  # per image


def make_objects(bench, objects):
    """Starts the server with the objects of the selected tests; returns its endpoint, the URL of its control port, {key: size}.
    objects: a directory for those of JuiceFS."""
    prefixes = {TESTS[test][1] for test in WANTED}
    for prefix in prefixes:
        os.makedirs(os.path.join(objects, prefix))  # s3fs mounts a prefix only with its marker
    synthetic = []
    for count, size, prefix in ((SMALL, SIZE, "small/"), (1, LARGE, "large/"), (NAMES, 1024, "names/")):
        if prefix in prefixes:
            synthetic += ["--synthetic", "%d,%d,%d,%s" % (count, size, max(count // PER_DIRECTORY, 1), prefix)]
    endpoint, control = bench.start_s3d("--bucket", BUCKET, "--dir", objects, *synthetic)
    for i in range(IMAGES if "mixed/" in prefixes else 0):
        stem = "mixed/d%05d/img%06d." % (i // PER_DIRECTORY, i)
        for suffix, size in [("jpg", SIZE)] + [(label, LABEL_BYTES) for label in LABELS]:
            bench.control("POST", control + "/object", key=stem + suffix, size=size)
    sizes = {}
    for key, size, _ in s3put.S3(endpoint, "any", "any").list(BUCKET):
        if not key.endswith("/"):
            sizes[key] = size
    return endpoint, control, sizes


def targets(test, ms):
    """The targets of the engines, as text."""
    words = ["x best >= %g" % RATES[test, ms]] if (test, ms) in RATES else []
    if test in P99_OF:
        words.append("p99 <= %g of the best" % P99)
    if test == "large":
        words += ["GET <= %d" % MOST_GETS] + (["CPU-s/GiB <= %g" % CPU_LARGE] if ms == 0 else [])
    if test == "mixed":
        words.append("GET + HEAD <= %g per image" % REQUESTS)
    return "targets: " + ", ".join(words) if words else "no target"


def memory(pids, what):
    """Resident memory of these processes together, MiB; what: VmRSS, or VmHWM for the peak."""
    total = 0
    for pid in pids:
        try:
            with open("/proc/%s/status" % pid) as f:
                total += sum(int(line.split()[1]) for line in f if line.startswith(what))
        except OSError:
            pass  # it is gone
    return total / 1024


def systems():
    """The names of those that take part, in the order of a round."""
    every = list(ENGINES) + [LOCAL] + list(peers.NAMES) + list(peers.others())
    wanted = os.environ.get("BENCH_SYSTEMS", ",".join(every)).split(",")
    return [name for name in every if name in wanted]


class Race:
    def __init__(self, bench, objects):
        self.bench = bench
        self.systems = systems()
        self.endpoint, self.control, self.sizes = make_objects(bench, objects)
        self.server = [bench.children[-1].pid]
        for prefix in ("small/", "mixed/"):
            with open(bench.path("list." + prefix[:-1]), "w") as f:
                f.writelines(k[len(prefix) :] + "\n" for k, size in self.sizes.items() if k.startswith(prefix) and size == SIZE)
        if "juicefs" in self.systems:
            began = time.monotonic()
            peers.import_juicefs(bench, self.endpoint, BUCKET, objects, self.sizes)
            bench.control("POST", self.control + "/rescan")
            say("  juicefs: imported in %.0f s; its database is kept" % (time.monotonic() - began))
        if LOCAL in self.systems:
            self.write_local()
        self.results = {}  # (test, ms): {system: [figures]}

    def write_local(self):
        for key, size in self.sizes.items():
            if key.startswith(("small/", "names/")):
                path = os.path.join(self.bench.path(LOCAL), key)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as f:
                    f.write(dataset.content(key, size))

    def mount(self, name, prefix):
        if name in ENGINES:
            self.bench.mount("s3://%s/%s" % (BUCKET, prefix), self.endpoint, name, name)
        elif name != LOCAL:
            peers.mount(self.bench, name, self.endpoint, BUCKET, prefix)

    def umount(self, name):
        if name in ENGINES:
            self.bench.umount(self.bench.path(name), forget=True)
        elif name != LOCAL:
            peers.umount(self.bench, name, forget=True)

    def read(self, name, test, pids):
        """Runs the reader and returns its figures."""
        _, prefix, options = TESTS[test]
        directory = os.path.join(self.bench.path(name), prefix if name == LOCAL else "")
        if prefix == "names/":
            return self.walk(name, directory, options, pids)
        if test == "large":
            key = next(key for key in self.sizes if key.startswith(prefix))
            return self.bench.read(name, os.path.join(directory, key[len(prefix) :]), "--mode", "sequential")
        out = self.bench.read(name, directory, "--mode", "small", "--list", self.bench.path("list." + prefix[:-1]), *options)
        if out["bytes"] != out["files"] * SIZE:
            raise RuntimeError("%s: %d bytes of %d files" % (name, out["bytes"], out["files"]))
        return out

    def walk(self, name, directory, options, pids):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        daemons = self.bench.daemon_cpu(pids)
        began = time.monotonic()
        out = subprocess.run([options[0], directory, *options[1:]], stdout=subprocess.PIPE, timeout=900, check=True).stdout
        seconds = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if sum(os.path.basename(line.split()[-1])[:1] == b"o" for line in out.splitlines() if line.strip()) != NAMES:
            raise RuntimeError("%s: %s does not show %d files" % (name, options[0], NAMES))
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {
            "files": NAMES, "bytes": 0, "seconds": seconds, "cpu": cpu, "daemon_cpu": self.bench.daemon_cpu(pids) - daemons,
        }  # fmt: skip

    def steps(self, name, test):
        """What is measured in one mount."""
        following = FOLLOWING.get(test, ())
        if name == LOCAL and test != "find":
            return following  # it has no first epoch
        return (test, *following)

    def prepare(self, step):
        """The state of the caches before a step that follows; its requests are counted from here on."""
        if step == "again-4":
            drop_caches()
        if step in ("again-4", "warm-4"):
            self.bench.control("POST", self.control + "/reset")

    def measure(self, name, test, ms):
        """One system, cold."""
        bench = self.bench
        steps = self.steps(name, test)
        if not steps:
            return
        drop_caches()
        bench.control("POST", self.control + "/reset")
        began = time.monotonic()
        self.mount(name, TESTS[test][1])
        try:
            ready = time.monotonic() - began
            pids = bench.pids(name)
            server = bench.daemon_cpu(self.server)
            for step in steps:
                self.prepare(step)
                out = self.read(name, step, pids)
                figures = self.figures(step, out, bench.daemon_cpu(self.server) - server)
                pids = bench.pids(name)
                figures.update(ready=ready, rss=memory(pids, "VmRSS"), peak=memory(pids, "VmHWM"))
                self.results.setdefault((step, ms), {}).setdefault(name, []).append(figures)
                if TRACE and name in ENGINES and step in P99_OF:
                    self.trace(name, step, ms, pids)
                server = bench.daemon_cpu(self.server)
        finally:
            self.umount(name)

    def trace(self, name, test, ms, pids):
        """What the slowest 1 % of the files waited for."""
        n, mean, shares = slowest.parts(pids, SMALL // 100)
        text = ", ".join("%s %.0f%%" % (part, 100 * share) for part, share in shares.items())
        say("  %s, %d ms, %s: the %d slowest requests, %.1f ms each: %s" % (test, ms, name, n, 1000 * mean, text))
        for part, share in shares.items():
            self.bench.keep("peers.%s.%d.%s.slowest.%s" % (test, ms, name, part), share)

    def figures(self, test, out, server_cpu):
        stats = self.bench.control("GET", self.control + "/stats")
        amount = out["bytes"] / MiB if test == "large" else out["files"]
        cpu = out["cpu"] + out["daemon_cpu"]
        return {
            "rate": amount / out["seconds"],
            "p50": out["p50_ms"] if out["files"] > 1 and out["bytes"] else float("nan"),
            "p99": out["p99_ms"] if out["files"] > 1 and out["bytes"] else float("nan"),
            "get": stats["get"],
            "head": stats["head"],
            "list": stats["list"] + stats["other"],
            "fetched": stats["get_bytes"] / out["bytes"] if out["bytes"] else float("nan"),
            "each": (stats["get"] + stats["head"]) / out["files"],
            "cpu": cpu / (out["bytes"] / GiB if out["bytes"] else out["files"] / 1e6),
            "server": server_cpu / max(server_cpu + cpu, 1e-9),
        }

    def rounds(self):
        for number in range(ROUNDS):
            for ms in LATENCIES:
                began = time.monotonic()
                self.bench.control("DELETE", self.control + "/faults")
                if ms:
                    self.bench.control("POST", self.control + "/faults", kind="latency", ms=ms)
                for test in (test for test in WANTED if test not in sum(FOLLOWING.values(), ())):
                    for name in self.systems if number % 2 == 0 else reversed(self.systems):
                        try:
                            self.measure(name, test, ms)
                        except (RuntimeError, subprocess.SubprocessError, StopIteration) as e:
                            self.bench.failures.append("%s, %d ms, %s: %s" % (test, ms, name, e))
                            say("  %s" % self.bench.failures[-1])
                say("  (round %d, %d ms per request: %.0f s)" % (number + 1, ms, time.monotonic() - began))

    # Results ---------------------------------------------------------------------------------

    def table(self, test, ms):
        """Prints and keeps the medians, with rate and p99 also as ratio to the best peer; returns them."""
        of_test = self.results[test, ms]
        middle = {name: {key: median([f[key] for f in all_of]) for key in all_of[0]} for name, all_of in of_test.items()}
        rivals = [figures for name, figures in middle.items() if name not in ENGINES + (LOCAL,)]
        best = max((f["rate"] for f in rivals), default=float("nan"))
        least = {key: min((f[key] for f in rivals), default=float("nan")) for key in ("p99", "cpu")}
        say("\n%s, %d ms per request; %s" % (TESTS[test][0], ms, targets(test, ms)))
        say(
            "  %-11s%9s %19s %6s %7s %8s %6s %7s %6s %5s %6s %9s %6s %7s %6s %6s %6s" % (
                "", UNITS.get(test, "files/s"), "range", "x best", "p50 ms", "p99 ms", "x best", "GET", "HEAD", "LIST", "bytes",
                "CPU-s/" + ("GiB" if UNITS.get(test) != "names/s" else "M"), "x best", "server", "RSS", "peak", "ready"
            )
        )  # fmt: skip
        for name, f in middle.items():
            rates = [figures["rate"] for figures in of_test[name]]
            f["of_best"] = f["rate"] / best
            for key in ("p99", "cpu"):
                f[key + "_of_best"] = f[key] / least[key] if least[key] else float("nan")
            line = (
                "  %-11s%9.0f %8.0f .. %7.0f %6.2f %7.1f %8.1f %6.2f %7.0f %6.0f %5.0f %6.3f %9.2f %6.2f %6.0f%% %6.0f %6.0f %6.2f"
                % (
                    name, f["rate"], min(rates), max(rates), f["of_best"], f["p50"], f["p99"], f["p99_of_best"], f["get"],
                    f["head"], f["list"], f["fetched"], f["cpu"], f["cpu_of_best"], 100 * f["server"], f["rss"], f["peak"], f["ready"]
                )
            )  # fmt: skip
            say(line.replace("nan", "  -"))
            for key in (key for key, value in f.items() if not math.isnan(value)):
                self.bench.keep("peers.%s.%d.%s.%s" % (test, ms, name, key), f[key])
        return middle

    def judge(self, test, ms, middle):
        verdicts = self.bench.verdicts
        for name in (name for name in ENGINES if name in middle):
            f = middle[name]
            what = "%s, %d ms, %s: " % (test, ms, name)
            if (test, ms) in RATES:
                verdicts.at_least(what + "rate, of the best peer", f["of_best"], RATES[test, ms])
            if test in P99_OF:
                verdicts.at_most(what + "p99 per file, of the best peer", f["p99_of_best"], P99)
            if test == "large":
                verdicts.at_most(what + "GETs", f["get"], MOST_GETS, form="%d")
                if ms == 0:
                    verdicts.at_most(what + "CPU-s/GiB", f["cpu"], CPU_LARGE)
            if test == "mixed":
                verdicts.at_most(what + "GET and HEAD per image", f["each"], REQUESTS, form="%.3f")


def run(bench):
    say("\npeers: scale %g, %d rounds, interleaved, every cache empty before each measurement" % (SCALE, ROUNDS))
    for name, (variable, program) in peers.PROGRAMS.items():
        if name not in peers.others():
            say("  %s: SKIPPED, %s is not set (the path of %s)" % (name, variable, program))
    conditions = {"small/": ("files", SMALL), "large/": ("mib", LARGE // MiB), "names/": ("names", NAMES)}  # of the chart's caption
    wanted = {TESTS[test][1] for test in WANTED}
    for name, value in [("rounds", ROUNDS), ("processors", os.cpu_count())] + [conditions[p] for p in conditions if p in wanted]:
        bench.keep("peers.of." + name, value)
    bench.verdicts = gates.Verdicts(bench)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as objects:  # in memory, as the server's other objects
        race = Race(bench, objects)
        for name in race.systems:
            if name not in ENGINES + (LOCAL,):
                say("  %s: %s" % (name, peers.SETTINGS[name]))
        try:
            race.rounds()
        finally:
            show(race)


def show(race):
    for test in TESTS:
        for ms in LATENCIES:
            if (test, ms) in race.results:
                race.judge(test, ms, race.table(test, ms))
    say(
        "\n  x best: ratio to the best peer. GET, HEAD, LIST (with other requests for the bucket): from the mount on, of the\n"
        "  second and third epoch their own, ls after find. bytes: fetched per byte read. CPU-s: reader and daemons, per GiB or per million names. server: its share of the\n"
        "  CPU time of all. RSS, peak: MiB of all processes. ready: seconds that the mount took."
    )
    race.bench.verdicts.show()
