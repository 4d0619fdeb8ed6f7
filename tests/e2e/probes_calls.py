"""System calls on a mount, as applications make them: see 90-applications."""

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import socket
import stat
import struct
import subprocess
import termios
import threading
from concurrent.futures import ThreadPoolExecutor

import dataset
import e2e
from probe import LARGE, TAIL, COLD, call, libc, opened, path, probe, same, scratch, sizes, tree

# Reads ---------------------------------------------------------------------------------------


@probe("read(2), pread(2), readv(2), preadv(2)")
def _():
    with opened() as fd:
        same(os.read(fd, 1 << 20), 0, 1 << 20)
        same(os.pread(fd, 100, 4095), 4095, 100)
        same(os.pread(fd, 100, sizes[LARGE] - 50), sizes[LARGE] - 50)
        e2e.equal(os.pread(fd, 100, sizes[LARGE]), b"", "read at the end")
        parts = [bytearray(1000), bytearray(70000)]
        os.readv(fd, parts)
        same(b"".join(parts), 1 << 20, 71000)
        os.preadv(fd, parts, 777)
        same(b"".join(parts), 777, 71000)


@probe("Python's open(), buffered and text")
def _():
    with open(path(), "rb") as f:
        same(f.read())
    with open(path(LARGE), encoding="latin-1", newline="") as f:
        same(f.read().encode("latin-1"))


@probe("threads and forked children on one descriptor")
def _():
    with opened() as fd:
        with ThreadPoolExecutor(8) as pool:
            for i, part in enumerate(pool.map(lambda i: os.pread(fd, 65536, i * 65536), range(80))):
                same(part, i * 65536, 65536)
        children = [e2e.fork(lambda: same(os.pread(fd, 100000, 12345), 12345, 100000)) for _ in range(4)]
        e2e.equal(set(e2e.reap(children).values()), {0}, "exits of the children")


@probe("preadv2(2) with RWF_NOWAIT, resident")
def _():
    with opened() as fd:
        same(os.pread(fd, 8192, 4096), 4096, 8192)
        part = bytearray(8192)
        e2e.equal(os.preadv(fd, [part], 4096, os.RWF_NOWAIT), 8192, "bytes")
        same(part, 4096, 8192)


@probe("preadv2(2) with RWF_NOWAIT, not resident")
def _():
    e2e.drop_caches()
    with opened(COLD) as fd:
        part = bytearray(4096)
        try:
            os.preadv(fd, [part], dataset.MiB, os.RWF_NOWAIT)
        finally:
            same(os.pread(fd, 4096, dataset.MiB), dataset.MiB, 4096, COLD)


def direct_read(offset, size, misaligned=0):
    """O_DIRECT into a buffer `misaligned` bytes past a page."""
    with opened(flags=os.O_RDONLY | os.O_DIRECT) as fd, mmap.mmap(-1, size + 8192) as buffer:
        view = memoryview(buffer)[misaligned : misaligned + size]
        try:
            got = os.preadv(fd, [view], offset)
            same(view[:got], offset, size)
        finally:
            view.release()


@probe("O_DIRECT, aligned")
def _():
    for offset, size in ((0, 4096), (dataset.MiB, dataset.MiB), (4096, 2 * dataset.MiB)):
        direct_read(offset, size)
    direct_read(sizes[LARGE] // 4096 * 4096 - 8192, dataset.MiB)


@probe("O_DIRECT, offset, length or buffer not aligned")
def _():
    direct_read(1, 4096)
    direct_read(4096, 100)
    direct_read(12345, 54321, misaligned=3)


# Memory --------------------------------------------------------------------------------------


def map_file(key=LARGE, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, size=0):
    with opened(key) as fd:
        return mmap.mmap(fd, size, flags=flags, prot=prot)


@probe("mmap(2) MAP_SHARED, read")
def _():
    with map_file() as m:
        same(m[:])
        same(m[4095:4099], 4095, 4)


@probe("mmap(2) MAP_PRIVATE, read and write to the copy")
def _():
    with map_file(flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as m:
        same(m[:])
        m[5000:5010] = b"x" * 10
        e2e.equal(m[5000:5010], b"x" * 10, "what was written")
        same(m[5010:9000], 5010, 3990)
    same(e2e.read_file(path()))


@probe("mmap(2) MAP_POPULATE")
def _():
    with map_file(flags=mmap.MAP_SHARED | mmap.MAP_POPULATE) as m:
        same(m[:])


@probe("mmap(2), the last page past the end")
def _():
    with opened(TAIL) as fd:
        e2e.check(sizes[TAIL] % 4096 != 0, "the file ends with its page")
        libc.mmap.restype = ctypes.c_void_p
        address = libc.mmap(None, ctypes.c_size_t(12288), mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
        data = ctypes.string_at(address, 12288)
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(12288))
    same(data[: sizes[TAIL]], key=TAIL)
    e2e.equal(data[sizes[TAIL] :], bytes(12288 - sizes[TAIL]), "what lies behind the end")
    return "zeros"


def touch_behind():
    with opened(TAIL) as fd:
        libc.mmap.restype = ctypes.c_void_p
        address = libc.mmap(None, ctypes.c_size_t(16384), mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
        ctypes.string_at(address + 12288, 1)


@probe("mmap(2), pages behind the last one")
def _():
    code = e2e.reap([pid := e2e.fork(touch_behind)])[pid]
    return signal.Signals(-code).name if code < 0 else "exit %d" % code


@probe("mmap(2) PROT_WRITE with MAP_SHARED")
def _():
    map_file(prot=mmap.PROT_READ | mmap.PROT_WRITE).close()


@probe("madvise(2): all that concern reading; mlock(2), mincore(2)")
def _():
    with map_file(flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as m:
        for advice in (mmap.MADV_SEQUENTIAL, mmap.MADV_RANDOM, mmap.MADV_WILLNEED, mmap.MADV_NORMAL, mmap.MADV_DONTNEED):
            m.madvise(advice)
            same(m[:])
        m.madvise(22)  # MADV_POPULATE_READ
        same(m[:])
        start = ctypes.addressof(ctypes.c_char.from_buffer(m))
        call("mlock", ctypes.c_void_p(start), ctypes.c_size_t(1 << 20))
        resident = (ctypes.c_ubyte * 256)()
        call("mincore", ctypes.c_void_p(start), ctypes.c_size_t(1 << 20), resident)
        e2e.equal({bit & 1 for bit in resident}, {1}, "pages of a locked mapping in memory")


# Bytes that do not pass through the application ------------------------------------------------------


def through_socket(send):
    """What arrives at the other end of a connection."""
    here, there = socket.socketpair()
    with here, there:
        parts = []

        def receive():
            while data := there.recv(1 << 20):
                parts.append(data)

        receiver = threading.Thread(target=receive)
        receiver.start()
        try:
            send(here.fileno())
        finally:
            here.shutdown(socket.SHUT_WR)
            receiver.join(e2e.PATIENCE)
    return b"".join(parts)


@probe("sendfile(2) to a socket, to a file")
def _():
    def send(out):
        with opened() as fd:
            at = 0
            while sent := os.sendfile(out, fd, at, 1 << 20):
                at += sent

    same(through_socket(send))
    with open(scratch("sent"), "w+b") as out:
        send(out.fileno())
    same(e2e.read_file(scratch("sent")))


@probe("splice(2), tee(2)")
def _():
    def send(out):
        reading, writing = os.pipe()
        with opened() as fd:
            while got := os.splice(fd, writing, 1 << 16):
                while got:
                    got -= os.splice(reading, out, got)
        os.close(reading)
        os.close(writing)

    same(through_socket(send))
    first, second = os.pipe(), os.pipe()
    with opened() as fd:
        got = os.splice(fd, first[1], 5000, offset_src=3000)
    e2e.equal(call("tee", first[0], second[1], ctypes.c_size_t(got), 0), got, "bytes of tee")
    same(os.read(first[0], got), 3000, got)
    same(os.read(second[0], got), 3000, got)
    for end in first + second:
        os.close(end)


@probe("copy_file_range(2) to another file system")
def _():
    with opened() as fd, open(scratch("copied"), "w+b") as out:
        while os.copy_file_range(fd, out.fileno(), 1 << 20):
            pass
    same(e2e.read_file(scratch("copied")))


@probe("ioctl(2) FICLONE to another file system")
def _():
    with opened() as fd, open(scratch("cloned"), "w+b") as out:
        fcntl.ioctl(out.fileno(), 0x40049409, fd)


@probe("readahead(2)")
def _():
    with opened() as fd:
        call("readahead", fd, ctypes.c_int64(0), ctypes.c_size_t(sizes[LARGE]))
        same(os.read(fd, 1 << 20), 0, 1 << 20)


@probe("posix_fadvise(2): all")
def _():
    with opened() as fd:
        for advice in ("NORMAL", "SEQUENTIAL", "RANDOM", "NOREUSE", "WILLNEED", "DONTNEED"):
            os.posix_fadvise(fd, 0, 0, getattr(os, "POSIX_FADV_" + advice))
            same(os.pread(fd, 1 << 20, 1 << 20), 1 << 20, 1 << 20)


def asynchronous(method, offset, size, block, *direct):
    program = os.path.join(e2e.BUILD, "tests", "async-read")
    done = subprocess.run(
        [program, method, path(), str(offset), str(size), str(block), *direct], capture_output=True, timeout=e2e.PATIENCE, check=False
    )
    if done.returncode:
        said = done.stderr.decode().split()
        raise OSError(getattr(errno, said[0]), " ".join(said[1:]))
    same(done.stdout, offset, size)


@probe("io_uring: READ, and READ_FIXED with registered file and buffers")
def _():
    for method in ("uring", "fixed"):
        e2e.drop_caches()
        asynchronous(method, 0, 6 * dataset.MiB, 65536)
        asynchronous(method, 12345, 1 << 20, 5000)


@probe("io_uring with O_DIRECT, aligned")
def _():
    asynchronous("uring", 4096, 4 * dataset.MiB, 65536, "direct")


@probe("io_submit(2)")
def _():
    e2e.drop_caches()
    asynchronous("aio", 0, 6 * dataset.MiB, 65536)


@probe("io_submit(2) with O_DIRECT, aligned")
def _():
    asynchronous("aio", 4096, 4 * dataset.MiB, 65536, "direct")


# What is known of a file ---------------------------------------------------------------------------


@probe("stat(2), statx(2), access(2)")
def _():
    status = os.stat(path())
    e2e.equal((status.st_size, stat.S_ISREG(status.st_mode), status.st_nlink), (sizes[LARGE], True, 1), "size, kind, links")
    e2e.equal(int(status.st_mtime), int(os.stat(os.path.join(tree.path, LARGE)).st_mtime), "time")
    e2e.at_least(status.st_blocks * 512, sizes[LARGE], "bytes of the blocks")
    found = ctypes.create_string_buffer(256)
    call("statx", -100, path().encode(), 0, 0x7FF, found)
    mask, = struct.unpack_from("<I", found.raw)
    e2e.equal(mask & 0x7DF, 0x7DF, "basic fields of statx but the time of the last access")
    e2e.equal(struct.unpack_from("<Q", found.raw, 40)[0], sizes[LARGE], "size from statx")
    e2e.check(os.access(path(), os.R_OK), "not readable")
    return "answered"


@probe("access(2) with W_OK")
def _():
    call("access", path().encode(), os.W_OK)


@probe("statfs(2)")
def _():
    status = os.statvfs(tree.mount)
    wanted = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV
    e2e.equal(status.f_flag & wanted, wanted, "read only, no set-id, no devices")
    e2e.at_least(status.f_namemax, 255, "longest name")
    e2e.at_least(status.f_blocks * status.f_frsize, e2e.total(sizes), "bytes of the file system")
    return "answered"


@probe("lseek(2) SEEK_DATA, SEEK_HOLE")
def _():
    with opened() as fd:
        e2e.equal(os.lseek(fd, 5000, os.SEEK_DATA), 5000, "data")
        e2e.equal(os.lseek(fd, 5000, os.SEEK_HOLE), sizes[LARGE], "hole")
    return "no holes"


@probe("FIEMAP")
def _():
    with opened() as fd:
        fcntl.ioctl(fd, 0xC020660B, bytearray(32 + 56))
    return "answered"


@probe("getxattr(2)")
def _():
    os.getxattr(path(), "user.something")


@probe("listxattr(2)")
def _():
    e2e.equal(os.listxattr(path()), [], "extended attributes")
    return "none"


@probe("ioctl(2) TCGETS (isatty), FS_IOC_GETFLAGS")
def _():
    with opened() as fd:
        try:
            termios.tcgetattr(fd)
        except termios.error as error:
            e2e.equal(error.args[0], errno.ENOTTY, "errno of tcgetattr")
        fcntl.ioctl(fd, 0x80086601, bytearray(8))
    return "answered"


@probe("flock(2), fcntl(2) read locks")
def _():
    with opened() as one, opened() as two:
        fcntl.flock(one, fcntl.LOCK_SH)
        fcntl.flock(two, fcntl.LOCK_SH)
        fcntl.flock(one, fcntl.LOCK_UN)
        fcntl.flock(two, fcntl.LOCK_EX)
        try:
            fcntl.flock(one, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            raise AssertionError("shared beside exclusive")
        fcntl.flock(two, fcntl.LOCK_UN)
        fcntl.lockf(one, fcntl.LOCK_SH)
    return "on this node"


@probe("fcntl(2) write lock")
def _():
    with opened() as fd:
        fcntl.lockf(fd, fcntl.LOCK_EX)


@probe("inotify(7)")
def _():
    fd = call("inotify_init1", os.O_NONBLOCK)
    try:
        call("inotify_add_watch", fd, path().encode(), 0x20)  # IN_OPEN
        e2e.read_file(path())
        mask, = struct.unpack_from("<I", os.read(fd, 4096), 4)
        e2e.equal(mask & 0x20, 0x20, "event")
    finally:
        os.close(fd)
    return "reads of this node"


@probe("fsync(2), syncfs(2)")
def _():
    with opened() as fd:
        os.fsync(fd)
        call("syncfs", fd)
    return "done"


@probe("O_PATH and /proc/self/fd; openat(2) below a directory")
def _():
    with opened(flags=os.O_PATH) as fd:
        same(e2e.read_file("/proc/self/fd/%d" % fd))
    directory = os.open(tree.mount, os.O_RDONLY | os.O_DIRECTORY)
    fd = os.open(LARGE, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
    same(os.pread(fd, 5000, 100), 100, 5000)
    os.close(fd)
    os.close(directory)


@probe("names that are not there, too long, below a file")
def _():
    for name, wanted in (("nowhere", "ENOENT"), ("train/nowhere", "ENOENT"), ("n" * 256, "ENAMETOOLONG"), (LARGE + "/x", "ENOTDIR")):
        for _ in range(2):  # the second one is answered by the kernel
            try:
                os.stat(path(name))
            except OSError as error:
                e2e.equal(errno.errorcode[error.errno], wanted, "errno of " + name[:20])
            else:
                raise AssertionError("%s is there" % name)
    return "ENOENT, ENAMETOOLONG, ENOTDIR"


@probe("read(2) of a directory")
def _():
    fd = os.open(tree.mount, os.O_RDONLY)
    try:
        os.read(fd, 100)
    finally:
        os.close(fd)


# Writes --------------------------------------------------------------------------------------------


def all_refused(*writes):
    """The errno that all have in common, raised."""
    found = {}
    for write in writes:
        try:
            write()
        except OSError as error:
            found.setdefault(errno.errorcode[error.errno], error)
        else:
            raise AssertionError("a write succeeded")
    e2e.equal(len(found), 1, "different errnos: %s" % sorted(found))
    raise next(iter(found.values()))


@probe("open(2) for writing, O_TRUNC, O_CREAT, O_TMPFILE; truncate(2)")
def _():
    all_refused(
        lambda: os.open(path(), os.O_RDWR),
        lambda: os.open(path(), os.O_WRONLY | os.O_APPEND),
        lambda: os.open(path(), os.O_WRONLY | os.O_TRUNC),
        lambda: os.open(path("new"), os.O_CREAT | os.O_WRONLY),
        lambda: os.open(tree.mount, os.O_TMPFILE | os.O_RDWR),
        lambda: os.truncate(path(), 0),
    )


@probe("unlink, rename, link, symlink, mkdir, rmdir, mknod")
def _():
    all_refused(
        lambda: os.unlink(path()),
        lambda: os.rename(path(), path("new")),
        lambda: os.link(path(), path("new")),
        lambda: os.symlink("x", path("new")),
        lambda: os.mkdir(path("new")),
        lambda: os.rmdir(path("train")),
        lambda: os.mkfifo(path("new")),
    )


@probe("chmod, chown, utimensat, setxattr, removexattr")
def _():
    all_refused(
        lambda: os.chmod(path(), 0o777),
        lambda: os.chown(path(), 1, 1),
        lambda: os.utime(path()),
        lambda: os.setxattr(path(), "user.x", b"x"),
        lambda: os.removexattr(path(), "user.x"),
    )


@probe("write(2), ftruncate(2), fallocate(2) on a descriptor for reading")
def _():
    found = set()
    with opened() as fd:
        for write in (lambda: os.write(fd, b"x"), lambda: os.ftruncate(fd, 0), lambda: os.posix_fallocate(fd, 0, 10)):
            try:
                write()
            except OSError as error:
                found.add(errno.errorcode[error.errno])
            else:
                raise AssertionError("a write succeeded")
    return ", ".join(sorted(found))
