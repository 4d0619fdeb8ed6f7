"""What the end-to-end tests share: origins that count and misbehave, buckets, mounts, comparisons.

A test is a script that raises on the first thing that is not as it should be. tests/run-e2e gives it its directory, the
environment of the S3 server and the programs of the build on PATH, and clears up after it.
"""

import json
import os
import random
import secrets
import stat
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import dataset
import s3put

BUILD = os.environ["E2E_BUILD"]
DIR = os.environ["E2E_TEST_DIR"]
NAME = os.environ["E2E_NAME"]


def step(text):
    print("--- %s" % text)


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


def poll(fn, what, seconds=10):
    """Calls fn until it returns something true, which is returned; fails after the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        result = fn()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError("not within %s s: %s" % (seconds, what))
        time.sleep(0.02)


def run(*command, timeout=120, env=None):
    """A command that must succeed; returns what it printed."""
    code, out, err = attempt(*command, timeout=timeout, env=env)
    if code:
        raise AssertionError("%s: exit %d\n%s%s" % (" ".join(command), code, out, err))
    return out


def attempt(*command, timeout=120, env=None):
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


def refused(*command, text, status=None, timeout=60, env=None):
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
        equal(self.process.wait(10), 0, "exit status of s3d")

    def ask(self, method, path, **query):
        url = self.control + path + ("?" + urllib.parse.urlencode(query) if query else "")
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
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


# Mounts --------------------------------------------------------------------------------------


class Mount:
    """`cachectl mount`, and `cachectl umount` at the end of the block."""

    def __init__(self, url, origin=None, name="mnt", cache="cache", options=(), timeout=60, env=None):
        self.path = os.path.join(DIR, name)
        self.cache = os.path.join(DIR, cache)
        self.mounted = False
        os.makedirs(self.path, exist_ok=True)
        command = ["cachectl", "mount", url, self.path, "--cache", self.cache]
        if origin:
            endpoint = origin if isinstance(origin, str) else origin.endpoint
            command += ["--endpoint", endpoint, "--path-style"]
        began = time.monotonic()
        run(*command, *options, timeout=timeout, env=env)
        self.mounted = True
        print("mounted %s in %.2f s" % (url, time.monotonic() - began))
        check(os.path.ismount(self.path), "%s is not a mount point after cachectl mount" % self.path)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.mounted:
            self.umount(check_exit=kind is None)

    def umount(self, timeout=60, check_exit=True):
        self.mounted = False
        code, out, err = attempt("cachectl", "umount", self.path, timeout=timeout)
        if check_exit:
            equal(code, 0, "exit of cachectl umount: " + out + err)
            check(not os.path.ismount(self.path), "still mounted after cachectl umount")
            equal(os.listdir(self.path), [], "what is under the mount point after cachectl umount")

    def status(self):
        """The parts of `cachectl status -o json` that name this mount's cache or mount point, the outermost of them."""
        tree = json.loads(run("cachectl", "status", "-o", "json"))
        ours = list(find_object(tree, {self.path, self.cache}))
        check(ours, "%s is not in the status: %.1000r" % (self.path, tree))
        return ours

    def counter(self, name):
        """The value of the one key `name`, wherever it stands in the status."""
        found = list(find_key(self.status(), name))
        equal(len(found), 1, "how often %s stands in the status" % name)
        return found[0]

    def file(self, key):
        return os.path.join(self.path, key)


def find_object(tree, values):
    """The outermost objects that have one of `values` as a value."""
    if isinstance(tree, dict):
        if any(isinstance(value, str) and value in values for value in tree.values()):
            yield tree
            return
        tree = list(tree.values())
    for part in tree if isinstance(tree, list) else ():
        yield from find_object(part, values)


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
    data = read_file(os.path.join(mount, key))
    equal(len(data), size, "size of " + key)
    check(data == dataset.content(prefix + key, size, version=version), "bytes of %s differ" % key)
    return size


def check_files(mount, sizes, version=0, prefix="", readers=4, seed=1):
    """Reads files in random order and compares every byte with dataset.content(); returns the bytes read.

    mount: a Mount or a directory. prefix: of the keys, when it was mounted away.
    """
    keys = list(sizes)
    random.Random(seed).shuffle(keys)
    path = mount.path if isinstance(mount, Mount) else mount
    began = time.monotonic()
    with ThreadPoolExecutor(readers) as pool:
        done = sum(pool.map(lambda key: check_file(path, key, sizes[key], version, prefix), keys))
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


def drop_caches():
    """Of the whole kernel; written pages are written out first, so that they can go."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")


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

    def join(self, seconds=60):
        self.thread.join(seconds)
        check(not self.thread.is_alive(), "still running after %s s" % seconds)
        if self.error:
            raise self.error
        return self.value


def daemons(program):
    """Pids of this test's processes with that program name."""
    marker = ("E2E_MARKER=" + os.environ["E2E_MARKER"]).encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as f:
                if marker not in f.read().split(b"\0"):
                    continue
            if os.path.basename(os.readlink("/proc/%s/exe" % pid)) == program:
                found.append(int(pid))
        except OSError:
            continue  # gone meanwhile
    return found
