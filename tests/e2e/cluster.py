"""A cluster of several hosts (tests/tools/hosts.py) for a test, and the origin that it reads."""

import json
import os
import random
import urllib.parse

import dataset
import e2e
import hosts

DATASET = "d"


class Cluster(hosts.Cluster):
    """Up with the block, down at its end; what went wrong then fails the test, unless it has failed already."""

    def __init__(self, **options):
        if not hosts.possible():
            e2e.skip("no network namespaces here")
        super().__init__(e2e.BUILD, os.path.join(e2e.DIR, "c"), **options)
        self.environment.setdefault("AWS_ACCESS_KEY_ID", os.environ.get("AWS_ACCESS_KEY_ID", "any"))
        self.environment.setdefault("AWS_SECRET_ACCESS_KEY", os.environ.get("AWS_SECRET_ACCESS_KEY", "any"))

    def __enter__(self):
        self.wire()
        return self

    def __exit__(self, kind, *_):
        trouble = self.down()
        if kind is None:
            e2e.equal(trouble, [], "what went wrong when the cluster ended")

    def origin(self, *options):
        """An s3d on the bridge; without options of what it serves, a proxy before the run's S3 server."""
        if not options:
            options = ("--upstream", urllib.parse.urlsplit(os.environ["RGW_ENDPOINT"]).netloc)
        return e2e.Origin(*options, *self.origin_options())

    def create(self, origin, url="s3://bucket/", options=()):
        """The dataset of the test; keepers run afterwards."""
        self.dataset(DATASET, url, origin.endpoint, options)

    def mount_all(self, options=()):
        """Mount points, of each host with a keeper one."""
        if e2e.ENGINE != "native":
            options = (*options, "--engine", e2e.ENGINE)
        return [host.mount(DATASET, options=options) for host in self.of("keeper")]

    def wait_reached(self):
        """Waits until each host with a keeper can connect to each worker: before that, packets of a new network may be lost."""
        words = ["exec 3<>/dev/tcp/%s/%d" % (worker.address, hosts.WORKER_PORT) for worker in self.workers]
        for host in self.of("keeper"):
            e2e.poll(lambda: host.attempt("bash", "-ec", "; ".join(words))[0] == 0, host.name + " reaches each worker")

    def status(self, host):
        """cachectl status of one host."""
        return json.loads(host.cachectl(*e2e.STATUS[1:], "-o", "json"))

    def counter(self, role, name, hosts_of=None):
        """The sum of a number that is called so somewhere in the status of all these daemons."""
        found = [host.status(role) for host in hosts_of or self.of(role) if host.runs(role)]
        return sum(sum(e2e.find_key(tree, name)) for tree in found)


def read_all(path, sizes, seed, readers):
    """In a process of its own, by several threads, in random order; every byte is compared."""
    e2e.check_files(path, sizes, readers=readers, seed=seed)


def epoch(paths, sizes, readers, seed=1):
    """Every mount reads everything, `readers` in all."""
    processes = [
        e2e.fork(read_all, path, sizes, seed + k, readers // len(paths)) for k, path in enumerate(paths)
    ]
    e2e.equal(set(e2e.reap(processes, 4 * e2e.PATIENCE).values()), {0}, "exit statuses of the readers")


def some(sizes, share, seed=1):
    """Part of the files."""
    keys = sorted(sizes)
    random.Random(seed).shuffle(keys)
    return {key: sizes[key] for key in keys[: int(len(keys) * share)]}


MiB = dataset.MiB
