"""A cluster of hosts on this machine (tests/tools/hosts.py), network namespaces and veth between them.

peer     what a mount reads from another host's worker, without the mount (bench-peer), next to a plain loop of pread and write at
         one end, read at the other, of the same connection's kind; one worker, everything in its page cache
small    10,000 files of 110 KiB on three workers that have them in memory, the mount's host knows nothing: directory order, random
         order, 4 threads, 1 thread; next to ext4 with cold caches and next to one HTTP request per file on four connections over the
         same wires, from a server that makes the bytes up
epoch3   a host with worker and mount, `copies: auto`, three workers: the third epoch next to ext4, cold and warm; bytes from peers
ratio    hits of a random epoch with room for 0.25, 0.5 and 0.75 of the data in three workers; while a worker joins, while one leaves

BENCH_CLUSTER=peer,small,epoch3,ratio picks. Hosts share this machine's cores: a rate here is bounded by CPU, not by wires.
"""

import json
import os
import random
import subprocess
import time

from harness import GiB, MiB, ROUNDS, SMALL, Sample, drop_caches, median, say

import dataset
import hosts

PEER_BYTES = 8 * GiB
PEER_OBJECTS, PEER_OBJECT = 8, 128 * MiB
FILES, DIRECTORIES = 10000, 100
RATIO_FILES, RATIO_SIZE = 8000, 256 << 10
RATIO_READERS = 16
SEAL_SECONDS = 120


class Lab:
    """A cluster with one dataset."""

    def __init__(self, bench, name, origin, **options):
        self.bench = bench
        self.cluster = hosts.Cluster(bench.build, bench.path(name), environment={"AWS_ACCESS_KEY_ID": "any",
                                     "AWS_SECRET_ACCESS_KEY": "any"}, **options)  # fmt: skip
        self.origin = origin

    def __enter__(self):
        self.cluster.wire()
        self.endpoint, self.control = self.bench.start_s3d(*self.origin, *self.cluster.origin_options())
        self.cluster.up()
        self.cluster.dataset("d", "s3://bucket/", self.endpoint)
        return self

    def __exit__(self, kind, *_):
        self.bench.failures += [] if kind else self.cluster.down()
        if kind:
            self.cluster.down()
        self.bench.children[-1].terminate()
        self.bench.children.pop().wait()
        self.cluster.remove()

    def preload(self):
        self.cluster.master.cachectl("preload", "d", "--wait", timeout=600)

    def pids(self):
        return [pid for host in self.cluster.hosts.values() for pid in host.pids.values()] + [
            int(pid)
            for pid in filter(str.isdigit, os.listdir("/proc"))
            if self.cluster.dir in command_of(pid) and b"cachefuse" in command_of(pid).encode()
        ]

    def read(self, path, *options):
        """bench-reader's line, with the CPU seconds of all daemons."""
        pids = set(self.pids())
        before = self.bench.daemon_cpu(pids)
        out = json.loads(self.bench.run(self.bench.build + "/bin/bench-reader", *options, path))
        out["daemon_cpu"] = self.bench.daemon_cpu(pids) - before
        if out.get("errors"):
            self.bench.failures.append("%s: %d errors" % (path, out["errors"]))
        return out

    def warm_peers(self):
        """What workers have lies in the page cache of their hosts, though the kernel of all was told to forget."""
        buffer = bytearray(MiB)
        for host in self.cluster.of("worker"):
            for directory, _, names in os.walk(host.path("tier")):
                for name in names:
                    with open(os.path.join(directory, name), "rb", buffering=0) as f:
                        while f.readinto(buffer):
                            pass

    def bucket_bytes(self):
        return self.bench.control("GET", self.control + "/stats")["get_bytes"]

    def settled(self):
        """Nothing is asked of the origin any more; what it has sent."""
        quiet = 0
        while quiet < 10:
            quiet = quiet + 1 if self.bench.control("GET", self.control + "/stats")["gets_now"] == 0 else 0
            time.sleep(0.02)
        return self.bucket_bytes()

    def mount_status(self, host):
        return json.loads(host.cachectl("status", "-o", "json"))["mounts"][0]

    def peer_bytes(self, host):
        """From workers of other hosts, to this one's mount and worker."""
        total = sum(peer["bytes"] for peer in self.mount_status(host).get("peers", []) if not peer["local"])
        if "worker" in host.roles:
            total += sum(find(host.status("worker"), "peer_bytes"))
        return total


def command_of(pid):
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as f:
            return f.read().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def find(tree, name):
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == name:
                yield value
            else:
                yield from find(value, name)
    elif isinstance(tree, list):
        for value in tree:
            yield from find(value, name)


# From a peer -------------------------------------------------------------------------------------


def raw(bench, lab, path):
    """The plain loop between the same two hosts: Sample in GiB/s."""
    server, taker = lab.cluster["w0"], lab.cluster["m0"]
    address = "%s:9000" % server.address
    wire = bench.build + "/bin/bench-wire"
    with subprocess.Popen(
        server.command(wire, "serve", address, path, "--bytes", str(PEER_BYTES)), stdout=subprocess.PIPE, text=True
    ) as serving:
        serving.stdout.readline()  # "ready"
        took = json.loads(bench.run(*taker.command(wire, "take", address, "--bytes", str(PEER_BYTES))))
        served = json.loads(serving.stdout.read())
    gib = took["bytes"] / GiB
    return Sample(gib / took["seconds"], took["cpu"] / gib, served["cpu"] / gib)


def ours(bench, lab, dataset_id):
    taker = lab.cluster["m0"]
    pids = lab.pids()
    before = bench.daemon_cpu(pids)
    out = json.loads(
        bench.run(
            *taker.command(
                bench.build + "/bin/bench-peer", "--master", "tcp:%s:%d" % (lab.cluster.master.address, hosts.MASTER_PORT),
                "--dataset", dataset_id, "--token", taker.path("token"), "--bytes", str(PEER_BYTES),
            ),
            environment=taker.environment(),
        )
    )  # fmt: skip
    if out["errors"]:
        bench.failures.append("bench-peer: %d failed reads" % out["errors"])
    gib = out["bytes"] / GiB
    return Sample(gib / out["seconds"], out["cpu"] / gib, (bench.daemon_cpu(pids) - before) / gib)


def peer(bench):
    origin = ("--synthetic", "%d,%d,1" % (PEER_OBJECTS, PEER_OBJECT))
    with Lab(bench, "peer", origin, workers=1, mounts=1, capacity="4GiB", memory="512MiB") as lab:
        lab.preload()
        shown = json.loads(lab.cluster.master.cachectl("dataset", "show", "d", "-o", "json"))
        dataset_id = "%s.%s" % (shown["uuid"], shown["mounts"][0]["volume"])
        path = bench.path("raw")
        with open(path, "wb") as f:
            for _ in range(PEER_OBJECTS):
                f.write(os.urandom(MiB) * (PEER_OBJECT // MiB))
        results = {"raw": [], "granary": []}
        for each in range(ROUNDS + 1):
            for name, fn in (("raw", lambda: raw(bench, lab, path)), ("granary", lambda: ours(bench, lab, dataset_id))):
                sample = fn()
                if each:  # the first round fills page caches
                    sample.rate *= 1024
                    results[name].append(sample)
        os.unlink(path)
    ratios = bench.table("warm read from a peer over TCP (MiB/s)", "cluster.peer", results, "raw")
    cpu = {name: median([s.reader_cpu + s.daemon_cpu for s in samples]) for name, samples in results.items()}
    say("  CPU per GiB: %.2f of the plain loop's" % (cpu["granary"] / cpu["raw"]))
    bench.keep("cluster.peer.cpu-ratio", cpu["granary"] / cpu["raw"])
    bench.expect("from a peer, of the plain loop", ratios["granary"], 0.85)
    bench.expect("from a peer, CPU: plain loop's x 1.25 of ours", 1.25 * cpu["raw"] / cpu["granary"], 1.0)


# Small files -------------------------------------------------------------------------------------


def write_tree(path, sizes):
    for key, size in sizes.items():
        full = os.path.join(path, key)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as f:
            f.write(dataset.content(key, size))
    os.sync()


def keys_of(count, directories):
    per = (count + directories - 1) // directories
    return ["d%05d/o%08d" % (i // per, i) for i in range(count)]


def per_file(bench, lab, listed, seed, connections):
    """One request per file, over the same wires."""
    path = bench.path("keys")
    keys = listed[:]
    if seed:
        random.Random(seed).shuffle(keys)
    with open(path, "w") as f:
        f.writelines(key + "\n" for key in keys)
    out = json.loads(
        bench.run(
            *lab.cluster["m0"].command(
                bench.build + "/bin/bench-downloader", "--list", path, "--connections", str(connections), "--discard",
                lab.endpoint + "/bucket", bench.path("none"),
            )
        )
    )  # fmt: skip
    out["daemon_cpu"] = 0
    return out


def small(bench):
    keys = keys_of(FILES, DIRECTORIES)
    local = bench.path("local")
    write_tree(local, dict.fromkeys(keys, SMALL))
    os.makedirs(bench.path("none"))
    origin = ("--synthetic", "%d,%d,%d" % (FILES, SMALL, DIRECTORIES))
    with Lab(bench, "small", origin, workers=3, mounts=1) as lab:
        lab.preload()
        path = lab.cluster["m0"].mount("d")
        before = lab.bucket_bytes()
        for what, seed, threads in (
            ("directory order", 0, 4), ("random order", 5, 4), ("directory order", 0, 1), ("random order", 5, 1)
        ):  # fmt: skip
            results = {"granary": [], "ext4": [], "per file": []}
            for _ in range(ROUNDS):
                for name, where in (("granary", path), ("ext4", local), ("per file", None)):
                    drop_caches()
                    lab.warm_peers()
                    options = ("--mode", "small", "--threads", str(threads), "--seed", str(seed))
                    out = lab.read(where, *options) if where else per_file(bench, lab, keys, seed, threads)
                    results[name].append(bench.sample(out, out["files"]))
            bench.table("10,000 files of 110 KiB, peers warm, %s, %d threads (files/s)" % (what, threads),
                        "cluster.small.%d.%d" % (bool(seed), threads), results, "ext4")  # fmt: skip
        if lab.settled() - before > 4 * ROUNDS * FILES * SMALL:  # what the downloader took
            bench.failures.append("small files: the mount's bytes came from the bucket")


# Kept whole on the node --------------------------------------------------------------------------


def epoch3(bench):
    keys = keys_of(FILES, DIRECTORIES)
    local = bench.path("local")
    if not os.path.exists(local):
        write_tree(local, dict.fromkeys(keys, SMALL))
    origin = ("--synthetic", "%d,%d,%d" % (FILES, SMALL, DIRECTORIES))
    with Lab(bench, "epoch3", origin, workers=3, mounts=0, with_mounts=True, capacity="4GiB") as lab:
        host = lab.cluster["w0"]
        path = host.mount("d")
        options = ("--mode", "small", "--threads", "4", "--seed")
        for number in (1, 2):
            out = lab.read(path, *options, str(number))
            say("  epoch %d: %.0f files/s" % (number, out["files"] / out["seconds"]))
        began = time.monotonic()
        while lab.mount_status(host)["sealed"]["mode"] != "sealed" and time.monotonic() - began < SEAL_SECONDS:
            time.sleep(0.5)
        say("  sealed %.0f s later: %s" % (time.monotonic() - began, lab.mount_status(host)["sealed"]["mode"]))
        peers, requests = lab.peer_bytes(host), lab.mount_status(host)["daemon_requests"]
        for state, limit in (("cold", 0.85), ("warm", 0.90)):
            results = {"granary": [], "ext4": []}
            for each in range(ROUNDS):
                for name, where in (("granary", path), ("ext4", local)):
                    if state == "cold":
                        drop_caches()
                    else:
                        lab.read(where, *options, "9")
                    out = lab.read(where, *options, str(10 + each))
                    results[name].append(bench.sample(out, out["files"]))
            ratios = bench.table("epoch 3 where the dataset is kept whole, %s, 4 threads (files/s)" % state,
                                 "cluster.epoch3." + state, results, "ext4")  # fmt: skip
            bench.expect("epoch 3, %s, of ext4" % state, ratios["granary"], limit)
        taken = lab.peer_bytes(host) - peers
        say("  from peers: %d bytes; requests to the mount's daemon: %d" % (
            taken, lab.mount_status(host)["daemon_requests"] - requests))  # fmt: skip
        bench.keep("cluster.epoch3.peer-bytes", taken)
        if taken:
            bench.failures.append("epoch 3: %d bytes from peers" % taken)


# Hit ratio ---------------------------------------------------------------------------------------


def hit_ratio(lab, path, seed, total):
    """Of an epoch in random order, by what the bucket sent meanwhile."""
    before = lab.settled()
    drop_caches()
    lab.read(path, "--mode", "small", "--threads", str(RATIO_READERS), "--seed", str(seed))
    return 1 - (lab.settled() - before) / total


def ratio(bench):
    total = RATIO_FILES * RATIO_SIZE
    origin = ("--synthetic", "%d,%d,80" % (RATIO_FILES, RATIO_SIZE))
    for c in (0.25, 0.5, 0.75):
        capacity = str(int(c * total / 3))
        with Lab(bench, "ratio", origin, workers=3, mounts=1, capacity=capacity) as lab:
            path = lab.cluster["m0"].mount("d")
            hit_ratio(lab, path, 1, total)
            found = median([hit_ratio(lab, path, seed, total) for seed in (2, 3)])
            say("  room for %.2f: hits %.3f, %.3f of what is possible" % (c, found, found / c))
            bench.keep("cluster.ratio.%.2f" % c, found / c)
            bench.expect("hits with room for %.2f" % c, found / c, 0.98)
            if c == 0.5:
                changes(bench, lab, path, total, c)


def changes(bench, lab, path, total, c):
    """A worker joins in the middle of an epoch; later it leaves."""
    cluster = lab.cluster
    host = cluster.add("w3", 14, ("worker",))
    host.plug()
    host.write_config()
    for what, act, room in (
        ("joins", lambda: host.start("worker"), c),
        ("is drained", lambda: cluster.master.cachectl("worker", "drain", "w3"), c),
    ):
        before = lab.settled()
        drop_caches()
        reading = subprocess.Popen(
            [bench.build + "/bin/bench-reader", "--mode", "small", "--threads", str(RATIO_READERS), "--seed", "7", path],
            stdout=subprocess.PIPE,
        )
        time.sleep(1)
        act()
        reading.communicate()
        found = 1 - (lab.settled() - before) / total
        say("  while a worker %s: hits %.3f, %.3f of what is possible" % (what, found, found / room))
        bench.keep("cluster.ratio.%s" % what.split()[-1], found / room)
        bench.expect("hits while a worker " + what, found / room, 0.95)


PARTS = {"peer": peer, "small": small, "epoch3": epoch3, "ratio": ratio}


def run(bench):
    for name in os.environ.get("BENCH_CLUSTER", ",".join(PARTS)).split(","):
        say("\ncluster: %s" % name)
        PARTS[name](bench)
