"""latency: first epoch of 5,000 small objects at 20 ms per request, against one request at a time."""

import http.client
import time
import urllib.parse

from harness import ENGINES, ROUNDS, drop_caches, median, say

COUNT = 5000
SIZE = 110 * 1000
LATENCY_MS = 20
SERIAL_COUNT = 200  # requests that the serial client is measured on
TARGET = 20


def serial_seconds(keys, endpoint):
    """One request at a time, as a simple client does it."""
    connection = http.client.HTTPConnection(endpoint.split("//")[1])
    began = time.monotonic()
    for key in keys:
        connection.request("GET", "/slow/" + urllib.parse.quote(key))
        connection.getresponse().read()
    return (time.monotonic() - began) / len(keys) * COUNT


def run(bench):
    say(
        "\nlatency: first epoch of %d objects of %d KB, %d ms per request, 4 random readers, all caches empty; %d rounds"
        % (COUNT, SIZE // 1000, LATENCY_MS, ROUNDS)
    )
    endpoint, control = bench.start_s3d("--synthetic", "%d,%d,50" % (COUNT, SIZE), "--bucket", "slow")
    bench.control("POST", control + "/faults", kind="latency", ms=LATENCY_MS)
    serial = serial_seconds(bench.keys(endpoint, "slow", SERIAL_COUNT), endpoint)
    bench.keep("latency.serial_seconds", serial)
    say("  one request at a time  %6.1f s" % serial)
    seconds = {engine: [] for engine in ENGINES}
    for number in range(ROUNDS):
        for engine, values in seconds.items():
            directory = bench.mount("s3://slow/", endpoint, "latency-" + engine, engine)
            drop_caches()
            out = bench.read("latency-" + engine, directory, "--mode", "small", "--threads", "4", "--seed", str(number + 1))
            values.append(out["seconds"])
            bench.umount(directory, forget=True)
    for engine, values in seconds.items():
        ratio = serial / median(values)
        bench.keep("latency.seconds.%s" % engine, median(values))
        bench.keep("latency.ratio.%s" % engine, ratio)
        say(
            "  %-9s %6.2f s (%.2f .. %.2f)   ratio %.1f (target %d)"
            % (engine, median(values), min(values), max(values), ratio, TARGET)
        )
        bench.expect("latency, %s" % engine, ratio, TARGET)
