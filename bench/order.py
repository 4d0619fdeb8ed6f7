"""order: eight ranks in a first epoch in random order, 20 ms per GET, everything cold: reads that wait, with and without a word.

Each rank is a process that reads a file, computes for a while and reads the next, every eighth of a random order; they announce,
or do not. A read waits when its bytes are not on the node: the worker has to fetch them, or they are still on their way
(granary_worker_waits_total). In addition the reads for which the mount's daemon waited for more than 5 ms, whatever for
(granary_client_slow_reads_total): on a busy machine also those that only wait for a processor.
"""

import json
import multiprocessing
import os
import random
import sys
import time

from harness import ENGINES, ROUNDS, SMALL, drop_caches, median, say

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "sdk", "python"))

import granary  # noqa: E402

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
RANKS = 8
COUNT = int(6000 * SCALE)
COMPUTE_MS = 10  # of a rank, per sample
LATENCY_MS = 20
START_S = 0.5  # of a job, between its word and its first read
GATE = 0.10  # reads that wait, announced / not


def rank_of_job(directory, keys, rank, epoch, announces, barrier, seconds):
    numbers = random.Random(epoch).sample(range(len(keys)), len(keys))[rank::RANKS]
    order = None
    if announces:
        order = granary.Order(directory, strict=True, deadline=60)
        order.samples(keys)
        order.announce(numbers)
    barrier.wait()
    time.sleep(START_S)  # a job announces when it makes its loader, and reads when its model is there
    began = time.monotonic()
    for number in numbers:
        fd = os.open(os.path.join(directory, keys[number]), os.O_RDONLY)
        while os.read(fd, 1 << 20):
            pass
        os.close(fd)
        time.sleep(COMPUTE_MS / 1000)
    seconds[rank] = time.monotonic() - began
    if order:
        order.close()


class Job:
    def __init__(self, bench):
        self.bench = bench
        self.endpoint, self.control = bench.start_s3d("--synthetic", "%d,%d,50" % (COUNT, SMALL), "--bucket", "order")
        self.keys = bench.keys(self.endpoint, "order")
        bench.control("POST", self.control + "/faults", kind="latency", ms=LATENCY_MS, op="get")

    def counters(self, directory):
        status = json.loads(self.bench.run(self.bench.build + "/bin/cachectl", "status", "-o", "json"))
        mounts = [mount for mount in status["mounts"] if mount["mountpoint"] == directory]
        waits = sum(worker["counters"]["worker"]["waits"] for worker in status["workers"] if "order.cache" in json.dumps(worker))
        return waits, mounts[0]["counters"]["slow_reads"]

    def epoch(self, engine, epoch, announces):
        """{figure: value} of one epoch with nothing cached anywhere."""
        bench = self.bench
        directory = bench.mount("s3://order/", self.endpoint, "order", engine)
        drop_caches()
        bytes_before = bench.control("GET", self.control + "/stats")["get_bytes"]
        barrier = multiprocessing.Barrier(RANKS)
        seconds = multiprocessing.Array("d", RANKS)
        ranks = [
            multiprocessing.Process(
                target=rank_of_job, args=(directory, self.keys, rank, epoch, announces, barrier, seconds)
            )
            for rank in range(RANKS)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
            if rank.exitcode:
                raise RuntimeError("a rank ended with status %d" % rank.exitcode)
        waited, slow = self.counters(directory)
        fetched = bench.control("GET", self.control + "/stats")["get_bytes"] - bytes_before
        bench.umount(directory, forget=True)
        return {"waited": waited / COUNT, "slow": slow / COUNT, "seconds": max(seconds), "fetched": fetched / (COUNT * SMALL)}


def measure(bench, engines=ENGINES):
    """{engine: share of reads that wait with an announced order, of those without}"""
    say(
        "\norder: %d ranks, %d files of %d KiB in random order, %d ms of computing per file, origin with %d ms per GET, all caches "
        "empty, first read %.1f s after the order was announced; %d rounds, interleaved"
        % (RANKS, COUNT, SMALL >> 10, COMPUTE_MS, LATENCY_MS, START_S, ROUNDS)
    )
    job = Job(bench)
    runs = {(engine, announces): [] for engine in engines for announces in (False, True)}
    for number in range(ROUNDS):
        for (engine, announces), values in runs.items():
            values.append(job.epoch(engine, number, announces))
    ratios = {}
    for (engine, announces), values in runs.items():
        title = "announced" if announces else "not announced"
        waited = [value["waited"] for value in values]
        say(
            "  %-7s %-13s  %6.2f %% of the reads wait (%.2f .. %.2f)   over 5 ms %.2f %%   epoch %.1f s   origin bytes per byte %.3f"
            % (engine, title, 100 * median(waited), 100 * min(waited), 100 * max(waited), 100 * median([value["slow"] for value in values]),
               median([value["seconds"] for value in values]), max(value["fetched"] for value in values))
        )  # fmt: skip
        bench.keep("order.%s.%s" % (engine, title.replace(" ", "_")), median(waited))
        if announces:
            ratios[engine] = median(waited) / median([value["waited"] for value in runs[engine, False]])
    for engine, ratio in ratios.items():
        say("  %-7s share of reads that wait, announced / not: %.3f" % (engine, ratio))
        bench.keep("order.%s.ratio" % engine, ratio)
    return ratios


def gate(bench):
    for engine, ratio in measure(bench, ("native",)).items():
        bench.verdicts.at_most("order announced, reads that wait, of those without, %s" % engine, ratio, GATE, form="%.3f")


def run(bench):
    for engine, ratio in measure(bench).items():
        if ratio > GATE:
            bench.failures.append("order, %s: %.3f of the waits without an order, gate %.2f" % (engine, ratio, GATE))
