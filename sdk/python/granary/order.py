"""The announced order of a job. A thread of its own talks to the mount: no call of the job waits for it or fails by it.

The job's calls leave what is to be announced in the order; the thread brings the mount to the latest of it, and again
after the mount's daemon was restarted. Nothing queues up: what was announced before is replaced. The parts:
granary/_wire.py has the messages, granary/_paths.py finds the files.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ._paths import Paths, files_of
from ._wire import LIST_DEADLINE, Connection, NoFeed, OrderError

DEADLINE = 1.0  # seconds
RESTART = 10.0  # seconds that a mount's daemon may take to restart
PAUSE_MIN = 0.05  # seconds between attempts
PAUSE_MAX = 60.0
UNKNOWN_SHARE = 0.01  # of the files

SILENT = "the mount's daemon does not answer"
RETRIED = (errno.EUSERS, errno.EAGAIN)


class OrderWarning(UserWarning):
    """The mount does not know the order. Reading goes on, and takes longer."""


class Wanted(NamedTuple):
    """What the mount is to know."""

    version: int
    samples: tuple[Any, ...] | None
    order: array.array[int] | bool  # numbers, True: as listed, False: nothing


class Hits(NamedTuple):
    """How the reads of this node follow an order."""

    reads: int  # of what was announced, that the mount has seen
    hits: int  # among them: of what came just behind another one in the order
    suspended: bool  # few of the last reads were hits: nothing is fetched by the order until more are


class Order:
    """What one process will read of the mount that `path` is below.

    No call waits for the mount and none raises: the first failure is a Python warning (OrderWarning), and reading
    goes on without an announced order. With `strict` each call waits for the mount's answer and raises OrderError.

    path      a path below the mount
    base      the directory that relative samples begin at, if not `path`
    strict    raise errors
    deadline  seconds in which the mount has to answer, and which close() may take

    Not for several threads at once. A forked child has no part in its parent's order: it announces for itself, or
    not at all.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        base: str | os.PathLike[str] | None = None,
        strict: bool = False,
        deadline: float = DEADLINE,
    ) -> None:
        try:
            path = os.path.abspath(os.fspath(path))
            base = path if base is None else os.path.abspath(os.fspath(base))
        except (OSError, TypeError, ValueError) as error:  # not a path; or the current directory has been removed
            self._set_refused(error, strict)
            return
        self.__setstate__({"path": path, "base": base, "strict": strict, "deadline": deadline})
        try:
            self._want(None, False)
        except BaseException:
            self.close()
            raise

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._wake: tuple[socket.socket, socket.socket] | None = None
        self._done = 0  # the version of which the outcome is known
        self._hits_asked = 0  # calls of hits()
        self._hits_answered = 0
        self._hits: Hits | None = None

    def __enter__(self) -> Order:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in ("path", "base", "strict", "deadline")}
        return {**state, "samples": self._wanted.samples}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy in another process has announced nothing yet."""
        self.path: str = state["path"]
        self.base: str = state["base"]
        self.strict: bool = state["strict"]
        self.deadline: float = state["deadline"]
        self.unknown = 0  # files of the list that the mount does not have; see wait()
        self.error: OrderError | None = None  # why the mount does not know the order, or None
        self._warned: set[str] = set()
        self._wanted = Wanted(0, state.get("samples"), False)
        self._closed = False
        self._reset()

    @classmethod
    def refused(cls, error: Exception, strict: bool = False) -> Order:
        """An order that announces nothing, because of `error`; with `strict` that is raised."""
        order = cls.__new__(cls)
        order._set_refused(error, strict)
        return order

    def _set_refused(self, error: Exception, strict: bool) -> None:
        self.__setstate__({"path": "", "base": "", "strict": strict, "deadline": DEADLINE})
        self._closed = True
        self.refuse(error)
        self.error = told(error)

    # ---- what is announced

    def samples(self, samples: Any) -> None:
        """Registers the samples that orders are made of: paths, (path, class) or, for parts of files, (path, offset,
        length); also an ImageFolder, or a Subset or ConcatDataset of some. What was announced before is forgotten."""
        try:
            self._want(tuple(files_of(samples)), False)
        except OrderError:
            raise
        except Exception as error:  # noqa: BLE001  bad samples must not end a job
            self.refuse(error)

    def announce(self, numbers: Iterable[int] | None = None) -> None:
        """Announces the registered samples as they are listed, or in the order of these numbers. It stays announced
        until something else is, forget() or close()."""
        if numbers is None:
            self._announce(True)
            return
        try:
            words = array.array("I", numbers.tolist() if hasattr(numbers, "tolist") else numbers)
        except Exception as error:  # noqa: BLE001  bad numbers must not end a job
            self.refuse(error)
            return
        self._announce(words)

    def forget(self) -> None:
        """Announces nothing. What was fetched stays."""
        self._want(self._wanted.samples, False)

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the mount has taken, or refused, what was announced last. True: it knows the order."""
        with self._changed:
            self._changed.wait_for(self._settled, seconds)
            return self._settled() and not self._closed and self.error is None

    def hits(self) -> Hits | None:
        """How the reads follow what was announced last. None: the mount does not know the order, or does not answer
        within the deadline. What the kernel has in its page cache is read without the mount, and not counted."""
        with self._changed:
            self._hits_asked += 1
            call = self._hits_asked
            self._poke()
            self._changed.wait_for(lambda: self._hits_answered >= call or not self._thread, self.deadline)
            return self._hits if self._hits_answered >= call else None

    def close(self) -> None:
        """The mount forgets the order; what was fetched stays. Also while forked workers exist."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
            self._poke()
            connection = self._connection
        if connection:
            connection.hang_up()
        if thread and thread is not threading.current_thread():
            thread.join(self.deadline)

    # ---- on the job's thread

    def _settled(self) -> bool:
        return self._done >= self._wanted.version or self._closed

    def _announce(self, order: array.array[int] | bool) -> None:
        if self._wanted.samples is None:
            self.refuse(ValueError("an order needs samples() first"))
        else:
            self._want(self._wanted.samples, order)

    def refuse(self, error: Exception) -> None:
        """What a call was given cannot be announced."""
        if self.strict:
            raise error
        self._warn("call", "nothing is announced: %s" % error)

    def _poke(self) -> None:
        if self._wake:
            try:
                self._wake[1].send(b".")
            except OSError:
                pass  # full: it will wake up

    def _want(self, samples: tuple[Any, ...] | None, order: array.array[int] | bool) -> None:
        try:
            with self._changed:
                if self._closed:
                    raise OrderError(errno.EBADF, "the order is closed")
                self._wanted = Wanted(self._wanted.version + 1, samples, order)
                if not self._thread:
                    self._start()
                self._poke()
        except (OSError, RuntimeError, OrderError) as error:  # no descriptors, no threads
            self.refuse(error if isinstance(error, OrderError) else OrderError(errno.EAGAIN, str(error)))
            return
        if self.strict:
            self.wait(LIST_DEADLINE + RESTART)
            if self.error or not self._settled():
                raise self.error or OrderError(errno.ETIMEDOUT, SILENT)

    def _start(self) -> None:
        self._wake = socket.socketpair()
        for end in self._wake:
            end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="granary-order", daemon=True)
        LIVE.add(self)
        self._thread.start()

    def _after_fork(self) -> None:
        """In a child: the thread is the parent's, and so is the connection, which is only closed here."""
        if self._connection:
            self._connection.socket.close()
        for end in self._wake or ():
            end.close()
        self._wanted = self._wanted._replace(order=False)
        self._reset()
        self._done = self._wanted.version

    # ---- on the order's thread

    def _warn(self, kind: str, text: str) -> None:
        if kind in self._warned:
            return
        self._warned.add(kind)
        try:
            warnings.warn("granary: %s" % text, OrderWarning, stacklevel=4)
        except OrderWarning:
            pass  # -W error; `strict` is for that

    def _note(self, version: int, error: OrderError | None, again: bool = False) -> None:
        """The outcome of one version is known."""
        with self._changed:
            self.error = error
            self._done = max(self._done, version)
            self._changed.notify_all()
        if error and not self.strict:
            self._warn("mount", "%s; reading goes on without an announced order%s" % (
                error, ", and announcing is tried again" if again else ""))  # fmt: skip

    def _note_hits(self, call: int, hits: Hits | None) -> None:
        with self._changed:
            self._hits_answered, self._hits = call, hits
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            Talk(self).run()
        except Exception as error:  # noqa: BLE001  nothing of this may reach the job
            if not self._closed:
                self._note(self._wanted.version, OrderError(errno.EIO, "%s: %s" % (type(error).__name__, error)))
        finally:
            with self._changed:
                ends, self._wake, self._thread = self._wake, None, None
                LIVE.discard(self)
                if self._connection:
                    self._connection.close()
                self._connection = None
                self._changed.notify_all()
            for end in ends or ():
                end.close()


class Bounded:
    """Calls of the file system, which wait for a stopped daemon for as long as it is stopped: in a thread that is left
    behind then. The next call waits for it first, so that there is one at most."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None

    def call(self, what: Callable[[], None], deadline: float) -> None:
        failed: list[BaseException] = []

        def run() -> None:
            try:
                what()
            except BaseException as error:  # noqa: BLE001  raised by the caller
                failed.append(error)

        if self.thread:
            self.thread.join(deadline)
            if self.thread.is_alive():
                raise TimeoutError
        self.thread = threading.Thread(target=run, name="granary-open", daemon=True)
        self.thread.start()
        self.thread.join(deadline)
        if self.thread.is_alive():
            raise TimeoutError
        if failed:
            raise failed[0]


class Talk:
    """What the thread of an order does: keeps the mount at what is wanted."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.sent = Wanted(-1, None, False)  # over the connection
        self.opening = Bounded()
        self.pause = PAUSE_MIN
        self.lost = -RESTART  # when the last connection was lost

    def run(self) -> None:
        while not self.order._closed:
            wanted = self.order._wanted
            try:
                if wanted.version != self.sent.version:
                    self.bring(wanted)
                    self.order._note(wanted.version, None)
                    self.pause = PAUSE_MIN
                self.bring_hits()
                seconds = None
            except (OrderError, OSError, ValueError, TypeError, OverflowError) as error:
                seconds = self.fail(wanted, error)
            if self.idle(seconds):
                self.drop()

    def bring(self, wanted: Wanted) -> None:
        connection = self.order._connection
        if connection is None:
            connection = self.order._connection = Connection(self.order.deadline)
            self.opening.call(lambda: connection.open(self.order.path), self.order.deadline)
        if wanted.samples is not self.sent.samples and wanted.samples is not None:
            self.send_list(connection, wanted.samples)
        elif wanted.order is False:
            connection.send_forget()
        if isinstance(wanted.order, array.array):
            connection.send_numbers(wanted.order)
        elif wanted.order:
            connection.send_listed()
        self.sent = wanted

    def bring_hits(self) -> None:
        call = self.order._hits_asked
        if call == self.order._hits_answered:
            return
        connection = self.order._connection
        known = connection and self.sent.version >= 0 and self.sent.order is not False
        self.order._note_hits(call, Hits(*connection.ask_hits()) if connection and known else None)

    def send_list(self, connection: Connection, samples: Sequence[Any]) -> None:
        paths = Paths(connection.root, self.order.base)
        connection.send_list(lambda: paths.blocks(samples), len(samples))
        self.order.unknown = connection.unknown
        if connection.unknown > UNKNOWN_SHARE * len(samples):
            self.order._warn("unknown", "%d of %d files are not on the mount %s: %s" % (
                connection.unknown, len(samples), connection.root, connection.text))  # fmt: skip

    def drop(self) -> None:
        """The daemon has hung up: it restarts, or was stopped."""
        if self.order._connection:
            self.lost = time.monotonic()
        self.close()

    def close(self) -> None:
        if self.order._connection:
            self.order._connection.close()
        self.order._connection = None
        self.sent = Wanted(-1, None, False)

    def fail(self, wanted: Wanted, error: Exception) -> float | None:
        """Seconds until the next attempt; None: what is wanted now was refused."""
        if isinstance(error, ConnectionError) and self.sent.version >= 0:
            self.lost = time.monotonic()
        self.close()
        if self.order._closed:
            return None
        refused = isinstance(error, (ValueError, TypeError, OverflowError)) or (
            isinstance(error, OrderError) and not isinstance(error, NoFeed) and error.errno not in RETRIED
        )
        if refused:
            self.sent = Wanted(wanted.version, None, False)
        if refused or time.monotonic() - self.lost >= RESTART:
            self.order._note(wanted.version, told(error), again=not refused)
        if refused:
            return None
        self.pause = min(self.pause * 2, PAUSE_MAX)
        return self.pause

    def idle(self, seconds: float | None) -> bool:
        """Waits for a change of what is wanted, and so long at most. True: the mount has hung up."""
        order = self.order
        wake = order._wake
        if not wake or (seconds is None and order._wanted.version != self.sent.version):
            return False
        poll = select.poll()
        poll.register(wake[0], select.POLLIN)
        if order._connection:
            poll.register(order._connection.socket, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000)}
        if wake[0].fileno() in ready:
            wake[0].recv(4096)
        return bool(order._connection and order._connection.socket.fileno() in ready)


def told(error: Exception) -> OrderError:
    """As jobs see it."""
    if isinstance(error, OrderError):
        return error
    if isinstance(error, (TimeoutError, socket.timeout)):
        return OrderError(errno.ETIMEDOUT, SILENT)
    number = error.errno if isinstance(error, OSError) and error.errno else errno.EINVAL
    return OrderError(number, str(error))


LIVE: set[Order] = set()  # those with a thread


def _after_fork_in_child() -> None:
    for order in LIVE:
        order._after_fork()
    LIVE.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def announce(
    path: str | os.PathLike[str], samples: Any, numbers: Iterable[int] | None = None, *, strict: bool = False
) -> Order:
    """Announces samples of the mount that `path` is below, in this order. It stays announced, also when the returned
    Order is not kept, until that is closed or the process ends."""
    order = Order(path, strict=strict)
    try:
        order.samples(samples)
        order.announce(numbers)
    except BaseException:
        order.close()
        raise
    return order
