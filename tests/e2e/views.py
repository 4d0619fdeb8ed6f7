"""Readers of a mount through its views: the mount point, a bind mount of it, and a mount namespace of their own.

Each is a process that reads until end(), compares every byte and each listing with the dataset, and counts errors and differences.
"""

import json
import os
import random
import select
import socket
import sys
import time

import dataset
import e2e

VIEWS = ("mount", "bind", "namespace")
PART = 64 * dataset.KiB
PAUSE = 0.004  # seconds between reads: readers that never wait would take a processor
COLD_EVERY = 16  # reads
WRONG_MAX = 5  # that are named, and the last
TAKE, SEE = b"t", b"s"
CLONE_NEWNS = 0x20000
MS_BIND = 4096


def bind(path, to, user=None):
    """mount --bind as a user that mount(8) would not let: with the right to mount, and nothing else of root."""
    script = "import ctypes, sys; sys.exit(ctypes.CDLL(None).mount(sys.argv[1].encode(), sys.argv[2].encode(), None, %d, None))" % MS_BIND
    capable = user.prefix + ("--inh-caps", "+sys_admin", "--ambient-caps", "+sys_admin") if user else ()
    e2e.run(*capable, sys.executable, "-c", script, path, to)


class Reading:
    """The loop of a reader's process. `warm`: {key: size} read again and again, `cold`: each read once."""

    def __init__(self, path, warm, cold, seed):
        self.path, self.warm, self.cold = path, list(warm.items()), list(cold.items())
        self.choice = random.Random(seed)
        self.choice.shuffle(self.cold)
        self.names = {}
        for key in warm:
            directory, _, name = key.rpartition("/")
            self.names.setdefault(directory, set()).add(name)
        self.open = {}
        self.clear()

    def clear(self):
        self.found = {"reads": 0, "errors": {}, "wrong": [], "empty": 0, "longest": 0.0, "what": ""}

    def timed(self, what, fn, *args):
        began = time.monotonic()
        try:
            fn(*args)
        except OSError as error:
            name = "%s: %s" % (what.split()[0], os.strerror(error.errno))
            self.found["errors"][name] = self.found["errors"].get(name, 0) + 1
        took = time.monotonic() - began
        self.found["reads"] += 1
        if took > self.found["longest"]:
            self.found["longest"], self.found["what"] = took, what

    def read(self, fd, key, size):
        at = self.choice.randrange(0, max(size - PART, 1)) & ~4095
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        data = os.pread(fd, PART, at)
        if data != dataset.content(key, min(PART, size - at), at):
            self.wrong("%s at %d: %d bytes" % (key, at, len(data)))

    def wrong(self, what):
        self.found["wrong"] = self.found["wrong"][:WRONG_MAX] + [what]

    def read_file(self, key, size):
        fd = os.open(os.path.join(self.path, key), os.O_RDONLY)
        try:
            self.read(fd, key, size)
        finally:
            os.close(fd)

    def list(self, directory):
        names = set(os.listdir(os.path.join(self.path, directory)))
        if not names:
            self.found["empty"] += 1
        elif names != self.names[directory]:
            self.wrong("names of %s: %d, not %d" % (directory, len(names), len(self.names[directory])))

    def step(self, number):
        key, size = self.choice.choice(self.warm)
        if number % COLD_EVERY == 0 and self.cold:
            key, size = self.cold.pop()
            self.timed("cold read", self.read_file, key, size)
        elif number % COLD_EVERY == 1:
            self.timed("listing", self.list, self.choice.choice(list(self.names)))
        elif number % 4 == 2:
            key = self.choice.choice(list(self.open))
            self.timed("open file", self.read, self.open[key], key, dict(self.warm)[key])
        else:
            self.timed("read", self.read_file, key, size)

    def run(self, control):
        self.open = {key: os.open(os.path.join(self.path, key), os.O_RDONLY) for key, _ in self.warm[:3] + self.warm[-1:]}
        number = 0
        while True:
            self.step(number)
            number += 1
            if select.select([control], [], [], PAUSE)[0]:
                asked = control.recv(1)
                if not asked:
                    return
                for _ in range(COLD_EVERY):  # of each kind of read, once more
                    self.step(number)
                    number += 1
                control.sendall(json.dumps(self.found).encode() + b"\n")
                if asked == TAKE:
                    self.clear()


class Readers:
    """One process for each view, as `user` or root. The bind mount is made here."""

    def __init__(self, path, bound, warm, cold, user=None):
        self.bound, self.user = bound, user
        os.makedirs(bound, exist_ok=True)
        if user:
            os.chown(bound, user.uid, user.gid)
        bind(path, bound, user)
        cold = list(cold.items())
        self.processes = {}
        for number, view in enumerate(VIEWS):
            ours, theirs = socket.socketpair()
            reading = Reading(bound if view == "bind" else path, warm, dict(cold[number :: len(VIEWS)]), number)
            pid = e2e.fork(self.become, view, reading, ours, theirs)
            theirs.close()
            self.processes[view] = pid, ours, ours.makefile("r")
        self.take()  # each of them reads

    def become(self, view, reading, ours, theirs):
        ours.close()
        for _, other, _ in self.processes.values():
            other.close()
        if view == "namespace":
            e2e.unshare(CLONE_NEWNS)
        if self.user:
            self.user.become()
        reading.run(theirs)

    def see(self):
        """As take(), without a reset."""
        return self.take(SEE)

    def take(self, ask=TAKE):
        """{view: what it has found since the last call}; each has read something of every kind after the call."""
        for _, control, _ in self.processes.values():
            control.sendall(ask)
        met = {}
        for view, (_, control, lines) in self.processes.items():
            e2e.check(select.select([control], [], [], e2e.PATIENCE)[0], "the reader of the %s does not come back" % view)
            line = lines.readline()
            e2e.check(line, "the reader of the %s ended" % view)
            met[view] = json.loads(line)
        return met

    def end(self):
        for _, control, lines in self.processes.values():
            lines.close()
            control.close()
        ends = e2e.reap([pid for pid, _, _ in self.processes.values()])
        e2e.equal(set(ends.values()), {0}, "ends of the readers")
        e2e.run("umount", "-l", self.bound)
