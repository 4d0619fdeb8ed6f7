"""names: a tree of 100,000 files walked and opened; both engines next to the local file system."""

import os

from harness import ENGINES, ROUNDS, drop_caches, say

COUNT = 100000
DIRECTORIES = 1000
SIZE = 1024

TARGETS = {"walk": 0.55, "open": 0.50}  # the fuse engine, warm, of the local file system


def make_local(bench, keys):
    for key in keys:
        path = os.path.join(bench.path("ext4"), key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(bytes(SIZE))


def run(bench):
    say("\nnames: %d files in %d directories; %d rounds, interleaved" % (COUNT, DIRECTORIES, ROUNDS))
    endpoint, _ = bench.start_s3d("--synthetic", "%d,%d,%d" % (COUNT, SIZE, DIRECTORIES), "--bucket", "names")
    keys = bench.keys(endpoint, "names")
    make_local(bench, keys)
    with open(bench.path("list"), "w") as f:
        f.writelines(key + "\n" for key in keys)
    systems = {name: bench.mount("s3://names/", endpoint, name, name) for name in ENGINES}
    systems["local"] = bench.path("ext4")
    results = {test: {name: [] for name in systems} for test in ("cold walk", "walk", "open")}

    def walk(name):
        out = bench.read(name, systems[name], "--mode", "walk")
        return bench.sample(out, out["files"])

    def open_all(name):
        out = bench.read(name, systems[name], "--mode", "open", "--list", bench.path("list"))
        return bench.sample(out, out["files"])

    for number in range(ROUNDS):
        names = list(systems) if number % 2 == 0 else list(reversed(systems))
        for name in names:
            drop_caches()
            results["cold walk"][name].append(walk(name))
            walk(name)
            results["walk"][name].append(walk(name))
            open_all(name)
            results["open"][name].append(open_all(name))
    titles = {
        "cold walk": "readdir and lstat of everything, cold: kernel's caches dropped (entries/s)",
        "walk": "the same, warm: walked twice before (entries/s)",
        "open": "open, fstat, close in random order, warm: all opened before (files/s)",
    }
    for test, title in titles.items():
        ratios = bench.table(title, "names.%s" % test.replace(" ", "-"), results[test], "local", "million")
        if test in TARGETS and "fuse" in ENGINES:
            bench.expect("names, %s, fuse" % test, ratios["fuse"], TARGETS[test])
