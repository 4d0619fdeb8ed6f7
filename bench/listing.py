"""listing: a bucket of 100,000 keys listed at 50 ms per LIST; a million files listed, laid out, mounted."""

import json
import os
import time

from harness import ENGINES, ROUNDS, drop_caches, median, say

COUNT = 100000
LATENCY_MS = 50
SHAPES = {
    "flat": "flat:%d,1024,1",
    "hashed": "hash:%d,1024,1",
    "1,000 directories": "dirs:%d,1024,1000",
    "3 directories": "dirs:%d,1024,3",
}
TARGET = 15

MILLION = 1000000
MILLION_DIRECTORIES = 1000
IMAGE_BYTES = 130  # per file at most
TABLE_BYTES = 60


def lister(bench, endpoint, *options):
    return json.loads(bench.run(bench.build + "/bin/bench-lister", "--endpoint", endpoint, *options, "s3://keys/"))


def shapes(bench):
    say("\nlisting: %d keys at %d ms per LIST; %d rounds, one LIST at a time measured once" % (COUNT, LATENCY_MS, ROUNDS))
    for shape, synthetic in SHAPES.items():
        endpoint, control = bench.start_s3d("--synthetic", synthetic % COUNT, "--bucket", "keys")
        bench.control("POST", control + "/faults", kind="latency", op="list", ms=LATENCY_MS)
        serial = lister(bench, endpoint, "--requests", "1")
        runs = [lister(bench, endpoint) for _ in range(ROUNDS)]
        seconds = [run["seconds"] for run in runs]
        ratio = serial["seconds"] / median(seconds)
        bench.keep("listing.%s.seconds" % shape, median(seconds))
        bench.keep("listing.%s.ratio" % shape, ratio)
        say(
            "  %-18s %6.3f s (%.3f .. %.3f), %d LISTs   one at a time %6.2f s, %d LISTs   ratio %.1f (target %d)"
            % (
                shape, median(seconds), min(seconds), max(seconds), runs[0]["lists"], serial["seconds"], serial["lists"],
                ratio, TARGET,
            )
        )  # fmt: skip
        wrong = {one["keys"] for one in runs + [serial]} - {COUNT}
        if wrong:
            bench.failures.append("listing, %s: %s keys" % (shape, wrong))
        bench.expect("listing, %s" % shape, ratio, TARGET)


def mount_seconds(bench, endpoint, engine):
    began = time.monotonic()
    directory = bench.mount("s3://keys/", endpoint, "million-" + engine, engine)
    return directory, time.monotonic() - began


def million(bench):
    endpoint, _ = bench.start_s3d("--synthetic", "dirs:%d,1024,%d" % (MILLION, MILLION_DIRECTORIES), "--bucket", "keys")
    say("\n%d files in %d directories, no latency; %d rounds, kernel's caches empty" % (MILLION, MILLION_DIRECTORIES, ROUNDS))
    where = bench.path("million")
    os.makedirs(where)
    runs = []
    for _ in range(ROUNDS):
        drop_caches()
        runs.append(lister(bench, endpoint, "--build", where))
    middle = {name: median([run[name] for run in runs]) for name in runs[0]}
    for name in ("seconds", "table_seconds", "image_seconds"):
        bench.keep("listing.million.%s" % name, middle[name])
    image = middle["image_bytes"] / middle["files"]
    table = middle["table_bytes"] / middle["files"]
    say(
        "  list %.2f s, table %.2f s, %.0f bytes per file, image %.2f s, %.0f bytes per file, peak memory %.0f MiB"
        % (middle["seconds"], middle["table_seconds"], table, middle["image_seconds"], image, middle["image_peak_kib"] / 1024)
    )
    bench.keep("listing.million.image_bytes_per_file", image)
    bench.keep("listing.million.table_bytes_per_file", table)
    if image > IMAGE_BYTES or table > TABLE_BYTES:
        bench.failures.append("a million files: %.0f bytes of image, %.0f of table per file" % (image, table))
    for engine in ENGINES:
        first, again = [], []
        for _ in range(ROUNDS):
            drop_caches()
            directory, seconds = mount_seconds(bench, endpoint, engine)
            first.append(seconds)
            bench.umount(directory)
            drop_caches()
            directory, seconds = mount_seconds(bench, endpoint, engine)
            again.append(seconds)
            bench.umount(directory, forget=True)
        bench.keep("listing.million.mount_first.%s" % engine, median(first))
        bench.keep("listing.million.mount_again.%s" % engine, median(again))
        say(
            "  %-9s mount ready, nothing known (list, table, image) %.2f s; again, listed anew, image there %.2f s"
            % (engine, median(first), median(again))
        )


def run(bench):
    shapes(bench)
    million(bench)
