"""gates: what must hold of a mount, in one run: on demand, sealed, the same bytes as files on the local disk; s3fs, rclone.

Each stage is a module. A line ends with PASS or MISS where there is something that must hold; a miss makes the exit status 1,
when everything has been measured.

    BENCH_SCALE=1           sizes, times this
    BENCH_MODES=demand,sealed
    BENCH_STAGES=reads,names,limited,first,order,memory
"""

import os
import time

import gates_data
import gates_first
import gates_limited
import gates_memory
import gates_names
import gates_reads
import order
from harness import ROUNDS, others_dropped, say

STAGES = {
    "reads": gates_reads.run,
    "names": gates_names.run,
    "limited": gates_limited.run,
    "first": gates_first.run,
    "order": order.gate,
    "memory": gates_memory.run,
}
NEED_DATA = {"reads", "limited"}


class Verdicts:
    """What was compared with its gate, in the order of the run."""

    def __init__(self, bench):
        self.bench = bench
        self.lines = []

    def add(self, what, value, limit, holds, unit=""):
        verdict = "PASS" if holds else "MISS"
        self.lines.append("%s  %-64s %8s  gate %s%s" % (verdict, what, value, limit, unit))
        if not holds:
            self.bench.failures.append("%s: %s, gate %s%s" % (what, value, limit, unit))
        return verdict

    def at_least(self, what, value, limit):
        return self.add(what, "%.2f" % value, ">= %.2f" % limit, value >= limit)

    def at_most(self, what, value, limit, unit="", form="%.2f"):
        return self.add(what, form % value, "<= %g" % limit, value <= limit, unit)

    def table(self, title, key, results, limits, **options):
        """A table of rates; limits: {system: least ratio to the local file system}."""
        ratios = self.bench.table(title, "gates." + key, results, "local", **options)
        for system, limit in limits.items():
            if system in ratios:
                self.at_least("%s, %s" % (title.partition(":")[0], gates_data.TITLES[system]), ratios[system], limit)
        return ratios

    def show(self):
        say("\ngates")
        for line in self.lines:
            say("  " + line)


def run(bench):
    wanted = os.environ.get("BENCH_STAGES", ",".join(STAGES)).split(",")
    stages = [stage for stage in STAGES if stage in wanted]  # in this order
    modes = gates_data.modes(bench)
    began = time.monotonic()
    dropped = others_dropped()
    say("\ngates: scale %g, %d rounds, interleaved; %s" % (gates_data.SCALE, ROUNDS, ", ".join(modes)))
    bench.verdicts = Verdicts(bench)
    bench.data = gates_data.Data(bench, modes) if NEED_DATA & set(stages) else None
    for stage in stages:
        started = time.monotonic()
        STAGES[stage](bench)
        say("  (%s: %.0f s)" % (stage, time.monotonic() - started))
    dropped = others_dropped() - dropped
    if dropped:
        bench.failures.append("others dropped the kernel's caches %d times: warm figures mean nothing" % dropped)
    bench.verdicts.show()
    say("  (%.0f s in all)" % (time.monotonic() - began))
