"""Disks whose power is cut: a record of all writes and flushes (tests/tools/recorddisk), and what may be left of them.

A cut after event N of the record leaves everything that was written before the last flush up to N, and of the writes
between that flush and N what dice let through: whole writes or parts of 512 bytes or 4 KiB, of which any may be missing. The
filesystem is the kernel's, over a loop device, so that its journal has to cope as it would.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import uuid

import e2e

KEEP = (0, 100, 500, 500, 900, 1000)  # of a thousand parts of unsynced writes
UNITS = (0, 512, 4096)
CLONE_NEWNS = 0x20000
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def recorddisk(*command):
    return e2e.run(os.path.join(e2e.BUILD, "tests", "recorddisk"), *map(str, command))


def need(*kinds):
    """Skips the test where the kernel has no loop devices or not these filesystems, or their tools are not installed."""
    for kind in kinds:
        if not shutil.which("mkfs." + kind):
            e2e.skip("no mkfs.%s: install its package (deploy/packages.txt)" % kind)
        image, path = os.path.join(e2e.DIR, "need.img"), os.path.join(e2e.DIR, "need")
        os.mkdir(path)
        with open(image, "w") as f:
            f.truncate(300 * 2**20)  # as small as XFS can be
        e2e.run("mkfs." + kind, "-q", image)
        code, _, said = e2e.attempt("mount", "-t", kind, "-o", "loop", image, path)
        if code:
            e2e.skip("this kernel mounts no %s over a loop device: %s" % (kind, said.strip().split("\n")[0]))
        e2e.run("umount", path)
        os.rmdir(path)
        os.unlink(image)


def private_mounts():
    """From here on this process and its children see and make mounts of their own."""
    e2e.unshare(CLONE_NEWNS)
    e2e.run("mount", "--make-rprivate", "/")
    e2e.forget_mounts()


@contextlib.contextmanager
def another_boot(rng):
    """The kernel says another boot id."""
    path = os.path.join(e2e.DIR, "boot-id")
    with open(path, "w") as f:
        f.write("%s\n" % uuid.UUID(int=rng.getrandbits(128), version=4))
    e2e.run("mount", "--bind", path, BOOT_ID)
    try:
        yield
    finally:
        e2e.run("umount", BOOT_ID)


class Recorded:
    """A new filesystem at `path` on a disk that records, for the length of the block; then its cuts."""

    def __init__(self, name, size, kind="ext4", options=()):
        self.path = os.path.join(e2e.DIR, name)
        self.kind = kind
        self.image, self.base, self.record = (
            os.path.join(e2e.DIR, name + end) for end in (".disk", ".base", ".record")
        )
        self.served = os.path.join(e2e.DIR, name + ".fuse")
        os.mkdir(self.path)
        os.mkdir(self.served)
        with open(self.image, "w") as f:
            f.truncate(size)
        e2e.run("mkfs." + kind, "-q", *options, self.image)
        e2e.run("cp", "--sparse=always", self.image, self.base)
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(
            [os.path.join(e2e.BUILD, "tests", "recorddisk"), "serve", "--image", self.image]
            + ["--record", self.record, self.served],
            stdout=subprocess.PIPE,
            text=True,
        )
        e2e.equal(self.process.stdout.readline(), "ready\n", "what recorddisk says")
        self.mount(os.path.join(self.served, "disk"))
        return self

    def __exit__(self, kind, *_):
        self.control("go")
        if kind:
            # run-e2e clears up. The server of the disk must not be the last that holds its filesystem: its end would wait for itself.
            e2e.attempt("umount", "-l", self.path)
            return
        self.umount()
        e2e.run("umount", self.served)
        e2e.equal(self.process.wait(e2e.PATIENCE), 0, "exit status of recorddisk")
        self.process.stdout.close()

    def mount(self, image):
        # Its journal is written out often: more flushes, more places for a cut.
        options = "loop,commit=1" if self.kind == "ext4" else "loop"
        command = ("mount", "-t", self.kind, "-o", options, image, self.path)
        if self.kind == "ext4" and e2e.attempt(*command)[0] == 0:
            return
        if self.kind == "ext4":
            # Its superblock has two sectors and no journal: a torn one is what the check at boot repairs.
            print("e2fsck: %s" % e2e.attempt("e2fsck", "-fy", image)[1].strip().replace("\n", "; "))
        e2e.run(*command)

    def umount(self):
        # A daemon that has just ended may still be letting go of its files.
        e2e.poll(lambda: e2e.attempt("umount", self.path)[0] == 0, "%s is unmounted" % self.path)

    def control(self, line):
        with open(os.path.join(self.served, "control"), "w") as f:
            f.write(line)

    def mark(self, text):
        self.control("mark " + text)

    def listed(self):
        """{"events": N, "bytes": N, "flushes": [N, ...], "marks": [[N, TEXT], ...]}"""
        return json.loads(recorddisk("list", "--record", self.record))


class Cuts:
    """Power cuts of a record, the earliest first: `for cut in Cuts(...): with cut.mounted(): ...`"""

    def __init__(self, recorded, count, seed, first=0):
        self.recorded = recorded
        self.listed = recorded.listed()
        self.rng = random.Random(seed)
        self.durable = recorded.base  # what all events before `done` left
        self.done = 0
        flushes = [n for n in self.listed["flushes"] if n > first]
        e2e.at_least(len(flushes), 5, "flushes on record")
        # Anywhere; and where a flush is just not done, the more probable the more is at stake.
        events = [self.rng.randrange(first, self.listed["events"]) for _ in range(count // 2)]
        unsynced = [flush - before for before, flush in zip([first] + flushes, flushes)]
        events += self.rng.choices(flushes, unsynced, k=count - count // 2)
        self.events = sorted(events)

    def __iter__(self):
        for event in self.events:
            yield self.cut(event)

    def cut(self, event):
        flush = max((n for n in self.listed["flushes"] if n < event), default=0)
        if flush > self.done:
            where = ("--from", self.done, "--to", flush, self.durable)
            recorddisk("apply", "--record", self.recorded.record, *where)
            self.done = flush
        left = self.recorded.image
        e2e.run("cp", "--sparse=always", self.durable, left)
        dice = {"keep": self.rng.choice(KEEP), "unit": self.rng.choice(UNITS), "seed": self.rng.getrandbits(31)}
        options = [part for name, value in dice.items() for part in ("--" + name, value)]
        recorddisk("apply", "--record", self.recorded.record, "--from", self.done, "--to", event, *options, left)
        return Cut(self, event, event - self.done, dice)


class Cut:
    def __init__(self, cuts, event, unsynced, dice):
        self.cuts = cuts
        self.event = event
        self.marks = [text for n, text in cuts.listed["marks"] if n < event]
        self.text = "cut at event %d of %d, %d after the last flush, %s; after %s" % (
            event, cuts.listed["events"], unsynced, dice, self.marks[-1:] or "nothing")  # fmt: skip

    @contextlib.contextmanager
    def mounted(self):
        """The machine is up again: what was left, mounted where it was, under another boot id."""
        self.cuts.recorded.mount(self.cuts.recorded.image)
        try:
            with another_boot(self.cuts.rng):
                yield
        finally:
            self.cuts.recorded.umount()


def tidy(recorded):
    """Removes what a record takes of the disk."""
    for path in (recorded.image, recorded.base, recorded.record):
        os.unlink(path)
    for path in (recorded.path, recorded.served):
        shutil.rmtree(path)
