"""What the scenarios share: processes, mounts, CPU time, figures, tables."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.realpath(__file__))
TOOLS = os.path.join(os.path.dirname(HERE), "tests", "tools")
sys.path.insert(0, TOOLS)

import s3put  # noqa: E402

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
FILES = int(os.environ.get("BENCH_FILES", "20000"))
ENGINES = tuple(os.environ.get("BENCH_ENGINES", "native,fuse").split(","))
SMALL = 110 << 10
MiB = 1 << 20
GiB = 1 << 30
TICKS = os.sysconf("SC_CLK_TCK")
MARK = "GRANARY_BENCH_SYSTEM"  # in the environment of a system's processes: whose CPU time theirs is


def say(text=""):
    print(text, flush=True)


ours_dropped = 0  # times that this process dropped the kernel's caches


def others_dropped():
    """How often somebody else dropped them since the machine started: what is warm must not be."""
    with open("/proc/vmstat") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("drop_pagecache ")) - ours_dropped


def drop_caches():
    global ours_dropped
    ours_dropped += 1
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")


def refaults():
    """Pages of files that the kernel had given up and took in again since the machine started."""
    with open("/proc/vmstat") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("workingset_refault_file "))


def median(values):
    return statistics.median(values) if values else float("nan")


class Sample:
    """One measurement: a rate, and CPU seconds of reader and daemons per unit of work."""

    def __init__(self, rate, reader_cpu, daemon_cpu):
        self.rate = rate
        self.reader_cpu = reader_cpu
        self.daemon_cpu = daemon_cpu

    @classmethod
    def mean(cls, samples):
        return cls(*(statistics.mean(getattr(s, name) for s in samples) for name in ("rate", "reader_cpu", "daemon_cpu")))

    @classmethod
    def median(cls, samples):
        return cls(*(median([getattr(s, name) for s in samples]) for name in ("rate", "reader_cpu", "daemon_cpu")))


class Bench:
    def __init__(self, build):
        self.build = os.path.realpath(build)
        self.top = tempfile.mkdtemp(prefix="granary-bench.", dir=os.environ.get("BENCH_DIR", "/var/tmp"))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        self.children = []
        self.unmounts = []
        self.others = []  # mountpoints of other systems
        self.figures = {}
        self.failures = []
        self.rgw = False

    def path(self, name):
        return os.path.join(self.top, name)

    # Processes -------------------------------------------------------------------------------

    def marked(self, name):
        return dict(self.environment, **{MARK: name})

    def run(self, *command, timeout=900, environment=None):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment or self.environment, timeout=timeout,
            text=True
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError("%s: exit %d: %s" % (" ".join(command), done.returncode, done.stdout[-500:]))
        return done.stdout

    def start_rgw(self):
        self.rgw = True
        up = subprocess.run([TOOLS + "/rgw", "up", self.path("rgw"), "0"], stdout=subprocess.PIPE, text=True, timeout=120)
        if up.returncode:
            raise RuntimeError("the S3 server did not start, see the lines above")
        self.environment.update(line.split("=", 1) for line in up.stdout.splitlines())
        return s3put.S3(
            self.environment["RGW_ENDPOINT"], self.environment["AWS_ACCESS_KEY_ID"], self.environment["AWS_SECRET_ACCESS_KEY"]
        )

    def stop_rgw(self):
        subprocess.run([TOOLS + "/rgw", "down", self.path("rgw")], timeout=60, check=False)
        self.rgw = False

    def start_s3d(self, *options):
        """The tests' S3 server: its endpoint and the URL of its control port."""
        self.environment.setdefault("AWS_ACCESS_KEY_ID", "any")
        self.environment.setdefault("AWS_SECRET_ACCESS_KEY", "any")
        process = subprocess.Popen([self.build + "/tests/s3d"] + list(options), stdout=subprocess.PIPE, text=True)
        self.children.append(process)
        addresses = dict(part.split("=") for part in process.stdout.readline().split())
        return "http://" + addresses["data"], "http://" + addresses["control"]

    def control(self, method, url, **query):
        request = urllib.request.Request(url + ("?" + urllib.parse.urlencode(query) if query else ""), method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def keys(self, endpoint, bucket, most=0):
        """Keys of a bucket of s3d, at most so many (0: all)."""
        keys = []
        for key, _, _ in s3put.S3(endpoint, "any", "any").list(bucket):
            keys.append(key)
            if len(keys) == most:
                break
        return keys

    def close(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        for directory in self.unmounts[:]:
            subprocess.run([self.build + "/bin/cachectl", "umount", "--force", directory], timeout=60, check=False)
        for directory in self.others:
            subprocess.run(["umount", "-l", directory], timeout=60, check=False)
        for child in self.children:
            child.terminate()
            child.wait()
        if self.rgw:
            self.stop_rgw()
        shutil.rmtree(self.top, ignore_errors=True)

    # Mounts ----------------------------------------------------------------------------------

    def mount(self, url, endpoint, name, engine, *options, cache=None, within=()):
        """Mounts with a cache of its own, name.cache, unless it shares another's; its processes' CPU time is `name`'s. within:
        what cachectl is started by."""
        directory = self.path(name)
        os.makedirs(directory, exist_ok=True)
        self.run(
            *within, self.build + "/bin/cachectl", "mount", url, directory, "--cache", self.path(cache or name) + ".cache",
            "--endpoint", endpoint, "--path-style", "--engine", engine, *options, environment=self.marked(name)
        )  # fmt: skip
        self.unmounts.append(directory)
        return directory

    def umount(self, directory, forget=False):
        self.unmounts.remove(directory)
        self.run(self.build + "/bin/cachectl", "umount", directory)
        if forget:
            shutil.rmtree(directory + ".cache")

    # Measuring -------------------------------------------------------------------------------

    def pids(self, name):
        """The processes of a system: those started with its mark."""
        mark = ("%s=%s" % (MARK, name)).encode()
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/environ" % pid, "rb") as f:
                    if mark in f.read().split(b"\0"):
                        found.append(pid)
            except OSError:
                pass  # it is gone
        return found

    def daemon_cpu(self, pids):
        ticks = 0
        for pid in pids:
            try:
                with open("/proc/%s/stat" % pid) as f:
                    fields = f.read().rpartition(")")[2].split()
            except OSError:
                continue  # it is gone
            ticks += int(fields[11]) + int(fields[12])
        return ticks / TICKS

    def measured(self, name, *command):
        """Runs a load generator against a system: what it printed, with the daemons' CPU seconds as `daemon_cpu`."""
        pids = self.pids(name)
        before = self.daemon_cpu(pids)
        out = json.loads(self.run(*command))
        out["daemon_cpu"] = self.daemon_cpu(pids) - before
        if out.get("errors"):
            self.failures.append("%s: %d errors" % (command[-1], out["errors"]))
        return out

    def read(self, name, path, *options):
        return self.measured(name, self.build + "/bin/bench-reader", *options, path)

    def sample(self, out, amount, unit=1.0):
        """A rate of amount/unit per second; CPU seconds are per GiB, or per million where no bytes are read."""
        work = out["bytes"] / GiB if out["bytes"] else out["files"] / 1e6
        return Sample(amount / unit / out["seconds"], out["cpu"] / work, out["daemon_cpu"] / work)

    # Figures ---------------------------------------------------------------------------------

    def keep(self, name, value):
        self.figures[name] = round(value, 4)

    def table(self, title, key, results, base, cpu="GiB"):
        """Prints and keeps one table; results: {system: [Sample]}. Returns the medians' ratios to `base`."""
        say("\n%s" % title)
        basis = median([s.rate for s in results[base]])
        ratios = {}
        for name, samples in results.items():
            rates = [s.rate for s in samples]
            middle = Sample.median(samples)
            ratios[name] = middle.rate / basis
            self.keep("%s.%s" % (key, name), middle.rate)
            self.keep("%s.%s.ratio" % (key, name), ratios[name])
            self.keep("%s.%s.cpu" % (key, name), middle.reader_cpu + middle.daemon_cpu)
            say(
                "  %-9s %10.0f   (%.0f .. %.0f)   %5.2f of %s   CPU-s/%s %.2f reader + %.2f daemons"
                % (name, middle.rate, min(rates), max(rates), ratios[name], base, cpu, middle.reader_cpu, middle.daemon_cpu)
            )
        return ratios

    def expect(self, what, value, target):
        if value < target:
            self.failures.append("%s: %.2f, target %.2f" % (what, value, target))
