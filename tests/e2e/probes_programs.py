"""Programs that work on a mount: see 90-applications."""

import ctypes
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile

import e2e
from probe import LARGE, command, path, probe, same, same_tree, scratch, tree


@probe("execve(2) of a program or script")
def _():
    e2e.equal(command(path("bin/true")), b"", "output of true")
    e2e.equal(command(path("bin/hello")), b"hello\n", "output of the script")


@probe("a script given to its interpreter, a shared library loaded")
def _():
    e2e.equal(command("sh", path("bin/hello")), b"hello\n", "output of the script")
    e2e.equal(command(sys.executable, "-c", "import ctypes; ctypes.CDLL(%r)" % path("bin/lib.so")), b"", "output")


@probe("tar, rsync -a, cp -a, Python's tarfile and shutil")
def _():
    copy = scratch("copy")
    os.mkdir(copy)
    command("sh", "-c", "tar -C %s -cf - . | tar -C %s -xf -" % (tree.mount, copy))
    same_tree(copy)
    command("rsync", "-a", tree.mount + "/", copy)
    e2e.equal(command("rsync", "-ani", "--checksum", tree.mount + "/", copy).decode(), "", "what rsync would still do")
    same_tree(copy)
    command("cp", "-a", "--reflink=auto", tree.mount, copy)
    same_tree(copy)
    shutil.copytree(tree.mount, copy)
    same_tree(copy)
    with tarfile.open(scratch("t.tar"), "w") as archive:
        archive.add(tree.mount, "copy")
    with tarfile.open(scratch("t.tar")) as archive:
        archive.extractall(e2e.DIR)
    same_tree(copy)


@probe("git add, git status (lstat of every file)")
def _():
    env = dict(os.environ, GIT_DIR=scratch("git"), GIT_WORK_TREE=tree.mount, GIT_CONFIG_GLOBAL="/dev/null")
    command("git", "init", "-q", cwd=tree.mount, env=env)
    command("git", "add", "-A", cwd=tree.mount, env=env)
    e2e.equal(len(command("git", "ls-files", "-z", cwd=tree.mount, env=env).split(b"\0")) - 1, len(tree.sizes), "files in git")
    for _ in range(2):
        said = command("git", "status", "--porcelain", cwd=tree.mount, env=env).decode()
        e2e.equal([line for line in said.splitlines() if not line.startswith("A  ")], [], "what git finds changed")
    found = command("git", "ls-files", "-s", LARGE, cwd=tree.mount, env=env).split()[1].decode()
    e2e.equal(found, command("git", "hash-object", os.path.join(tree.path, LARGE)).decode().strip(), "git's hash")


@probe("find, ls -lR, du, grep -r, sha256sum")
def _():
    def lines(*args):
        return sorted(command(*args, cwd=tree.mount).splitlines()), sorted(command(*args, cwd=tree.path).splitlines())

    for args in (("find", ".", "-type", "f", "-size", "+1", "-printf", "%p %s %T@\n"), ("grep", "-rlc", "hello", ".")):
        got, wanted = lines(*args)
        cut = lambda found: [re.sub(rb"\.\d+$", b"", line) for line in found]  # seconds: all that an origin says
        e2e.equal(cut(got), cut(wanted), args[0])
    got, wanted = lines("find", ".", "-type", "f", "-exec", "sha256sum", "{}", "+")
    e2e.equal(got, wanted, "sha256sum")
    got, wanted = lines("du", "-a", "--apparent-size", "-b", "train/class-00/set-000/img-000003.jpg")
    e2e.equal(got, wanted, "du")
    e2e.equal(len(command("ls", "-lR", tree.mount).splitlines()), len(command("ls", "-lR", tree.path).splitlines()), "lines of ls -lR")


@probe("SQLite, a database for reading")
def _():
    with sqlite3.connect("file:%s?mode=ro" % path("rows.sqlite"), uri=True) as db:
        e2e.equal(db.execute("SELECT count(*), sum(n) FROM t").fetchone(), (1000, 499500), "what the database says")


@probe("SQLite, a database in WAL mode, with immutable=1")
def _():
    try:
        with sqlite3.connect("file:%s?mode=ro" % path("wal.sqlite"), uri=True) as db:
            db.execute("SELECT count(*) FROM t")
        raise AssertionError("a database in WAL mode was opened without its -shm file")
    except sqlite3.OperationalError as error:
        e2e.check("unable to open database file" in str(error), "why: %s" % error)
    with sqlite3.connect("file:%s?immutable=1" % path("wal.sqlite"), uri=True) as db:
        e2e.equal(db.execute("SELECT count(*), sum(n) FROM t").fetchone(), (1000, 499500), "what the database says")


@probe("as the backing file of a loop device")
def _():
    # Only reading: losetup needs root, and a free device.
    done = subprocess.run(["losetup", "-f", "-r", "--show", path()], capture_output=True, timeout=e2e.PATIENCE, check=False)
    if done.returncode:
        e2e.check(b"cannot find an unused" in done.stderr or b"o such file" in done.stderr, "losetup: %r" % done.stderr)
        return RIGHT  # no loop devices here
    device = done.stdout.decode().strip()
    try:
        with open(device, "rb", buffering=0) as f:
            same(os.pread(f.fileno(), 1 << 20, 1 << 20), 1 << 20, 1 << 20)
    finally:
        command("losetup", "-d", device)
