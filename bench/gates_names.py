"""gates, names: a tree of 100,000 files walked and opened. Names come from the image in either mode: measured once."""

import os

from gates_data import MODES, SCALE
from harness import ROUNDS, drop_caches

COUNT = int(100000 * SCALE)
DIRECTORIES = max(int(1000 * SCALE), 1)
SIZE = 1024

TESTS = {
    "walk-cold": ("find, cold: readdir and lstat of everything, kernel's caches dropped (entries/s)", 1.5),
    "walk-warm": ("find, warm: as above, walked before (entries/s)", 1.0),
    "open-warm": ("stat and open, warm: open, fstat, close in random order, done before (files/s)", 0.90),
}


def run(bench):
    endpoint, _ = bench.start_s3d("--synthetic", "%d,%d,%d" % (COUNT, SIZE, DIRECTORIES), "--bucket", "names")
    keys = bench.keys(endpoint, "names")
    local = bench.path("names.local")
    for key in keys:
        path = os.path.join(local, key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(bytes(SIZE))
    with open(bench.path("list.names"), "w") as f:
        f.writelines(key + "\n" for key in keys)
    systems = {"demand": bench.mount("s3://names/", endpoint, "names.demand", "native", *MODES["demand"]), "local": local}
    results = {test: {name: [] for name in systems} for test in TESTS}

    def measure(test, name):
        options = ("--list", bench.path("list.names")) if test == "open-warm" else ()
        mode = "open" if test == "open-warm" else "walk"
        out = bench.read("names." + name, systems[name], "--mode", mode, *options)
        return bench.sample(out, out["files"])

    for number in range(ROUNDS):
        for name in systems if number % 2 == 0 else reversed(list(systems)):
            drop_caches()
            results["walk-cold"][name].append(measure("walk-cold", name))
            measure("walk-warm", name)
            results["walk-warm"][name].append(measure("walk-warm", name))
            measure("open-warm", name)
            results["open-warm"][name].append(measure("open-warm", name))
    for test, (title, limit) in TESTS.items():
        bench.verdicts.table(title, "names." + test, results[test], {"demand": limit}, cpu="million")
    bench.umount(systems["demand"], forget=True)
