"""What the probes of 90-applications share: the tree they read, their registry, comparisons."""

import ctypes
import os
import shutil
import sqlite3
import subprocess

import dataset
import e2e

LARGE, TAIL, COLD, EMPTY = "large.bin", "tail.bin", "cold.bin", "empty.bin"
libc = ctypes.CDLL(None, use_errno=True)
sizes = dataset.small_files(60, 20 * dataset.KiB, "train/", per_directory=20)
sizes.update({LARGE: 5 * dataset.MiB + 12345, TAIL: 8192 + 100, COLD: 3 * dataset.MiB, EMPTY: 0})
probes = {}


def probe(name):
    """A function of the probe's name in the table. It returns what the table says, None for RIGHT, or raises OSError."""

    def add(fn):
        e2e.check(name not in probes, "two probes have the name " + name)
        probes[name] = fn
        return fn

    return add


def same(data, offset=0, size=None, key=LARGE):
    wanted = dataset.content(key, sizes[key])[offset : None if size is None else offset + size]
    e2e.check(bytes(data) == wanted, "%s: wrong bytes at %d, %d of them" % (key, offset, len(data)))


def path(key=LARGE):
    return os.path.join(tree.mount, key)


class opened:
    """A descriptor for a block."""

    def __init__(self, key=LARGE, flags=os.O_RDONLY):
        self.fd = os.open(path(key), flags)

    def __enter__(self):
        return self.fd

    def __exit__(self, *_):
        os.close(self.fd)


def call(name, *args):
    """A function of the C library; raises OSError when it returns -1."""
    result = getattr(libc, name)(*args)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def command(*args, cwd=None, env=None):
    """Returns what a program printed."""
    done = subprocess.run(args, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=e2e.PATIENCE, check=False)
    e2e.equal(done.returncode, 0, "exit of %s: %s" % (args, done.stderr.decode("utf-8", "replace")))
    return done.stdout


def scratch(name):
    return os.path.join(e2e.DIR, name)


def same_tree(copy):
    """A copy of the whole tree, byte for byte, with the times of the original."""
    e2e.check_names(copy, tree.sizes)
    for key in tree.sizes:
        e2e.check(e2e.read_file(os.path.join(copy, key)) == e2e.read_file(os.path.join(tree.path, key)), "bytes of " + key)
        e2e.equal(int(os.stat(os.path.join(copy, key)).st_mtime), int(os.stat(path(key)).st_mtime), "time of " + key)
    shutil.rmtree(copy)


def odd_files():
    """Programs, a library and a database, beside the files with made-up bytes."""
    def add(key, write):
        os.makedirs(os.path.dirname(os.path.join(tree.path, key)), exist_ok=True)
        write(os.path.join(tree.path, key))
        tree.sizes[key] = os.path.getsize(os.path.join(tree.path, key))

    def script(to):
        with open(to, "w") as f:
            f.write("#!/bin/sh\necho hello\n")

    def database(to, journal="delete"):
        with sqlite3.connect(to) as db:
            db.execute("PRAGMA journal_mode = " + journal)
            db.execute("CREATE TABLE t (n INTEGER)")
            db.executemany("INSERT INTO t VALUES (?)", ((n,) for n in range(1000)))
        db.close()

    library = next(line.split()[-1] for line in command("ldd", "/bin/ls").decode().replace("(", "\n(").splitlines() if "=> /" in line)
    add("bin/true", lambda to: shutil.copy("/bin/true", to))
    add("bin/hello", script)
    add("bin/lib.so", lambda to: shutil.copy(library, to))
    add("rows.sqlite", database)
    add("wal.sqlite", lambda to: database(to, "wal"))


tree = e2e.Tree(sizes)
tree.mount = None  # where it is mounted, before a probe runs
odd_files()
