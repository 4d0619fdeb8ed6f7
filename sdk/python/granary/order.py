"""The connection of a job to its mount's order feed. What goes over it: docs/order.md, client/order_proto.h."""

import array
import errno
import hashlib
import os
import socket
import stat
import struct
import sys
import time

VERSION = 1
HELLO, LIST, SAMPLES, SAMPLER, NUMBERS, FORGET, REPLY = 1, 2, 3, 4, 5, 6, 128
SHUFFLE, DROP_LAST = 1, 2
BODY_MAX = 65536
HEAD = struct.Struct("<II")
SAMPLE = struct.Struct("<QQI")
ANSWER = struct.Struct("<iIQQ")
RESTART = 10  # seconds that a mount's daemon may be away
PATIENCE = 120  # seconds; a long list is looked up file by file


class OrderError(Exception):
    """The mount refused an order; reading is not affected. `errno` says why."""

    def __init__(self, number, text):
        super().__init__(text or os.strerror(number))
        self.errno = number


class NoFeed(OrderError):
    """There is nobody to announce to: no Granary mount, or one of another user."""


def root_of(path):
    """The mount point that a path is below."""
    path = os.path.realpath(path)
    device = os.stat(path).st_dev
    while path != "/" and os.stat(os.path.dirname(path)).st_dev == device:
        path = os.path.dirname(path)
    return path


def run_directories():
    """Where mounts keep their sockets, as cachectl chooses them."""
    if os.environ.get("GRANARY_RUN_DIR"):
        yield os.environ["GRANARY_RUN_DIR"]
    yield "/run/granary"
    if os.environ.get("XDG_RUNTIME_DIR"):
        yield os.path.join(os.environ["XDG_RUNTIME_DIR"], "granary")
    yield "/run/user/%d/granary" % os.getuid()
    yield "/tmp/granary-%d" % os.getuid()


def trusted(path):
    """A socket in a directory of root or of this user: in /tmp somebody else may have been faster."""
    try:
        directory = os.stat(os.path.dirname(path))
        return stat.S_ISSOCK(os.stat(path).st_mode) and directory.st_uid in (0, os.geteuid())
    except OSError:
        return False


def find_socket(mount):
    """The socket of the mount's feed; GRANARY_SOCKET names it where it cannot be found, as in a container."""
    if os.environ.get("GRANARY_SOCKET"):
        return os.environ["GRANARY_SOCKET"]
    device = os.stat(mount).st_dev
    name = "%d:%d" % (os.major(device), os.minor(device))
    for directory in run_directories():
        path = os.path.join(directory, "order", name)
        if trusted(path):
            return path
    raise NoFeed(errno.ENOENT, "%s is not below a Granary mount that takes orders from this user" % mount)


class Order:
    """What one rank will read of one mount. Not for several threads at once."""

    def __init__(self, path, socket_path=None):
        self.root = root_of(path)
        self.socket_path = socket_path
        self.unknown = 0  # files of the list that are not there
        self._socket = None
        self._samples = None  # as they were given: packed when they are sent
        self._connect()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """The order is forgotten; what was fetched stays."""
        if self._socket:
            self._socket.close()
        self._socket = None

    # ---- what is announced

    def samples(self, samples):
        """Registers the samples that orders are made of: paths below the mount, or (path, offset, length) for parts of files.
        Absolute paths below the mount are understood. What was announced before is forgotten. A list is kept, not copied: it
        is sent again should the mount's daemon be started anew."""
        self._samples = samples if isinstance(samples, (list, tuple)) else list(samples)
        self._again(self._send_list)

    def epoch(self, epoch, seed=0, rank=0, world=1, shuffle=True, drop_last=False):
        """Announces an epoch of torch.utils.data.DistributedSampler over the registered samples."""
        flags = (SHUFFLE if shuffle else 0) | (DROP_LAST if drop_last else 0)
        mask = (1 << 64) - 1
        self._need_list()
        self._again(self._ask, SAMPLER, struct.pack("<QQIII", seed & mask, epoch & mask, rank, world, flags))

    def announce(self, numbers=None):
        """Announces the registered samples as they are listed, or in the order of these numbers."""
        if numbers is None:
            self.epoch(0, shuffle=False)
            return
        words = array.array("I", numbers)
        if sys.byteorder == "big":
            words.byteswap()
        self._need_list()
        self._again(self._send_numbers, words)

    def forget(self):
        self._again(self._ask, FORGET, b"")

    # ---- the list

    def _relative(self, path):
        path = os.fspath(path)
        path = os.fsencode(path)
        if path.startswith(b"/"):
            root = os.fsencode(self.root).rstrip(b"/") + b"/"
            if not path.startswith(root):
                raise ValueError("%r is not below %s" % (path, self.root))
            path = path[len(root) :]
        return path

    def _blocks(self):
        """The bodies of the messages that hold the list."""
        rows = []
        size = 0
        for sample in self._samples:
            path, offset, length = sample if isinstance(sample, (tuple, list)) else (sample, 0, 0)
            path = self._relative(path)
            row = SAMPLE.pack(offset, length, len(path)) + path
            if size + len(row) > BODY_MAX:
                yield b"".join(rows)
                rows, size = [], 0
            rows.append(row)
            size += len(row)
        yield b"".join(rows)

    def _need_list(self):
        if self._samples is None:
            raise ValueError("an order needs samples() first")

    def _send_list(self):
        digest = hashlib.sha256()
        for block in self._blocks():
            digest.update(block)
        body = struct.pack("<I", len(self._samples)) + digest.digest()
        try:
            self._ask(LIST, body)
        except OrderError as error:
            if error.errno != errno.ENOENT:
                raise
            for block in self._blocks():
                self._send(SAMPLES, block)
            self._answer()

    def _send_numbers(self, words):
        step = BODY_MAX // 4 - 1
        for at in range(0, max(len(words), 1), step):
            self._send(NUMBERS, struct.pack("<I", len(words)) + words[at : at + step].tobytes())
        self._answer()

    # ---- messages

    def _connect(self):
        path = self.socket_path or find_socket(self.root)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(PATIENCE)
        try:
            connection.connect(path[5:] if path.startswith("unix:") else path)
        except OSError as error:
            connection.close()
            raise NoFeed(error.errno or errno.EIO, "%s: %s" % (path, error.strerror or error)) from error
        self._socket = connection
        # Whoever can open it may announce. Closed at once: it would keep the mount busy.
        descriptor = os.open(self.root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            socket.send_fds(connection, [HEAD.pack(HELLO, 4) + struct.pack("<I", VERSION)], [descriptor])
        finally:
            os.close(descriptor)
        try:
            self._answer()
        except Exception:
            self.close()
            raise

    def _reconnect(self):
        deadline = time.monotonic() + RESTART
        while True:
            try:
                return self._connect()
            except (NoFeed, ConnectionError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _again(self, what, *arguments):
        """The mount's daemon may have been started anew since: then once more, from the beginning."""
        try:
            if self._socket:
                return what(*arguments)
        except (ConnectionError, socket.timeout):
            self.close()
        self._reconnect()
        if what != self._send_list and self._samples is not None:
            self._send_list()
        return what(*arguments)

    def _send(self, kind, body):
        self._socket.sendall(HEAD.pack(kind, len(body)) + body)

    def _ask(self, kind, body):
        self._send(kind, body)
        self._answer()

    def _receive(self, size):
        parts = []
        while size:
            part = self._socket.recv(size)
            if not part:
                raise ConnectionResetError(errno.ECONNRESET, "the mount's daemon has gone")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _answer(self):
        kind, size = HEAD.unpack(self._receive(HEAD.size))
        if kind != REPLY or not ANSWER.size <= size <= BODY_MAX:
            raise ConnectionResetError(errno.EPROTO, "no answer of an order feed")
        body = self._receive(size)
        status, _, _, self.unknown = ANSWER.unpack_from(body)
        if status < 0:
            raise OrderError(-status, body[ANSWER.size :].decode("utf-8", "replace"))


def announce(path, samples, numbers=None):
    """Announces samples of the mount that `path` is below, in this order. Returns the Order: close it to be forgotten."""
    order = Order(path)
    try:
        order.samples(samples)
        order.announce(numbers)
    except Exception:
        order.close()
        raise
    return order
