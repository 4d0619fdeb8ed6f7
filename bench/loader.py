"""loader: the training loops of eight ranks over PyTorch's DataLoader, four workers each, 20 ms per GET, everything cold.

A first epoch's beginning: the ranks read a random part of a large data set in random order: announced, not announced, or with the order of
another epoch announced. What counts is how long the loops wait for their next batch, from the first on, once the loaders' workers have
started; GETs and bytes are the origin's, until the last batch. Computing is simulated by sleeping. `announced`: when the loader asks for its
first batch; `early`: before the workers of the loader are started (Announcing.announce()). `warm` is the announced epoch once more, with its
files in the page cache: what the loader itself takes, below which no cache can get. Needs a Python with PyTorch, SDK_PYTHON=PROGRAM; skipped
without.
"""

import json
import os
import subprocess

from harness import ENGINES, ROUNDS, drop_caches, median, say

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
PYTHON = os.environ.get("SDK_PYTHON", "python3")
RANKS = 8
WORKERS = 4  # of each rank
BATCH = 16
COUNT = int(32000 * SCALE)  # files of the data set
SAMPLES = int(RANKS * 480 * SCALE)  # that are read
SIZE = 40 << 10
COMPUTE_MS = 5  # per sample
LATENCY_MS = 20
MODES = ("none", "announced", "early", "wrong")
SHOWN = (*MODES, "warm")
TARGETS = {"announced": 0.2, "wrong": 1.05}  # waiting, of that without an order


class Job:
    def __init__(self, bench):
        self.bench = bench
        self.endpoint, self.control = bench.start_s3d("--synthetic", "%d,%d,50" % (COUNT, SIZE), "--bucket", "loader")
        self.keys = bench.keys(self.endpoint, "loader")
        bench.control("POST", self.control + "/faults", kind="latency", ms=LATENCY_MS, op="get")

    def epoch(self, engine, seed, mode):
        """{mode: figures} of one epoch; after an announced one of a warm one, too."""
        bench = self.bench
        directory = bench.mount("s3://loader/", self.endpoint, "loader", engine)
        paths = bench.path("loader.list")
        with open(paths, "w") as f:
            f.write("".join("%s/%s\n" % (directory, key) for key in self.keys))
        drop_caches()
        found = {mode: self.loops(paths, seed, mode)}
        if mode == "announced":
            found["warm"] = self.loops(paths, seed, "none")
        bench.umount(directory, forget=True)
        return found

    def loops(self, paths, seed, mode):
        bench = self.bench
        before = bench.control("GET", self.control + "/stats")
        ranks = json.loads(
            bench.run(
                PYTHON, os.path.join(os.path.dirname(os.path.realpath(__file__)), "order_rank.py"), "--list", paths, "--mode", mode,
                "--ranks", str(RANKS), "--workers", str(WORKERS), "--batch", str(BATCH), "--samples", str(SAMPLES),
                "--compute", str(COMPUTE_MS), "--seed", str(seed)
            )
        )  # fmt: skip
        after = bench.control("GET", self.control + "/stats")
        return {
            "waited": sum(sum(rank["waits"]) for rank in ranks) / RANKS,
            "first": sum(rank["waits"][0] for rank in ranks) / RANKS,
            "seconds": max(rank["seconds"] for rank in ranks),
            "gets": (after["get"] - before["get"]) / SAMPLES,
            "fetched": (after["get_bytes"] - before["get_bytes"]) / (SAMPLES * SIZE),
        }


def compare(bench, engine, runs):
    """Prints an engine's modes."""
    waited = {mode: median([run["waited"] for run in runs[mode]]) for mode in SHOWN}
    for mode in SHOWN:
        seconds = [run["waited"] for run in runs[mode]]
        say(
            "  %-7s %-9s  a loop waits %6.2f s (%.2f .. %.2f), %.2f of none; for its first batch %.2f s   epoch %.1f s"
            "   per file read: %.2f GETs, %.2f of its bytes"
            % (engine, mode, waited[mode], min(seconds), max(seconds), waited[mode] / waited["none"],
               *(median([run[name] for run in runs[mode]]) for name in ("first", "seconds", "gets", "fetched")))
        )  # fmt: skip
        bench.keep("loader.%s.%s" % (engine, mode), waited[mode])
    say(
        "  %-7s beyond what a loop waits with a warm cache, of none: announced %.2f, early %.2f"
        % (engine, *((waited[mode] - waited["warm"]) / (waited["none"] - waited["warm"]) for mode in ("announced", "early")))
    )
    for mode, target in TARGETS.items():
        ratio = waited[mode] / waited["none"]
        if ratio > target:
            bench.failures.append("loader, %s, %s: %.2f of the waiting without an order, target %.2f" % (engine, mode, ratio, target))


def run(bench):
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:
        say("\nloader: skipped, %s has no PyTorch: SDK_PYTHON=PROGRAM names a Python that has" % PYTHON)
        return
    say(
        "\nloader: %d ranks, a DataLoader of %d workers each, batches of %d: %d of %d files of %d KiB in random order, %g ms of computing "
        "per file, origin with %d ms per GET, all caches empty; %d rounds, interleaved"
        % (RANKS, WORKERS, BATCH, SAMPLES, COUNT, SIZE >> 10, COMPUTE_MS, LATENCY_MS, ROUNDS)
    )
    job = Job(bench)
    for engine in ENGINES:
        runs = {mode: [] for mode in SHOWN}
        for number in range(ROUNDS):
            for mode in MODES:
                for shown, figures in job.epoch(engine, number, mode).items():
                    runs[shown].append(figures)
        compare(bench, engine, runs)
