"""Names a hang: whoever takes too long, or a thread that the kernel does not let go of, ends the test with what all of its
processes wait for."""

import os
import threading
import time

import e2e

EVERY = 1.0
STUCK = 60  # seconds that a thread may be in one uninterruptible sleep


def ours():
    """Pids of this test's processes, itself and commands included."""
    marker = ("E2E_MARKER=" + os.environ["E2E_MARKER"]).encode()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if marker in text(pid, "environ").split(b"\0")]


def text(pid, name):
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as f:
            return f.read()
    except OSError:
        return b""  # gone meanwhile


def threads(pid):
    try:
        return os.listdir("/proc/%d/task" % pid)
    except OSError:
        return []


def asleep(pid, thread):
    """What names an uninterruptible sleep of a thread: no two have the same; None while it is in none."""
    state = dict(line.partition(b":")[::2] for line in text(pid, "task/%s/status" % thread).splitlines())
    if not state.get(b"State", b"").strip().startswith(b"D"):
        return None
    return state.get(b"voluntary_ctxt_switches"), state.get(b"nonvoluntary_ctxt_switches")


def show():
    """What each thread of the test waits for."""
    for pid in ours():
        print("process %d: %s" % (pid, text(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")))
        for thread in threads(pid):
            where = "task/%s/" % thread
            state = text(pid, where + "stat").rpartition(b")")[2].split()[:1]
            print("  thread %s %s: state %s in %s" % (
                thread, text(pid, where + "comm").decode("utf-8", "replace").strip(),
                b"".join(state).decode(), text(pid, where + "wchan").decode() or "-"))  # fmt: skip
            for line in text(pid, where + "stack").decode("utf-8", "replace").splitlines():
                print("    " + line)


class Watchdog:
    """A thread that looks while begin() was called and end() was not; may be used again and again."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.now = None  # (what, since)
        self.sleeps = {}  # {(pid, thread): (its sleep, since)}
        threading.Thread(target=self.watch, daemon=True).start()

    def begin(self, what):
        self.now = what, time.monotonic()

    def end(self):
        """Seconds since begin()."""
        began = self.now[1]
        self.now = None
        return time.monotonic() - began

    def watch(self):
        while True:
            time.sleep(EVERY)
            now = self.now
            if not now:
                continue
            if time.monotonic() - now[1] > self.seconds:
                self.give_up("%s: no end after %d s" % (now[0], self.seconds))
            for pid, thread, seconds in self.stuck():
                self.give_up("%s: thread %s of process %d in one sleep for %d s" % (now[0], thread, pid, seconds))

    def stuck(self):
        before, self.sleeps = self.sleeps, {}
        now = time.monotonic()
        for pid in ours():
            for thread in threads(pid):
                if sleep := asleep(pid, thread):
                    known = before.get((pid, thread))
                    self.sleeps[pid, thread] = known if known and known[0] == sleep else (sleep, now)
        return [(pid, thread, now - since) for (pid, thread), (_, since) in self.sleeps.items() if now - since > STUCK]

    def give_up(self, why):
        print("HANG: " + why, flush=True)
        show()
        print("HANG: " + why, flush=True)
        os._exit(1)
