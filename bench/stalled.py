"""stalled: files from the tier while 500 readers wait for an object that the origin does not give."""

import os
import subprocess
import time

from harness import ENGINES, MiB, ROUNDS, drop_caches, median, say

READERS = 500
FILES = 2000
SIZE = 110 * 1000
TARGET = 0.9
KILL_SECONDS = 1


class Stalled:
    def __init__(self, bench, engine):
        self.bench = bench
        self.name = "stalled-" + engine
        self.engine = engine
        endpoint, control = bench.start_s3d(
            "--synthetic", "%d,%d,20" % (FILES, SIZE), "--synthetic", "1,%d,1,stalled/" % (64 * MiB), "--bucket", "slow"
        )
        self.directory = bench.mount("s3://slow/", endpoint, self.name, engine)
        keys = bench.keys(endpoint, "slow")
        self.victim = os.path.join(self.directory, [key for key in keys if key.startswith("stalled/")][0])
        with open(bench.path("list-resident"), "w") as f:
            f.writelines(key + "\n" for key in keys if not key.startswith("stalled/"))
        self.resident()
        time.sleep(1)
        bench.control("POST", control + "/faults", kind="stall", after=0, key="stalled/")

    def resident(self):
        out = self.bench.read(
            self.name, self.directory, "--mode", "small", "--threads", "4", "--list", self.bench.path("list-resident")
        )
        return out["files"] / out["seconds"]

    def reader(self, number):
        """A process that waits for 4 KiB of the stalled object, behind what came as a neighbour of the small files."""
        block = 16 * 256 + (number % 48) * 256 + number // 48
        command = ["dd", "if=" + self.victim, "of=/dev/null", "bs=4k", "count=1", "skip=%d" % block, "status=none"]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill(self, readers):
        gone = [reader for reader in readers if reader.poll() is not None]
        if gone:
            self.bench.failures.append("stalled, %s: %d of %d readers did not wait" % (self.engine, len(gone), READERS))
        began = time.monotonic()
        for reader in readers:
            reader.kill()
        for reader in readers:
            reader.wait()
        return time.monotonic() - began

    def compare(self):
        alone, loaded, killed = [], [], []
        for _ in range(ROUNDS):
            drop_caches()
            alone.append(self.resident())
            readers = [self.reader(i) for i in range(READERS)]
            time.sleep(2)
            drop_caches()
            loaded.append(self.resident())
            killed.append(self.kill(readers))
        began = time.monotonic()
        self.bench.umount(self.directory)
        self.report(alone, loaded, killed, time.monotonic() - began)

    def report(self, alone, loaded, killed, umount):
        bench = self.bench
        ratio = median(loaded) / median(alone)
        bench.keep("stalled.%s.ratio" % self.engine, ratio)
        bench.keep("stalled.%s.kill_seconds" % self.engine, max(killed))
        say(
            "  %-9s alone %8.0f files/s   with %d stalled readers %8.0f files/s   ratio %.2f (target %.1f)"
            % (self.engine, median(alone), READERS, median(loaded), ratio, TARGET)
        )
        say(
            "            all readers gone %.2f s after SIGKILL at most (target %d); umount %.2f s"
            % (max(killed), KILL_SECONDS, umount)
        )
        bench.expect("stalled, %s" % self.engine, ratio, TARGET)
        bench.expect("stalled, %s: readers gone in %.2f s" % (self.engine, max(killed)), KILL_SECONDS, max(killed))


def run(bench):
    say(
        "\nstalled: small files from the tier (kernel's caches dropped) with %d readers of a stalled object; %d rounds"
        % (READERS, ROUNDS)
    )
    for engine in ENGINES:
        Stalled(bench, engine).compare()
