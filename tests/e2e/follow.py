"""A directory that changes under readers: what a file says is its key and its version, so that a mix or an unknown one is seen."""

import errno
import os
import random
import threading
import time

import e2e


def text(key, version, size):
    """Every 32 bytes name key and version."""
    word = ("%-22.22s %08d\n" % (key[-22:], version)).encode()
    return (word * (size // len(word) + 1))[:size]


class Changing:
    """Objects with a version each. What may be seen of a key: every version that it had, and its absence when it was away."""

    url = "s3://bucket/"

    def __init__(self, keys, size):
        self.path = os.path.join(e2e.DIR, "tree")
        self.size = size
        self.now = {}  # key: version
        self.absent = set()  # keys that were away at some time
        self.last = {}  # key: last version it had
        self.history = {}  # key: [(when a listing sees it, version or None)]
        self.changes = 0
        for key in keys:
            self.write(key)
        self.publish(keys)

    def size_of(self, key, version):
        return self.size + (hash_of(key) + 7 * version) % 4096

    def write(self, key):
        if key not in self.now:
            self.absent.add(key)
        version = self.last.get(key, 0) + 1
        self.last[key] = version  # before anybody can see it
        path = os.path.join(self.path, key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new~", "wb") as f:
            f.write(text(key, version, self.size_of(key, version)))
        os.rename(path + ".new~", path)
        self.now[key] = version

    def delete(self, key):
        self.absent.add(key)
        os.unlink(os.path.join(self.path, key))
        del self.now[key]

    def change(self, dice, number, origin):
        """Most are rewritten, one of ten goes, one of ten comes, some in directories of their own."""
        keys = sorted(self.now)
        touched = []
        for i in range(self.changes, self.changes + number):
            key = dice.choice(keys)
            if i % 10 == 9:
                n = dice.randrange(10**6)
                key = "more%d/%06d" % (n % 5, n)
            if i % 10 == 8 and key in self.now:
                self.delete(key)
            else:
                self.write(key)
            touched.append(key)
        origin.rescan()
        self.publish(touched)

    def publish(self, keys):
        for key in keys:
            self.history.setdefault(key, []).append((time.time(), self.now.get(key)))
        self.changes += len(keys)

    def least(self, key, when):
        """What a listing that began at that time saw of the key: a version, or None."""
        version = None
        for at, what in self.history.get(key, ()):
            if at > when:
                break
            version = what
        return version


def hash_of(key):
    return sum(ord(c) * (i + 1) for i, c in enumerate(key))


class Readers:
    """Read files by name over and over until stop(); raises there for the first thing that cannot be."""

    def __init__(self, tree, path, number, allowed=(), pause=0):
        self.as_of = 0  # what is shown is at least as new as a listing that began then
        self.tree = tree
        self.path = path
        self.allowed = allowed  # errnos of what the origin has not any more
        self.pause = pause  # seconds between two reads
        self.stopping = threading.Event()
        self.reads = self.absent = self.refused = 0
        self.lock = threading.Lock()
        self.threads = [e2e.Background(self.run, seed) for seed in range(number)]

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        print("%d reads, %d of what was not there, %d refused" % (self.reads, self.absent, self.refused))

    def run(self, seed):
        dice = random.Random(seed)
        seen = {}
        while not self.stopping.is_set():
            key = dice.choice(list(self.tree.last))
            kind = self.read(key, seen, dice)
            with self.lock:
                self.reads += kind == "read"
                self.absent += kind == "absent"
                self.refused += kind == "refused"
            self.stopping.wait(self.pause)

    def read(self, key, seen, dice):
        least = self.tree.least(key, self.as_of)
        try:
            fd = os.open(os.path.join(self.path, key), os.O_RDONLY)
        except OSError as error:
            e2e.equal(error.errno, errno.ENOENT, "opening " + key)
            e2e.check(key in self.tree.absent, "%s is not there, and always was" % key)
            if least is not None:
                e2e.check(any(what is None for at, what in list(self.tree.history[key]) if at > self.as_of)
                          or key not in self.tree.now, "%s is not there, and was when it was listed" % key)
            seen.pop(key, None)
            return "absent"
        try:
            size = os.fstat(fd).st_size
            first = os.pread(fd, 1 << 16, 0)
            if dice.randrange(50) == 0:
                time.sleep(dice.random())  # open over a switch
            again = os.pread(fd, 1 << 16, 0)
        except OSError as error:
            e2e.check(error.errno in self.allowed, "reading %s: %s" % (key, error))
            return "refused"
        finally:
            os.close(fd)
        self.verify(key, first, size, seen, least or 0)
        e2e.check(again == first, "an open file of %s changed" % key)
        return "read"

    def verify(self, key, data, size, seen, least):
        version = int(data[23:31] or b"0")
        e2e.check(1 <= version <= self.tree.last[key], "%s: version %d never was: %r" % (key, version, data[:64]))
        e2e.equal(size, self.tree.size_of(key, version), "size of %s, version %d" % (key, version))
        e2e.check(data == text(key, version, size), "%s: bytes of several versions, or of none: %r" % (key, data[:64]))
        e2e.check(version >= seen.get(key, 0), "%s: version %d after %d" % (key, version, seen.get(key, 0)))
        e2e.check(version >= least, "%s: version %d is stale, %d was listed" % (key, version, least))
        seen[key] = version


def check_newest(tree, path):
    """Names and bytes are those of the last version of everything."""
    found = {}
    for root, _, names in os.walk(path, onerror=e2e.raise_error):
        for name in names:
            found[os.path.relpath(os.path.join(root, name), path)] = os.path.join(root, name)
    e2e.equal(sorted(set(found) ^ set(tree.now)), [], "names that are wrong")
    for key, version in tree.now.items():
        data = e2e.read_file(found[key])
        e2e.check(data == text(key, version, tree.size_of(key, version)), "%s is not version %d: %r" % (key, version, data[:64]))


def own(mount):
    """What the status says of the generation that is shown; the next one's daemon may be starting."""
    rows = [row for row in mount.status()["mounts"] if row.get("mountpoint") == mount.path and row.get("follow")]
    return max(rows, key=lambda row: row["generation"], default={"follow": {"follows": False}})


def shown(mount, seconds=e2e.PATIENCE):
    """Waits until a mount that follows shows what a listing found that began after this call."""
    began = time.time()

    def current():
        asked = time.time()  # before the lag is told: a listing that began earlier must not seem later
        row = own(mount)
        follow = row["follow"]
        if not follow["follows"] or follow["generation"] != follow["newest"]:
            return None
        return row if asked - follow.get("lag_s", 1e9) > began else None

    return e2e.poll(current, "the newest is shown", seconds)
