"""sim: a real master before 1,000 workers and 10,000 mounts that bench-sim is, and ten million files.

What is told of the slot table after a join, a loss, a drain, the loss of a rack; the master's CPU time while nothing happens but beats,
holds and parked requests; its memory. And 1,000 readers of one volume in simulated time. Wants the machine for itself: a worker that
starves counts as down, and everybody is told.

A change counts from when the master knows of it (the first of what goes into one table: gathering, repairing and storing follow) until
99 of 100 have the table that moves the slots. Of what is done to it (a worker joins, one is drained) from before that was asked. How long
it took to notice a loss is printed next to it: three beats until a worker is down, --out-after until it is out; that nobody is called too
early is not what is measured here. The clients are processes on the same machine: how much of the CPU time was theirs is said.

SIM_WORKERS, SIM_MOUNTS, SIM_FILES change the sizes, SIM_NET=unix|tcp the connections, SIM_IDLE the seconds in which nothing happens,
SIM_LOG=FILE is the master's log, SIM_HERD=0 leaves the readers out.
"""

import array
import datetime
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

from harness import say

WORKERS = int(os.environ.get("SIM_WORKERS", "1000"))
MOUNTS = int(os.environ.get("SIM_MOUNTS", "10000"))
FILES = int(os.environ.get("SIM_FILES", "10000000"))
NET = os.environ.get("SIM_NET", "tcp")
PROCESSES = 4
PER_RACK = 25
SLOTS = 65536
IDLE_SECONDS = int(os.environ.get("SIM_IDLE", "30"))
OUT_AFTER = 5
BALANCE, MOVED, CPU, TOLD_MS, MB_PER_MILLION, HERD = 1.022, 1.02, 0.1, 1000, 32, 2.0
ASK_NS = 2000


class Admin(http.client.HTTPConnection):
    """One request to the master's admin socket."""

    def __init__(self, path):
        super().__init__("master", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


def ask(path, method, route, body=None):
    connection = Admin(path)
    connection.request(method, route, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status >= 300:
        raise RuntimeError("%s %s: %d %s" % (method, route, answer.status, text[:200]))
    return json.loads(text) if text else None


def keys(bench):
    """Options of who speaks over TCP, which is TLS."""
    path = bench.path("cluster.key")
    if NET == "tcp" and not os.path.exists(path):
        bench.run(bench.build + "/bin/cachectl", "key", "create", "--out", path)
    return ["--cluster-key", path] if NET == "tcp" else []


def cpu_of(pid):
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Sampler(threading.Thread):
    """CPU time of the master and of the crowd, every 20 ms."""

    def __init__(self, master, crowd):
        super().__init__(daemon=True)
        self.pids = [master.process.pid] + [process.pid for process in crowd.processes]
        self.rows = []
        self.ended = threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(0.02):
            used = [cpu_of(pid) for pid in self.pids]
            self.rows.append((time.monotonic() * 1000, used[0], sum(used[1:])))

    def between(self, begin, end):
        """Seconds of the master's and of the crowd's."""
        rows = [row for row in self.rows if begin - 20 <= row[0] <= end + 20]
        return (rows[-1][1] - rows[0][1], rows[-1][2] - rows[0][2]) if rows else (0, 0)

    def stop(self):
        self.ended.set()
        self.join()


class Crowd:
    """Processes of bench-sim: workers and mounts are dealt out among them."""

    def __init__(self, bench, address, hold):
        command = [bench.build + "/bin/bench-sim", "--master", address] + (["--hold", hold] if hold else [])
        command += keys(bench)
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
        ]
        bench.children += self.processes

    def tell(self, commands):
        """One command to each, at once; their answers."""
        for process, command in zip(self.processes, commands):
            process.stdin.write(command + "\n")
            process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for process, _ in zip(self.processes, commands)]
        for answer in answers:
            if "error" in answer:
                raise RuntimeError(answer["error"])
        return answers

    def all(self, command):
        return self.tell([command] * PROCESSES)

    def parts(self, what, first, last, *more):
        step = (last - first + PROCESSES - 1) // PROCESSES
        edges = [min(first + i * step, last) for i in range(PROCESSES + 1)]
        return self.tell([" ".join(map(str, (what, a, b) + more)) for a, b in zip(edges, edges[1:])])

    def counts(self):
        answers = self.all("counts")
        sums = {key: sum(answer[key] for answer in answers) for key in answers[0]}
        sums["slowest_beat_ms"] = max(answer["slowest_beat_ms"] for answer in answers)
        return sums

    def version(self):
        """The newest (epoch, sequence), and whether everybody has it."""
        answers = self.all("version")
        newest = max((a["epoch"], a["sequence"]) for a in answers)
        return newest, all((a["epoch"], a["sequence"]) == newest and a["have"] == a["actors"] for a in answers)

    def settle(self, least=None, seconds=60):
        """Until all have one version, of `least` at least, for half a second; its sequence."""
        until = time.monotonic() + seconds
        since, last = time.monotonic(), None
        while time.monotonic() < until:
            newest, everybody = self.version()
            if newest != last or not everybody or (least is not None and newest[1] < least):
                since, last = time.monotonic(), newest
            elif time.monotonic() - since > 0.5:
                return newest[1]
            time.sleep(0.1)
        raise RuntimeError("not everybody has the table %s after %d s: %s" % (last, seconds, self.all("version")))

    def receipts(self, sequence):
        return sorted(ms for answer in self.all("receipts %d" % sequence) for ms in answer["ms"])

    def owners(self, bench):
        path = bench.path("owners")
        self.tell(["owners " + path])
        with open(path, "rb") as f:
            return array.array("H", f.read())


class Master:
    def __init__(self, bench):
        self.state = bench.path("state")
        self.admin = bench.path("admin.sock")
        self.log = os.environ.get("SIM_LOG", bench.path("master.log"))
        with open(self.log, "w", encoding="utf-8"):
            pass  # what it says of itself is looked for there
        listen = "unix:" + bench.path("m.sock") if NET == "unix" else "tcp:127.0.0.1:0"
        with open(os.devnull) as null:
            self.process = subprocess.Popen(
                [
                    bench.build + "/bin/cachemaster", "--state", self.state, "--listen", listen, "--admin", self.admin,
                    "--log-file", self.log, "--out-after", "%ds" % OUT_AFTER, "--memory", "1GiB",
                ] + keys(bench), stdin=null, env=dict(bench.environment, AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any")
            )  # fmt: skip
        bench.children.append(self.process)
        until = time.monotonic() + 20
        while self.address() is None:
            if time.monotonic() > until or self.process.poll() is not None:
                raise RuntimeError("the master does not serve: see %s" % self.log)
            time.sleep(0.05)

    def address(self):
        if not os.path.exists(self.log):
            return None
        with open(self.log, encoding="utf-8") as log:
            lines = [line for line in log if " serving: " in line]
        return lines[-1].split("listen=")[1].split()[0].strip('"') if lines else None

    def cpu(self):
        return cpu_of(self.process.pid)

    def step(self, after):
        """The last table behind `after` that moved slots: its sequence, when the master knew of the first of what went into it, ms of
        the monotonic clock, and how long it took for what."""
        wall = (time.time() - time.monotonic()) * 1000
        with open(self.log, encoding="utf-8") as log:
            line = [line for line in log if " slots moved: " in line][-1]
        sequence = int(re.search(r" sequence=(\d+)", line).group(1))
        if sequence <= after:
            raise RuntimeError("no slot has moved since table %d: see %s" % (after, self.log))
        took = {name: int(ms) for name, ms in re.findall(r"(\w+)_ms=(\d+)", line)}
        at = datetime.datetime.fromisoformat(line.split()[0].replace("Z", "+00:00")).timestamp() * 1000
        return sequence, at - wall - sum(took.values()), took

    def anonymous(self):
        with open("/proc/%d/status" % self.process.pid) as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("RssAnon:"))


# What is measured ------------------------------------------------------------------------------


def listed(bench, master):
    """A dataset of FILES files: what the master keeps of it in memory; what mounts of it show."""
    if not FILES:
        return None
    endpoint, _ = bench.start_s3d("--synthetic", "dirs:%d,1024,%d" % (FILES, max(FILES // 1000, 1)), "--bucket", "keys")
    before = master.anonymous()
    began = time.monotonic()
    bench.run(
        bench.build + "/bin/cachectl", "dataset", "create", "big", "s3://keys/", "--endpoint", endpoint, "--path-style",
        "--master", master.admin
    )  # fmt: skip
    while True:
        shown = ask(master.admin, "GET", "/v1/datasets/big/generations")
        if shown.get("generations"):
            break
        if time.monotonic() - began > 300:
            raise RuntimeError("not listed after 300 s: see %s" % master.log)
        time.sleep(0.5)
    time.sleep(1)
    per_million = (master.anonymous() - before) / 1e6 / (FILES / 1e6)
    bench.keep("sim.mb_per_million_files", per_million)
    say(
        "  %d files listed and laid out in %.0f s; the master keeps %.1f MB of memory per million of them (target %d)"
        % (FILES, time.monotonic() - began, per_million, MB_PER_MILLION)
    )
    if per_million > MB_PER_MILLION:
        bench.failures.append("sim: %.1f MB per million files" % per_million)
    newest = shown["generations"][-1]
    source = ask(master.admin, "GET", "/v1/datasets/big")["mounts"][0]
    return "%s.%s.%d" % (source["volume"], newest["lineage"], newest["generation"])


def balance(owners):
    loads = {}
    for owner in owners:
        loads[owner] = loads.get(owner, 0) + 1
    return max(loads.values()) / (SLOTS / len(loads))


def change(bench, master, crowd, name, act, minimum, arrived, asked=True):
    """One change of membership: who was told when, what moved. arrived: do the owners show it? asked: the master was, and telling
    counts from before that; else from when it noticed."""
    before = crowd.owners(bench)
    sequence = known = crowd.settle()
    sampler = Sampler(master, crowd)
    bytes_before = crowd.counts()["bytes"]
    began = time.monotonic() * 1000
    act()
    last = crowd.settle(sequence + 1, 60)
    while not arrived(crowd.owners(bench)):
        sequence, last = last, crowd.settle(last + 1, 60)
    sampler.stop()
    after = crowd.owners(bench)
    sequence, knew, took = master.step(known)
    since = began if asked else knew
    receipts = crowd.receipts(sequence)
    missing = sum(ms == 0 for ms in receipts)
    told = receipts[len(receipts) * 99 // 100]
    cpu = sampler.between(since, told)
    moved = sum(a != b for a, b in zip(before, after))
    most = balance(after)
    ratio = moved / minimum(before, after)
    bench.keep("sim.%s.told_p99_ms" % name, told - since)
    bench.keep("sim.%s.moved_ratio" % name, ratio)
    bench.keep("sim.%s.balance" % name, most)
    bench.keep("sim.%s.clients_share" % name, cpu[1] / max(sum(cpu), 0.01))
    say(
        "  %-26s %4.0f ms after %s 99 %% of %d had the table (last %4.0f); %5d slots moved, %.3f of the minimum; balance %.4f"
        % (name, told - since, "it" if asked else "that", len(receipts), receipts[-1] - since, moved, ratio, most)
    )
    say(
        "  %26s noticed after %.1f s; gathered %d, repaired %d, stored %d ms; %.1f KB each; CPU: master %.2f s, clients %.2f s (%.0f %%)"
        % (
            "", max(knew - began, 0) / 1000, took["gathered"], took["repaired"], took["stored"],
            (crowd.counts()["bytes"] - bytes_before) / len(receipts) / 1e3, *cpu, 100 * cpu[1] / max(sum(cpu), 0.01)
        )
    )  # fmt: skip
    if missing:
        bench.failures.append("sim, %s: %d were not told" % (name, missing))
    if told - since > TOLD_MS:
        bench.failures.append("sim, %s: told in %.0f ms" % (name, told - since))
    if ratio > MOVED:
        bench.failures.append("sim, %s: moved %.3f of the minimum" % (name, ratio))
    if round(most, 3) > BALANCE:
        bench.failures.append("sim, %s: balance %.4f" % (name, most))


def of_the_gone(before, after):
    """The slots whose owner owns nothing any more."""
    there = set(after)
    return sum(owner not in there for owner in before)


def of_newcomers(before, after):
    """What lifts newcomers to their share, less the 2 % that a load may be below it."""
    new = set(after) - set(before)
    return max(int(SLOTS / len(set(after)) * 0.98) * len(new), 1)


def idle(bench, master, crowd):
    """CPU time while nothing happens."""
    before, counts, began = master.cpu(), crowd.counts(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    seconds = time.monotonic() - began
    after, now = master.cpu(), crowd.counts()
    cores = (after - before) / seconds
    rates = {key: (now[key] - counts[key]) / seconds for key in ("beats", "retention", "holds", "slots", "failures")}
    say(
        "  master: %.3f cores at %.0f beats, %.0f GET_RETENTION, %.0f HOLDs and %.0f GET_SLOTS a second; slowest beat %.0f ms; %.0f MB"
        % (cores, rates["beats"], rates["retention"], rates["holds"], rates["slots"], now["slowest_beat_ms"], master.anonymous() / 1e6)
    )
    if rates["failures"]:
        bench.failures.append("sim: %.1f failed requests a second" % rates["failures"])
    return cores


def changes(bench, master, crowd):
    """Workers come and go; numbers are given in the order of joining, names are the crowd's."""

    def named(name):
        return ask(master.admin, "GET", "/v1/workers/" + name)["number"]

    def absent(*names):
        numbers = {named(name) for name in names}
        return lambda owners: not numbers & set(owners)

    def present(count):
        return lambda owners: len(set(owners)) == count

    one, other, rack = WORKERS // 4, WORKERS // 2, range(WORKERS // 2 + PER_RACK, WORKERS // 2 + 2 * PER_RACK)
    change(
        bench, master, crowd, "a worker joins", lambda: crowd.tell(["workers %d %d %d" % (WORKERS, WORKERS + 1, PER_RACK)]), of_newcomers,
        present(WORKERS + 1)
    )  # fmt: skip
    change(
        bench, master, crowd, "a worker is drained", lambda: ask(master.admin, "POST", "/v1/workers/w%d/drain" % one), of_the_gone,
        absent("w%d" % one)
    )  # fmt: skip
    change(
        bench, master, crowd, "a worker is lost", lambda: crowd.all("stop %d %d" % (other, other + 1)), of_the_gone,
        absent("w%d" % other), asked=False
    )  # fmt: skip
    change(
        bench, master, crowd, "a rack of %d is lost" % PER_RACK, lambda: crowd.all("stop %d %d" % (rack[0], rack[-1] + 1)), of_the_gone,
        absent(*("w%d" % i for i in rack)), asked=False
    )  # fmt: skip
    change(
        bench, master, crowd, "and comes back", lambda: crowd.parts("workers", rack[0], rack[-1] + 1, PER_RACK), of_newcomers,
        present(WORKERS - 1), asked=False
    )  # fmt: skip


def herd(bench):
    """Nodes that keep copies read one volume from the same moment, in simulated time (the head of main_herd.c)."""

    def last(nodes, *more):
        return json.loads(bench.run(bench.build + "/bin/bench-herd", "--nodes", str(nodes), *more))["last"]

    for nodes in (100, 1000):
        few, many, alone = last(nodes), last(nodes, "--window", "128"), last(nodes, "--no-herd")
        bench.keep("sim.herd.%d" % nodes, few)
        bench.keep("sim.herd.%d.window128" % nodes, many)
        say(
            "  %d readers of one volume: the last has it after %.2f times what one card needs, %.2f with 128 units in flight, %.2f when owners serve all (target %.1f)"
            % (nodes, few, many, alone, HERD)
        )
        if max(few, many) > HERD:
            bench.failures.append("sim: %d readers at once: %.2f, %.2f" % (nodes, few, many))
    asked = json.loads(bench.run(bench.build + "/bin/bench-herd", "--threads", "8"))
    bench.keep("sim.herd.ask_ns", asked["ns"])
    say("  a question of a herd costs %.0f ns, %.0f ns with 8 threads that share its lock (target %d)" % (asked["one_ns"], asked["ns"], ASK_NS))
    if max(asked["one_ns"], asked["ns"]) > ASK_NS:
        bench.failures.append("sim: a question of a herd: %.0f ns" % max(asked["one_ns"], asked["ns"]))


def run(bench):
    if os.environ.get("SIM_HERD") != "0":
        herd(bench)
    say(
        "\nsim: one master, %d workers in racks of %d, %d mounts, %s%s, %d processes"
        % (WORKERS, PER_RACK, MOUNTS, NET, ", TLS" if TLS else "", PROCESSES)
    )
    master = Master(bench)
    crowd = Crowd(bench, master.address(), listed(bench, master))
    began = time.monotonic()
    crowd.parts("workers", 0, WORKERS, PER_RACK)
    crowd.settle(1, 120)
    say("  %d workers joined in %.1f s" % (crowd.counts()["joined"], time.monotonic() - began))
    cores = idle(bench, master, crowd)
    bench.keep("sim.master_cores_workers", cores)
    if cores > CPU:
        bench.failures.append("sim: master %.3f cores with the workers alone" % cores)
    began = time.monotonic()
    crowd.parts("mounts", 0, MOUNTS)
    crowd.settle(1, 120)
    say("  %d mounts in %.1f s" % (MOUNTS, time.monotonic() - began))
    bench.keep("sim.master_cores", idle(bench, master, crowd))
    changes(bench, master, crowd)
    wholes = crowd.counts()["wholes"]
    bench.keep("sim.master_cores_afterwards", idle(bench, master, crowd))
    say("  whole tables sent: %d" % wholes)


if __name__ == "__main__":
    from harness import Bench

    one = Bench(sys.argv[1])
    try:
        run(one)
    finally:
        one.close()
    print(json.dumps(one.figures, indent=1))
    print("\n".join("MISSED %s" % failure for failure in one.failures))
