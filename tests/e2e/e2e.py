"""What the end-to-end tests share: origins that count and misbehave, buckets, mounts, comparisons.

A test is a script that raises on the first thing that is not as it should be. tests/run-e2e gives it its directory, the
environment of the S3 server and the programs of the build on PATH, and clears up after it.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import random
import re
import secrets
import signal
import socket
import stat
import subprocess
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import dataset
import s3put

BUILD = os.environ["E2E_BUILD"]
DIR = os.environ["E2E_TEST_DIR"]
NAME = os.environ["E2E_NAME"]
ENGINE = os.environ["E2E_ENGINE"]  # that mounts use unless they ask for another

# What a read of an object says that changed after the listing, and is not cached.
STALE = errno.ESTALE if ENGINE == "fuse" else errno.EIO
# What an open file says whose mount was forced off.
CUT = {errno.EIO, errno.ENOTCONN} if ENGINE == "fuse" else {errno.EIO}
PATIENCE = 120  # seconds for what must come, on however slow a machine
STATUS = ("cachectl", "status", "--timeout", "60s")  # of daemons that run, however slow the machine is
CLONE_NEWNET = 0x40000000


_began = time.monotonic()


def step(text):
    print("--- %5.1f s: %s" % (time.monotonic() - _began, text))


SKIPPED = 77  # exit status, known to run-e2e


def skip(why):
    """This machine has not what the test needs; the last line of the log says what."""
    print("skipped: " + why, flush=True)
    os._exit(SKIPPED)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def equal(got, wanted, what):
    if got != wanted:
        raise AssertionError("%s: %.500r, not %.500r" % (what, got, wanted))


def at_most(got, limit, what):
    print("%s: %s (at most %s)" % (what, got, limit))
    if got > limit:
        raise AssertionError("%s: %s, more than %s" % (what, got, limit))


def at_least(got, limit, what):
    print("%s: %s (at least %s)" % (what, got, limit))
    if got < limit:
        raise AssertionError("%s: %s, less than %s" % (what, got, limit))


def poll(fn, what, seconds=PATIENCE, every=None):
    """Calls fn until it returns something true, which is returned; fails after the deadline. every: seconds between calls."""
    began = time.monotonic()
    while True:
        result = fn()
        if result:
            return result
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError("not within %s s: %s" % (seconds, what))
        time.sleep(every or min(max(waited / 5, 0.02), 0.3))  # less and less often: most fn start a program


def run(*command, timeout=PATIENCE, env=None):
    """A command that must succeed; returns what it printed."""
    code, out, err = attempt(*command, timeout=timeout, env=env)
    if code:
        raise AssertionError("%s: exit %d\n%s%s" % (" ".join(command), code, out, err))
    return out


def attempt(*command, timeout=PATIENCE, env=None):
    """Returns (exit status, stdout, stderr). env: changes to the environment, None removes a variable."""
    environment = dict(os.environ)
    for name, value in (env or {}).items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    # Through files: a daemon left behind that holds a pipe would keep us waiting for its end.
    with open(os.path.join(DIR, "out.%s" % secrets.token_hex(4)), "w+") as out, open(
        os.path.join(DIR, "err.%s" % secrets.token_hex(4)), "w+"
    ) as err:
        try:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=timeout, env=environment
            ).returncode
        finally:
            texts = []
            for f in (out, err):
                f.seek(0)
                texts.append(f.read())
                os.unlink(f.name)
    return code, texts[0], texts[1]


def free_port():
    """Of this host, below those that the kernel chooses by itself: no other process takes it meanwhile."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def refused(*command, text, status=None, timeout=PATIENCE, env=None):
    """A command that must fail with one line on stderr that contains each of `text`, and nothing else."""
    code, out, err = attempt(*command, timeout=timeout, env=env)
    print("exit %d: %s" % (code, err.strip()))
    check(code > 0, "%s: exit %d" % (" ".join(command), code))
    if status is not None:
        equal(code, status, "exit status of " + " ".join(command))
    equal(out, "", "standard output of a refusal")
    equal(err.count("\n"), 1, "lines on standard error: " + err)
    for part in [text] if isinstance(text, str) else text:
        check(part in err, "%r is not in: %s" % (part, err))
    return err


def will_evict(text):
    """Bytes that a line like "the quota will evict 340MiB; ..." names, which has three digits."""
    found = re.search(r"quota will evict ([\d.]+)([KMG]?i?B)", text)
    check(found, "no size in: " + text)
    return float(found[1]) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[found[2]]


# Origins -------------------------------------------------------------------------------------


class Origin:
    """An s3d of this test: counts requests and misbehaves on command (tests/tools/s3d_fault.c)."""

    def __init__(self, *options):
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "tests", "s3d")] + list(options), stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        check("control=" in line, "s3d did not start")
        addresses = dict(part.split("=") for part in line.split())
        self.endpoint = "http://" + addresses["data"]
        self.control = "http://" + addresses["control"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.terminate()
        self.process.stdout.close()
        equal(self.process.wait(PATIENCE), 0, "exit status of s3d")

    def ask(self, method, path, **query):
        url = self.control + path + ("?" + urllib.parse.urlencode(query) if query else "")
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError("%s: %s" % (url, error.read().decode())) from error

    def stats(self):
        return self.ask("GET", "/stats")

    def reset(self):
        self.ask("POST", "/reset")

    def fault(self, kind, **rule):
        """E.g. fault("status", code=503, rate=0.2), fault("stall", key="shard", count=1); returns its id."""
        return self.ask("POST", "/faults", kind=kind, **rule)["id"]

    def faults(self):
        return self.ask("GET", "/faults")

    def heal(self, rule=0):
        """Removes one rule, or all; what is stalled stays so until release()."""
        self.ask("DELETE", "/faults", id=rule)

    def release(self):
        return self.ask("POST", "/release")["released"]

    def rescan(self):
        self.ask("POST", "/rescan")


    def settled(self, seconds=PATIENCE):
        """Waits until no GET is in progress for a while, prefetches included; returns the counters."""
        quiet = 0

        def still():
            nonlocal quiet
            quiet = quiet + 1 if self.stats()["gets_now"] == 0 else 0
            return quiet >= 10

        poll(still, "the origin has nothing to do", seconds, every=0.02)
        return self.stats()


def proxy():
    """An origin in front of the run's S3 server."""
    return Origin("--upstream", urllib.parse.urlsplit(os.environ["RGW_ENDPOINT"]).netloc)


class Bucket:
    """A bucket of this test on the S3 server, filled behind the proxy's back, emptied at the end."""

    def __init__(self, sizes=None, version=0):
        self.s3 = s3put.S3.from_environment()
        self.name = "e2e-%s-%s" % (NAME[:30], secrets.token_hex(4))
        self.sizes = {}
        self.s3.create_bucket(self.name)
        if sizes:
            self.put(sizes, version)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s3.delete_all(self.name)
        self.s3.delete_bucket(self.name)

    def put(self, sizes, version=0):
        """Uploads dataset.content() of each key; sizes: {key: size}."""
        self.sizes.update(sizes)
        self.s3.put_many(self.name, dataset.objects(sizes, version))

    def put_bytes(self, key, data):
        self.s3.put(self.name, key, data)
        self.sizes[key] = len(data)

    def delete(self, key):
        self.s3.delete(self.name, key)
        del self.sizes[key]

    def url(self, prefix=""):
        return "s3://%s/%s" % (self.name, prefix)


class Tree:
    """A directory of objects that an s3d serves as `bucket`: changed behind the mount's back by writing files."""

    url = "s3://bucket/"

    def __init__(self, sizes=None, name="tree"):
        self.path = os.path.join(DIR, name)
        self.sizes = {}
        self.versions = {}
        os.makedirs(self.path)
        self.put(sizes or {})

    def put(self, sizes, version=0):
        for key, size in sizes.items():
            path = os.path.join(self.path, key)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(dataset.content(key, size, version=version))
            self.sizes[key] = size
            self.versions[key] = version

    def delete(self, key):
        os.unlink(os.path.join(self.path, key))
        del self.sizes[key]
        del self.versions[key]

    def origin(self, *options):
        return Origin("--dir", self.path, *options)


def synthetic(count, size, directories, prefix=""):
    """({key: size}, options of an Origin) of objects that s3d makes up: the bytes are dataset.content()."""
    per_directory = (count + directories - 1) // directories
    sizes = {"%sd%05d/o%08d" % (prefix, i // per_directory, i): size for i in range(count)}
    return sizes, ("--synthetic", "%d,%d,%d,%s" % (count, size, directories, prefix))


# Mounts --------------------------------------------------------------------------------------


class Mount:
    """`cachectl mount`, and `cachectl umount` at the end of the block."""

    def __init__(self, url, origin=None, name="mnt", cache="cache", options=(), timeout=PATIENCE, env=None):
        self.path = os.path.join(DIR, name)
        self.cache = os.path.join(DIR, cache)
        self.mounted = False
        os.makedirs(self.path, exist_ok=True)
        command = ["cachectl", "mount", url, self.path, "--cache", self.cache]
        if origin:
            endpoint = origin if isinstance(origin, str) else origin.endpoint
            command += ["--endpoint", endpoint, "--path-style"]
        if ENGINE != "native" and "--engine" not in options:
            command += ["--engine", ENGINE]
        began = time.monotonic()
        code, out, self.notice = attempt(*command, *options, timeout=timeout, env=env)
        equal(code, 0, "exit of cachectl mount: " + out + self.notice)
        self.mounted = True
        print("mounted %s in %.2f s" % (url, time.monotonic() - began))
        check(os.path.ismount(self.path), "%s is not a mount point after cachectl mount" % self.path)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.mounted:
            self.umount(check_exit=kind is None)

    def umount(self, *options, timeout=PATIENCE, check_exit=True):
        self.mounted = False
        code, out, err = attempt("cachectl", "umount", self.path, *options, timeout=timeout)
        if check_exit:
            equal(code, 0, "exit of cachectl umount: " + out + err)
            check(not os.path.ismount(self.path), "still mounted after cachectl umount")
            equal(os.listdir(self.path), [], "what is under the mount point after cachectl umount")

    def status(self):
        """`cachectl status -o json`: {"mounts": [...], "workers": [...], "masters": [...], "keepers": [...]}."""
        return json.loads(run(*STATUS, "-o", "json"))

    def own(self):
        """What the status says of this mount."""
        found = [mount for mount in self.status()["mounts"] if mount.get("mountpoint") == self.path]
        equal(len(found), 1, "entries of %s in the status" % self.path)
        return found[0]

    def requests(self):
        """Requests that the mount's daemon has handled."""
        return self.own()["daemon_requests"]

    def sum(self, *names):
        """Of all numbers under the last name that lie somewhere below the others, in what mounts and daemons say."""
        trees = [{part: self.status()[part] for part in ("mounts", "workers", "masters")}]
        for name in names:
            trees = [found for tree in trees for found in find_key(tree, name)]
        check(trees, "%s is not in the status" % ".".join(names))
        return sum(trees)

    def restarts(self, name):
        """How often the keeper has started `master`, `worker` or, with "mount", this mount's daemon again."""
        if name == "mount":
            return self.own()["restarts"]
        found = [daemon for daemon in self.status()["keepers"][0]["daemons"] if daemon["name"] == name]
        equal(len(found), 1, "daemons with the name " + name)
        return found[0]["restarts"]

    def explain(self, key):
        return json.loads(run("cachectl", "explain", "-o", "json", self.file(key)))

    def file(self, key):
        return os.path.join(self.path, key)


def find_key(tree, name):
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == name:
                yield value
            else:
                yield from find_key(value, name)
    elif isinstance(tree, list):
        for value in tree:
            yield from find_key(value, name)


# Reading -------------------------------------------------------------------------------------


def read_file(path, block=1 << 20):
    """All bytes by read(2) alone: no calls that Python's own open() adds."""
    fd = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while data := os.read(fd, block):
            parts.append(data)
        return b"".join(parts)
    finally:
        os.close(fd)


def read_at(path, offset, size):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)


def check_file(mount, key, size, version=0, prefix=""):
    fd = os.open(os.path.join(mount, key), os.O_RDONLY)
    try:
        found = 0
        while data := os.read(fd, 1 << 20):  # block by block: no copies of a large file are made
            wanted = dataset.content(prefix + key, len(data), found, version=version)
            check(data == wanted, "bytes of %s differ" % key)
            found += len(data)
        equal(found, size, "size of " + key)
    finally:
        os.close(fd)
    return size


def check_files(mount, sizes, version=0, prefix="", readers=4, seed=1):
    """Reads files in random order and compares every byte with dataset.content(); returns the bytes read.

    mount: a Mount or a directory. version: of all, or {key: version}. prefix: of the keys, when it was mounted away.
    """
    versions = version if isinstance(version, dict) else dict.fromkeys(sizes, version)
    keys = list(sizes)
    random.Random(seed).shuffle(keys)
    path = mount.path if isinstance(mount, Mount) else mount
    began = time.monotonic()
    with ThreadPoolExecutor(readers) as pool:
        done = sum(pool.map(lambda key: check_file(path, key, sizes[key], versions[key], prefix), keys))
    seconds = time.monotonic() - began
    print("%d files, %.1f MiB, %.0f files/s" % (len(keys), done / dataset.MiB, len(keys) / max(seconds, 1e-6)))
    return done


def check_names(mount, sizes):
    """The tree has exactly these files with these sizes; directories are those of the keys."""
    path = mount.path if isinstance(mount, Mount) else mount
    found = {}
    for root, _, names in os.walk(path, onerror=raise_error):
        for name in names:
            full = os.path.join(root, name)
            status = os.lstat(full)
            check(stat.S_ISREG(status.st_mode), "%s is not a regular file" % full)
            found[os.path.relpath(full, path)] = status.st_size
    missing = sorted(set(sizes) - set(found))
    extra = sorted(set(found) - set(sizes))
    check(not missing and not extra, "names missing: %.500r, too many: %.500r" % (missing, extra))
    wrong = [(key, found[key], sizes[key]) for key in sizes if found[key] != sizes[key]]
    equal(wrong, [], "sizes (key, found, uploaded)")


def raise_error(error):
    raise error


def total(sizes):
    return sum(sizes.values())


@contextlib.contextmanager
def caches_kept():
    """Yields the kernel's switch for its caches. No other test uses it in this block, which must not call drop_caches()."""
    with open("/proc/sys/vm/drop_caches", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield f


def drop_caches(what="3"):
    """Of the whole kernel: "1" pages, "2" names and inodes, "3" both. Pages that are not written yet stay: none is of a mount."""
    with caches_kept() as f:
        f.write(what)
        f.flush()


class Background:
    """A function in a thread; join() returns its value or raises what it raised."""

    def __init__(self, fn, *args):
        self.value = None
        self.error = None
        self.thread = threading.Thread(target=self._run, args=(fn, args), daemon=True)
        self.thread.start()

    def _run(self, fn, args):
        try:
            self.value = fn(*args)
        except BaseException as error:  # handed to join()
            self.error = error

    def running(self):
        return self.thread.is_alive()

    def join(self, seconds=PATIENCE):
        self.thread.join(seconds)
        check(not self.thread.is_alive(), "still running after %s s" % seconds)
        if self.error:
            raise self.error
        return self.value


# Processes -----------------------------------------------------------------------------------


DAEMONS = ("cachectl", "cachekeeper", "cachemaster", "cacheworker", "cachefuse", "cachecsi")


def all_daemons():
    """{program: pids} of this test's processes."""
    marker = ("E2E_MARKER=" + os.environ["E2E_MARKER"]).encode()
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name = os.path.basename(os.readlink("/proc/%s/exe" % pid))
            if name not in DAEMONS:  # of most, no more is read: hundreds of processes run on a busy machine
                continue
            with open("/proc/%s/environ" % pid, "rb") as f:
                if marker not in f.read().split(b"\0"):
                    continue
            found.setdefault(name, []).append(int(pid))
        except OSError:
            continue  # gone meanwhile
    return found


def daemons(program):
    """Pids of this test's processes of one of DAEMONS."""
    return all_daemons().get(program, [])


def kill(*programs):
    """kill -9 of this test's processes with these program names; each must have at least one."""
    found = [daemons(program) for program in programs]
    for program, pids in zip(programs, found):
        check(pids, "no %s runs" % program)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # a helper that has ended meanwhile
                os.kill(pid, signal.SIGKILL)
    for pid in sum(found, []):
        poll(lambda: not alive(pid), "process %d is gone" % pid)


def alive(pid):
    """A zombie, which waits for its parent only, is not."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def state_of(pid, thread):
    try:
        with open("/proc/%d/task/%s/stat" % (pid, thread)) as f:
            return f.read().rpartition(")")[2].split()[0]
    except OSError:
        return "X"  # it has ended


def stop(*pids):
    """No thread of these processes runs when this returns; kill() returns before a SIGSTOP has reached them all."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        poll(lambda: all(state_of(pid, thread) in "TXZ" for thread in os.listdir("/proc/%d/task" % pid)), "process %d is stopped" % pid)


@contextlib.contextmanager
def no_restarts():
    """The keeper does nothing meanwhile: it neither starts a daemon again nor kills one that is stopped."""
    watching = daemons("cachekeeper")
    stop(*watching)
    try:
        yield
    finally:
        for pid in watching:
            os.kill(pid, signal.SIGCONT)


def fork(fn, *args):
    """Runs fn in a child; its exit status is 0, 1 when fn raised, or the errno of an OSError."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        fn(*args)
        code = 0
    except OSError as error:
        code = error.errno or 1
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def reap(pids, seconds=PATIENCE):
    """{pid: exit status, -SIGNAL when killed} once all children have ended."""
    codes = {}

    def wait():
        for pid in set(pids) - set(codes):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
        return len(codes) == len(set(pids))

    poll(wait, "children have ended", seconds)
    return codes


def unshare(flags):
    """unshare(2), as in os.unshare() of Python 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")


def private_network():
    """From here on this process and its children have a network of their own, in which each port of 127.0.0.0/8 is free."""
    unshare(CLONE_NEWNET)
    run("ip", "link", "set", "lo", "up")


def forget_mounts():
    """In a mount namespace of one's own: lets go of the copies of what others have mounted, who would find it busy.

    What this test lies on itself stays: a checkout may be a mount of that name.
    """
    needed = [os.path.realpath(path) + "/" for path in (DIR, BUILD, __file__)]
    with open("/proc/self/mountinfo") as f:
        points = [line.split()[4] for line in f]
    for point in points[::-1]:
        if "granary" in point and not any(path.startswith(point + "/") for path in needed):
            attempt("umount", "-l", point)


def nothing_left(seconds=PATIENCE):
    """No daemon of this test runs and nothing is mounted below its directory, after `seconds` at the latest."""

    def left():
        with open("/proc/self/mountinfo") as f:
            mounts = [line.split()[4] for line in f if line.split()[4].startswith(DIR + "/")]
        return all_daemons(), mounts

    deadline = time.monotonic() + seconds
    while left() != ({}, []):
        check(time.monotonic() < deadline, "left behind: %s %s" % left())
        time.sleep(0.05)
