"""gates, memory: what `cachefuse` has of its own (RssAnon) with a million files walked and 1,000 open."""

import os

import gates_data
from gates_data import MODES, SCALE
from harness import MiB, say

COUNT = int(1000000 * SCALE)
DIRECTORIES = max(int(1000 * SCALE), 1)
SIZE = 4096
OPEN = 1000
MOST_MIB = 64


def rss_anon(pid):
    with open("/proc/%d/status" % pid) as f:
        line = next(line for line in f if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


def run(bench):
    endpoint, _ = bench.start_s3d("--synthetic", "%d,%d,%d" % (COUNT, SIZE, DIRECTORIES), "--bucket", "million")
    directory = bench.mount("s3://million/", endpoint, "million", "native", *MODES["demand"])
    out = bench.read("million", directory, "--mode", "walk")
    opened = []
    try:
        for key in bench.keys(endpoint, "million", OPEN):
            opened.append(os.open(os.path.join(directory, key), os.O_RDONLY))
            os.read(opened[-1], SIZE)
        anon = rss_anon(gates_data.status(bench, directory)["pid"])
    finally:
        for fd in opened:
            os.close(fd)
    say("\nmemory: cachefuse has %.1f MiB of its own, %d entries walked, %d files open" % (anon / MiB, out["files"], len(opened)))
    bench.keep("gates.memory.rss_anon_mib", anon / MiB)
    bench.verdicts.at_most("RssAnon of cachefuse, million files walked, 1,000 open", anon / MiB, MOST_MIB, " MiB")
    bench.umount(directory, forget=True)
