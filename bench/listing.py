"""listing: a bucket of 100,000 keys listed at 50 ms per LIST; 25,000, a million and ten million files listed, laid out, mounted.

A mount is ready when `cachectl mount` returns. With nothing known it is compared with the lister alone, in the same round; with the
last generation known it lists again, or (--refresh background) shows that generation and lists in the background.

    BENCH_LISTING=shapes,25000,25000-20ms,million,ten million
"""

import json
import os
import shutil
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

# Files, directories, ms per LIST, rounds; seconds of a mount without its LISTs, nothing known and with the image there.
SIZES = {
    "25000": (25000, 250, 0, ROUNDS, 1.5, 0.5),
    "25000-20ms": (25000, 250, 20, ROUNDS, 1.5, 0.5),
    "million": (1000000, 1000, 0, ROUNDS, 1.5, 0.5),
    "ten million": (10000000, 10000, 0, 1, 15.0, 2.0),
}
STATES = {  # of a mount: how it is mounted, what is said of it
    "first": ((), "mount ready, nothing known (table, image)"),
    "again": ((), "again, with a new listing, table and image there"),
    "known": (("--refresh", "background"), "known, listed in the background"),
}
LISTER_RATIO = 1.1  # a mount with nothing known: of the lister's time at most, and
LISTER_SECONDS = 0.15  # so much more
KNOWN_SECONDS = 0.2  # a mount that is listed in the background, up to a million files
PEAK_MIB = 2048  # of the process that lists, lays out and builds the image
IMAGE_BYTES = 130  # per file at most, from a million files on
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


def mount_seconds(bench, endpoint, name, engine, options):
    """The directory, seconds until the mount is ready, and how many of them the LISTs took."""
    began = time.monotonic()
    directory = bench.mount("s3://keys/", endpoint, name + "-" + engine, engine, *options)
    took = time.monotonic() - began
    if options:
        return directory, took, 0.0
    with open(directory + ".cache/log/master.log", encoding="utf-8") as log:
        listed = [line for line in log if " listed: " in line]
    return directory, took, float(listed[-1].rsplit("seconds=", 1)[1])


def laid_out(bench, name):
    """The lister alone, with table and image."""
    count, directories, ms, rounds, _, _ = SIZES[name]
    endpoint, control = bench.start_s3d("--synthetic", "dirs:%d,1024,%d" % (count, directories), "--bucket", "keys")
    bench.control("POST", control + "/faults", kind="latency", op="list", ms=ms)
    say("\n%d files in %d directories, %d ms per LIST; %d rounds, kernel's caches empty" % (count, directories, ms, rounds))
    where = bench.path(name.replace(" ", "-"))
    os.makedirs(where)
    runs = []
    for _ in range(rounds):
        drop_caches()
        runs.append(lister(bench, endpoint, "--build", where))
    shutil.rmtree(where)
    middle = {key: median([run[key] for run in runs]) for key in runs[0]}
    for key in ("seconds", "table_seconds", "image_seconds"):
        bench.keep("listing.%s.%s" % (name, key), middle[key])
    image = middle["image_bytes"] / middle["files"]
    table = middle["table_bytes"] / middle["files"]
    peak = middle["image_peak_kib"] / 1024
    say(
        "  list %.2f s (%d LISTs), table %.2f s, %.0f bytes per file, image %.2f s, %.0f bytes per file, peak memory %.0f MiB"
        % (middle["seconds"], middle["lists"], middle["table_seconds"], table, middle["image_seconds"], image, peak)
    )
    bench.keep("listing.%s.image_bytes_per_file" % name, image)
    bench.keep("listing.%s.table_bytes_per_file" % name, table)
    bench.keep("listing.%s.peak_mib" % name, peak)
    if count >= 1000000 and image > IMAGE_BYTES or table > TABLE_BYTES:
        bench.failures.append("%s files: %.0f bytes of image, %.0f of table per file" % (name, image, table))
    if peak > PEAK_MIB:
        bench.failures.append("%s files: %.0f MiB" % (name, peak))
    return endpoint


def mounted(bench, name, endpoint, engine):
    _, _, _, rounds, first_target, again_target = SIZES[name]
    whole, rest = {state: [] for state in ("lister", *STATES)}, {state: [] for state in STATES}
    for _ in range(rounds):
        drop_caches()
        whole["lister"].append(lister(bench, endpoint)["seconds"])
        for state, (options, _) in STATES.items():
            drop_caches()
            directory, seconds, listed = mount_seconds(bench, endpoint, name.replace(" ", "-"), engine, options)
            whole[state].append(seconds)
            rest[state].append(seconds - listed)
            bench.umount(directory, forget=state == "known")
    limits = {"first": median(whole["lister"]) * LISTER_RATIO + LISTER_SECONDS, "again": None, "known": KNOWN_SECONDS}
    without = {"first": first_target, "again": again_target}
    for state, (_, title) in STATES.items():
        seconds = median(whole[state])
        bench.keep("listing.%s.mount_%s.%s" % (name, state, engine), seconds)
        line = "  %-9s %s: %.2f s (%.2f .. %.2f)" % (engine, title, seconds, min(whole[state]), max(whole[state]))
        if state in without:
            bench.keep("listing.%s.mount_%s_without_lists.%s" % (name, state, engine), median(rest[state]))
            line += ", %.2f s of it without the LISTs (target %.1f)" % (median(rest[state]), without[state])
        if limits[state]:
            line += ", target %.2f" % limits[state]
            if seconds > limits[state]:
                bench.failures.append("%s files, %s, %s: %.2f s, target %.2f" % (name, engine, title, seconds, limits[state]))
        say(line)
    bench.keep("listing.%s.lister.%s" % (name, engine), median(whole["lister"]))
    say("  %-9s the lister alone, in the same rounds: %.3f s" % (engine, median(whole["lister"])))


def sizes(bench, wanted):
    for name in (name for name in SIZES if name in wanted):
        endpoint = laid_out(bench, name)
        for engine in ENGINES:
            mounted(bench, name, endpoint, engine)


def run(bench):
    wanted = os.environ.get("BENCH_LISTING", ",".join(("shapes", *SIZES))).split(",")
    if "shapes" in wanted:
        shapes(bench)
    sizes(bench, wanted)
