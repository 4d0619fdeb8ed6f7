"""The messages between a job and the order feed of its mount (client/order_proto.h), over one connection.

Everything here may block up to its deadlines, and raises: OrderError, OSError. granary/order.py runs it in a thread.
"""

from __future__ import annotations

import array
import errno
import hashlib
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Iterator

VERSION = 3
HELLO, LIST, SAMPLES, LISTED, NUMBERS, FORGET, HITS, REPLY = 1, 2, 3, 4, 5, 6, 7, 128
BODY_MAX = 65536
HEAD = struct.Struct("<II")
SAMPLE = struct.Struct("<QQI")
ANSWER = struct.Struct("<iIQQQQ")
LIST_DEADLINE = 120.0  # seconds; the mount looks a long list up file by file
SORT_SECONDS = 1e-6  # more for each number of an order: the mount sorts it before it answers


class OrderError(Exception):
    """The order is not known to the mount. Reads are not affected. `errno` says why."""

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(text or os.strerror(number))
        self.errno = number


class NoFeed(OrderError):
    """No Granary mount takes orders for this path from this user."""


def root_of(path: str) -> str:
    """The mount point that a path is below."""
    path = os.path.realpath(path)
    device = os.stat(path).st_dev
    while path != "/" and os.stat(os.path.dirname(path)).st_dev == device:
        path = os.path.dirname(path)
    return path


def run_directories() -> Iterator[str]:
    """Where mounts have their sockets, as cachectl chooses them."""
    if os.environ.get("GRANARY_RUN_DIR"):
        yield os.environ["GRANARY_RUN_DIR"]
    yield "/run/granary"
    if os.environ.get("XDG_RUNTIME_DIR"):
        yield os.path.join(os.environ["XDG_RUNTIME_DIR"], "granary")
    yield "/run/user/%d/granary" % os.getuid()
    yield "/tmp/granary-%d" % os.getuid()


def trusted(path: str) -> bool:
    """True for a socket in a directory of root or of this user: others may write to /tmp."""
    try:
        directory = os.stat(os.path.dirname(path))
        return stat.S_ISSOCK(os.stat(path).st_mode) and directory.st_uid in (0, os.geteuid())
    except OSError:
        return False


def find_sockets(root: str) -> Iterator[str]:
    """Where the mount's feed may be. GRANARY_SOCKET names it where it cannot be found, as in a container."""
    given = os.environ.get("GRANARY_SOCKET")
    if given:
        yield given[5:] if given.startswith("unix:") else given
        return
    device = os.stat(root).st_dev
    name = "%d:%d" % (os.major(device), os.minor(device))
    for directory in run_directories():
        path = os.path.join(directory, "order", name)
        if trusted(path):
            yield path


class Connection:
    """One connection to a feed. `deadline` bounds each step, in seconds; those of lists and long orders are longer."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.root = ""  # of the mount, once it is open
        self.unknown = 0  # files of the list that the mount does not have
        self.text = ""  # of the last answer
        self.hits = (0, 0, False)  # reads of what was announced, hits among them, suspended
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def open(self, below: str) -> None:
        """Connects to the mount that a path is below. Asks the file system, which may take longer than the deadline."""
        root = root_of(below)
        self._connect(root)
        # A process that can open the mount may announce. The descriptor is closed at once: the mount is busy with it.
        descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            socket.send_fds(self.socket, [HEAD.pack(HELLO, 4) + struct.pack("<I", VERSION)], [descriptor])
        except BrokenPipeError:
            pass  # a mount that takes no more jobs answers before it hangs up
        finally:
            os.close(descriptor)
        self._answer(self.deadline)
        self.root = root

    def _connect(self, root: str) -> None:
        """Tries each socket: a daemon that was killed leaves its own, and the device's number may already belong to another mount."""
        failed = NoFeed(errno.ENOENT, "%s is not below a Granary mount that takes orders from this user" % root)
        self.socket.settimeout(self.deadline)
        for path in find_sockets(root):
            try:
                self.socket.connect(path)
                return
            except OSError as error:
                failed = NoFeed(error.errno or errno.ETIMEDOUT, "%s: %s" % (path, error.strerror or error))
                if not isinstance(error, (ConnectionRefusedError, FileNotFoundError)):
                    break
        raise failed

    def hang_up(self) -> None:
        """For the mount the job has gone, also while forked children have the descriptor. Any thread."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it was not connected

    def close(self) -> None:
        self.hang_up()
        self.socket.close()

    def send_list(self, blocks: Callable[[], Iterable[bytes]], samples: int) -> None:
        digest = hashlib.sha256()
        for block in blocks():
            digest.update(block)
        try:
            self._ask(LIST, struct.pack("<I", samples) + digest.digest(), LIST_DEADLINE)
        except OrderError as error:
            if error.errno != errno.ENOENT:
                raise
            for block in blocks():
                self._send(SAMPLES, block, LIST_DEADLINE)
            self._answer(LIST_DEADLINE)

    def send_numbers(self, numbers: array.array[int]) -> None:
        deadline = self.deadline + SORT_SECONDS * len(numbers)
        step = BODY_MAX // 4 - 1
        for at in range(0, max(len(numbers), 1), step):
            words = numbers[at : at + step]
            if sys.byteorder == "big":
                words.byteswap()
            self._send(NUMBERS, struct.pack("<I", len(numbers)) + words.tobytes(), deadline)
        self._answer(deadline)

    def send_listed(self) -> None:
        self._ask(LISTED, b"", self.deadline)

    def send_forget(self) -> None:
        self._ask(FORGET, b"", self.deadline)

    def ask_hits(self) -> tuple[int, int, bool]:
        self._ask(HITS, b"", self.deadline)
        return self.hits

    def _send(self, kind: int, body: bytes, deadline: float) -> None:
        self.socket.settimeout(deadline)
        try:
            self.socket.sendall(HEAD.pack(kind, len(body)) + body)
        except BrokenPipeError:
            self._answer(deadline)  # the reason, where the mount gave one
            raise

    def _ask(self, kind: int, body: bytes, deadline: float) -> None:
        self._send(kind, body, deadline)
        self._answer(deadline)

    def _receive(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(size)
            if not part:
                raise ConnectionResetError(errno.ECONNRESET, "the mount's daemon closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _answer(self, deadline: float) -> None:
        self.socket.settimeout(deadline)
        kind, size = HEAD.unpack(self._receive(HEAD.size))
        if kind != REPLY or not ANSWER.size <= size <= BODY_MAX:
            raise OrderError(errno.EPROTO, "the answer is not one of an order feed")
        body = self._receive(size)
        status, suspended, _, self.unknown, reads, hits = ANSWER.unpack_from(body)
        self.hits = (reads, hits, bool(suspended))
        self.text = body[ANSWER.size :].decode("utf-8", "replace")
        if status < 0:
            raise OrderError(-status, self.text)
