"""What an order sends to a feed, and that a job neither fails by it nor waits for it. The feed is the test's own."""

import array
import errno
import hashlib
import os
import pickle
import socket
import struct
import tempfile
import threading
import time
import unittest
import warnings
from unittest import mock

import granary
from granary import _wire as wire
from granary._paths import Paths, files_of

PATIENCE = 60  # seconds; of a test, on a busy machine


class Feed:
    """Takes jobs one after the other, keeps what they say, answers as it is told."""

    def __init__(self, path):
        self.known = set()
        self.messages = []
        self.hang_up_after = None
        self.refuse = None
        self.unknown = 0
        self.hits = (0, 0, False)  # reads, hits, suspended
        self.full = False  # takes no more jobs
        self.go_on = threading.Event()  # unset: answers nothing
        self.go_on.set()
        self.ended = threading.Semaphore(0)  # once for each connection
        self.connection = None
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def close(self):
        self.go_on.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(10)

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                self.connection = connection
                try:
                    self.serve(connection)
                except (ConnectionError, AssertionError):
                    pass
            self.ended.release()

    def hang_up(self):
        self.connection.shutdown(socket.SHUT_RDWR)

    def exactly(self, connection, size):
        data = b""
        while len(data) < size:
            part = connection.recv(size - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return data

    def answer(self, connection, status, unknown=0, text=b""):
        self.go_on.wait(PATIENCE)
        reads, hits, suspended = self.hits
        counts = struct.pack("<iIQQQQ", status, suspended, 0, unknown, reads, hits)
        connection.sendall(struct.pack("<II", wire.REPLY, len(counts) + len(text)) + counts + text)

    def serve(self, connection):
        if self.full:
            self.answer(connection, -errno.EUSERS, text=b"64 jobs announce")
            return
        data, descriptors, _, _ = socket.recv_fds(connection, 12, 1)
        self.messages.append((wire.HELLO, data[8:], [os.fstat(fd).st_ino for fd in descriptors]))
        for fd in descriptors:
            os.close(fd)
        self.answer(connection, 0)
        body = b""
        numbers = 0
        wanted = None
        while True:
            kind, size = struct.unpack("<II", self.exactly(connection, 8))
            assert size <= wire.BODY_MAX
            part = self.exactly(connection, size)
            self.messages.append((kind, part))
            if self.hang_up_after == kind:
                self.hang_up_after = None
                return
            if kind == wire.LIST:
                wanted, body = part[4:], b""
                count = struct.unpack_from("<I", part)[0]
                if wanted not in self.known:
                    self.answer(connection, -errno.ENOENT)
                    continue
            elif kind == wire.SAMPLES:
                body += part
                if self.count(body) < count:
                    continue
                assert hashlib.sha256(body).digest() == wanted
                self.known.add(wanted)
            elif kind == wire.NUMBERS:
                numbers += size // 4 - 1
                if numbers < struct.unpack_from("<I", part)[0]:
                    continue
                numbers = 0
            if self.refuse == kind:
                self.answer(connection, -errno.ERANGE, text=b"not this one")
            else:
                self.answer(connection, 0, unknown=self.unknown)

    @staticmethod
    def rows(body):
        at = 0
        while at < len(body):
            offset, length, size = struct.unpack_from("<QQI", body, at)
            yield body[at + 20 : at + 20 + size], offset, length
            at += 20 + size

    def count(self, body):
        return sum(1 for _ in self.rows(body))

    def kinds(self):
        return [message[0] for message in self.messages]


class OrderTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "s")
        self.feed = Feed(self.path)
        os.environ["GRANARY_SOCKET"] = self.path
        self.root = wire.root_of(self.directory.name)
        caught = warnings.catch_warnings(record=True)
        self.warned = caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("always")

    def tearDown(self):
        del os.environ["GRANARY_SOCKET"]
        self.feed.close()
        self.directory.cleanup()

    def strict(self):
        return granary.Order(self.root, strict=True, deadline=PATIENCE)

    def warnings(self):
        return [str(warning.message) for warning in self.warned if warning.category is granary.OrderWarning]

    def eventually(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, "too late")
            time.sleep(0.001)

    # ---- what is sent

    def test_listed(self):
        self.feed.unknown = 2
        with self.strict() as order:
            order.samples(["a", ("b", 5, 7), os.path.join(self.root, "c/d")])
            self.assertEqual(order.unknown, 2)
            order.announce()
            order.forget()
        kinds = [wire.HELLO, wire.FORGET, wire.LIST, wire.SAMPLES, wire.LISTED, wire.FORGET]
        self.assertEqual(self.feed.kinds(), kinds)
        self.assertEqual(self.feed.messages[0][1:], (struct.pack("<I", wire.VERSION), [os.stat(self.root).st_ino]))
        rows = list(self.feed.rows(self.feed.messages[3][1]))
        self.assertEqual(rows, [(b"a", 0, 0), (b"b", 5, 7), (b"c/d", 0, 0)])
        self.assertEqual(self.feed.messages[4][1], b"")

    def test_long(self):
        names = ["directory/%05d" % i for i in range(10000)]
        with self.strict() as order:
            order.samples(names)
            order.announce(range(40000))
        sent = b"".join(body for kind, body in self.feed.messages[1:] if kind == wire.SAMPLES)
        self.assertEqual([row[0].decode() for row in self.feed.rows(sent)], names)
        numbers = [body for kind, body in self.feed.messages[1:] if kind == wire.NUMBERS]
        self.assertEqual(len(numbers), 3)
        self.assertEqual(struct.unpack_from("<II", numbers[1]), (40000, 16383))

    def test_known_list_is_not_sent_again(self):
        for _ in range(2):
            with self.strict() as order:
                order.samples(["a"])
        self.assertEqual(self.feed.kinds().count(wire.SAMPLES), 1)
        self.assertEqual(self.feed.kinds().count(wire.LIST), 2)

    def test_socket_of_a_dead_mount(self):
        """A mount whose daemon was killed leaves its socket, and its device number is given to another mount."""
        name = "order/%d:%d" % (os.major(os.stat(self.root).st_dev), os.minor(os.stat(self.root).st_dev))
        run, runtime = (os.path.join(self.directory.name, each) for each in ("r", "x"))
        dead, alive = os.path.join(run, name), os.path.join(runtime, "granary", name)
        for path in (dead, alive):
            os.makedirs(os.path.dirname(path))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(dead)
        os.symlink(self.path, alive)
        environment = {"GRANARY_RUN_DIR": run, "XDG_RUNTIME_DIR": runtime}
        with mock.patch.dict(os.environ, environment):
            del os.environ["GRANARY_SOCKET"]
            with self.strict() as order:
                order.samples(["a"])
            self.assertIn(wire.LIST, self.feed.kinds())
            os.unlink(alive)
            with self.assertRaises(granary.OrderError):
                with self.strict() as order:
                    order.samples(["a"])

    def test_hits(self):
        self.feed.hits = (64, 5, True)
        with self.strict() as order:
            self.assertIsNone(order.hits())  # nothing is announced
            order.samples(["a"])
            order.announce()
            self.assertEqual(order.hits(), granary.Hits(reads=64, hits=5, suspended=True))
            self.feed.hits = (128, 69, False)
            self.assertEqual(order.hits(), (128, 69, False))
            self.assertEqual(self.feed.kinds().count(wire.HITS), 2)
        self.assertIsNone(order.hits())

    def test_hits_of_a_silent_mount(self):
        with granary.Order(self.root, deadline=PATIENCE) as order:
            order.samples(["a"])
            order.announce()
            self.assertTrue(order.wait(PATIENCE))
            self.feed.go_on.clear()
            order.deadline = 0.02
            self.assertIsNone(order.hits())
            order.deadline = PATIENCE
            self.feed.go_on.set()
            self.assertEqual(order.hits(), (0, 0, False))

    # ---- never raise, never block

    def test_refused(self):
        self.feed.refuse = wire.NUMBERS
        with granary.Order(self.root, deadline=PATIENCE) as order:
            order.samples(["a"])
            order.announce([0])
            self.assertFalse(order.wait(PATIENCE))
            self.assertEqual(order.error.errno, errno.ERANGE)
            order.announce([0, 0])
            order.announce([-1])  # no number
            self.feed.refuse = None
            order.announce([0])
            self.assertTrue(order.wait(PATIENCE))
        mount, call = self.warnings()  # one of each kind
        self.assertIn("not this one; reading goes on", mount)
        self.assertIn("nothing is announced", call)

    def test_refused_strictly(self):
        self.feed.refuse = wire.NUMBERS
        with self.strict() as order:
            with self.assertRaisesRegex(ValueError, "samples"):
                order.announce()
            order.samples(["a"])
            with self.assertRaisesRegex(granary.OrderError, "not this one"):
                order.announce([0])
            with self.assertRaises(OverflowError):
                order.announce([-1])
            with self.assertRaises(TypeError):
                order.samples(7)
        with self.assertRaisesRegex(granary.OrderError, "closed"):
            order.announce()
        self.assertEqual(self.warnings(), [])

    def test_nobody(self):
        os.environ["GRANARY_SOCKET"] = self.path + ".none"
        order = granary.announce(self.directory.name, ["a"])
        self.assertFalse(order.wait(PATIENCE))
        order.announce([0])
        order.close()
        self.assertEqual(len(self.warnings()), 1, self.warnings())
        with self.assertRaises(granary.NoFeed):
            granary.Order(self.directory.name, strict=True)
        with self.assertRaises(granary.NoFeed):
            granary.announce(self.directory.name, ["a"], strict=True)

    def test_no_path(self):
        """A path that a program looked for and did not find."""
        with granary.Order(None) as order:
            order.samples(["a"])
            order.announce()
            order.announce([0])
            order.forget()
            self.assertFalse(order.wait(PATIENCE))
            self.assertIsNone(order.hits())
            self.assertEqual(order.error.errno, errno.EINVAL)
        granary.announce(None, ["a"]).close()
        self.assertEqual(len(self.warnings()), 2)  # one of each order
        with self.assertRaises(TypeError):
            granary.Order(None, strict=True)

    def test_warnings_are_errors(self):
        os.environ["GRANARY_SOCKET"] = self.path + ".none"
        warnings.simplefilter("error")
        with granary.Order(self.root) as order:
            self.assertFalse(order.wait(PATIENCE))

    def test_one_too_many(self):
        """The feed answers, and hangs up before it has taken the greeting."""
        self.feed.full = True
        with granary.Order(self.root, deadline=PATIENCE) as order:
            order.samples(["a"])
            order.announce()
            self.eventually(self.warnings)
            with self.assertRaisesRegex(granary.OrderError, "64 jobs") as caught:
                self.strict()
            self.assertEqual(caught.exception.errno, errno.EUSERS)
            self.feed.full = False  # another one has ended
            self.eventually(lambda: wire.LISTED in self.feed.kinds())
        self.assertEqual(len(self.warnings()), 1)

    def test_silent(self):
        """A stopped daemon: no call waits for it, and what it is sent when it goes on is the latest."""
        self.feed.go_on.clear()
        began = time.monotonic()
        with granary.Order(self.root, deadline=10 * PATIENCE) as order:
            order.samples(["a", "b"])
            for number in range(1000):
                order.announce([number % 2, 0])
            order.announce([1, 1])
            self.feed.go_on.set()
            self.assertTrue(order.wait(PATIENCE))
            self.feed.go_on.clear()
            order.announce([0])
        self.assertLess(time.monotonic() - began, PATIENCE)
        numbers = [body for kind, body, *_ in self.feed.messages if kind == wire.NUMBERS]
        self.assertLessEqual(len(numbers), 3)
        self.assertIn(struct.pack("<III", 2, 1, 1), numbers)
        self.assertEqual(self.warnings(), [])

    def test_deadline(self):
        self.feed.go_on.clear()
        with granary.Order(self.root, deadline=0.02) as order:
            self.assertFalse(order.wait(PATIENCE))
            self.assertEqual(order.error.errno, errno.ETIMEDOUT)
            order.deadline = PATIENCE
            order.samples(["a"])
            order.announce()
            self.feed.go_on.set()
            self.eventually(lambda: wire.LISTED in self.feed.kinds())
        self.assertIn("does not answer; reading goes on", self.warnings()[0])
        self.assertEqual(len(self.warnings()), 1)
        self.feed.go_on.clear()
        with self.assertRaisesRegex(granary.OrderError, "does not answer"):
            granary.Order(self.root, strict=True, deadline=0.02)

    def test_file_system_hangs(self):
        """One thread waits for it, however often announcing is tried."""
        goes_on = threading.Event()
        root = self.root
        with mock.patch.object(wire, "root_of", lambda path: goes_on.wait(PATIENCE) and root):
            with granary.Order(self.root, deadline=0.02) as order:
                self.assertFalse(order.wait(PATIENCE))
                order.samples(["a"])
                order.announce([0])
                self.assertFalse(order.wait(PATIENCE))
                self.assertEqual(order.error.errno, errno.ETIMEDOUT)
                self.assertEqual([thread.name for thread in threading.enumerate()].count("granary-open"), 1)
                with self.assertRaisesRegex(granary.OrderError, "does not answer"):
                    granary.Order(self.root, strict=True, deadline=0.02)
                order.deadline = PATIENCE
                goes_on.set()
                self.eventually(lambda: wire.NUMBERS in self.feed.kinds())
        self.assertEqual(len(self.warnings()), 1)

    # ---- it stays announced

    def test_daemon_restarted_over_a_message(self):
        with self.strict() as order:
            order.samples(["a", "b"])
            self.feed.known.clear()
            self.feed.hang_up_after = wire.LISTED
            order.announce()
        kinds = [wire.LIST, wire.SAMPLES, wire.LISTED]
        self.assertEqual(self.feed.kinds()[2:], kinds + [wire.HELLO] + kinds)

    def test_daemon_restarted_meanwhile(self):
        with self.strict() as order:
            order.samples(["a", "b"])
            order.announce([1, 0])
            self.feed.hang_up()
            self.eventually(lambda: self.feed.kinds().count(wire.NUMBERS) == 2)
        self.assertEqual(self.feed.messages[-1], (wire.NUMBERS, struct.pack("<III", 2, 1, 0)))

    def test_not_kept(self):
        granary.announce(self.root, ["a"]).wait(PATIENCE)
        self.assertFalse(self.feed.ended.acquire(timeout=0.05))
        for order in list(granary.order.LIVE):
            order.close()
        self.assertTrue(self.feed.ended.acquire(timeout=PATIENCE))

    # ---- other processes

    def fork(self, child):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = child() or 0
            finally:
                os._exit(status)
        return pid

    def test_fork(self):
        """A child that lives on does not keep the order, and one that closes it does not end it."""
        order = self.strict()
        order.samples(["a"])
        order.announce([0])
        closing = self.fork(lambda: order.close() or order.wait(PATIENCE) or threading.active_count() - 1)
        self.assertEqual(os.waitpid(closing, 0)[1], 0)
        self.assertFalse(self.feed.ended.acquire(blocking=False))
        order.announce([0, 0])  # still served
        ends = os.pipe()
        living = self.fork(lambda: os.close(ends[1]) or len(os.read(ends[0], 1)))
        order.close()
        self.assertTrue(self.feed.ended.acquire(timeout=PATIENCE))
        os.close(ends[1])
        self.assertEqual(os.waitpid(living, 0)[1], 0)
        os.close(ends[0])

    def test_fork_announces(self):
        order = self.strict()
        order.samples(["a"])
        order.close()
        order = self.strict()
        order.samples(["a"])
        parent = self.feed.connection

        def child():
            """The feed serves one connection at a time: this one when the parent's has ended."""
            order.strict = False
            order.announce([0, 0])

            return 0 if order.wait(PATIENCE) else 1

        pid = self.fork(child)
        order.close()
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertIsNot(self.feed.connection, parent)
        self.assertEqual(self.feed.messages[-1], (wire.NUMBERS, struct.pack("<III", 2, 0, 0)))

    def test_pickle(self):
        with self.strict() as order:
            copy = pickle.loads(pickle.dumps(order))
            self.assertEqual((copy.path, copy.strict), (order.path, True))
            self.assertEqual(copy._thread, None)
            copy.close()

    # ---- samples

    def test_unknown(self):
        self.feed.unknown = 2
        with granary.Order(self.root, deadline=PATIENCE) as order:
            order.samples(["a"] * 200)  # 2 of them: 1 %
            order.wait(PATIENCE)
            self.assertEqual(self.warnings(), [])
            order.samples(["a"] * 199)
            order.wait(PATIENCE)
            order.samples(["a"] * 198)
            order.wait(PATIENCE)
        self.assertEqual(len(self.warnings()), 1)
        self.assertIn("2 of 199 files are not on the mount", self.warnings()[0])


class Answers:
    """A mount that takes every message; of the socket's time limits the last is known."""

    def __init__(self):
        self.limit = None
        self.rest = b""

    def settimeout(self, seconds):
        self.limit = seconds

    def sendall(self, data):
        pass

    def recv(self, size):
        self.rest = self.rest or wire.HEAD.pack(wire.REPLY, wire.ANSWER.size) + bytes(wire.ANSWER.size)
        part, self.rest = self.rest[:size], self.rest[size:]
        return part


class DeadlineTest(unittest.TestCase):
    def test_long_orders_are_sorted_meanwhile(self):
        connection = wire.Connection(1.0)
        connection.socket.close()
        connection.socket = Answers()
        connection.send_numbers(array.array("I", bytes(4 * 3000000)))
        self.assertEqual(connection.socket.limit, 4.0)
        connection.send_listed()
        self.assertEqual(connection.socket.limit, 1.0)


class Subset:
    def __init__(self, dataset, indices):
        self.dataset = dataset
        self.indices = indices


class Folder:
    def __init__(self, samples):
        self.samples = samples


class Concat:
    def __init__(self, *datasets):
        self.datasets = datasets


class PathsTest(unittest.TestCase):
    def test_files(self):
        folder = Folder([("a", 0), ("b", 1), ("c", 1)])
        self.assertEqual(files_of(Subset(Subset(folder, [2, 1]), [1])), [("b", 1)])
        self.assertEqual(files_of(Concat(["x"], Subset(folder, [0]))), ["x", ("a", 0)])
        self.assertEqual(files_of("a"), ["a"])
        self.assertEqual(files_of(iter("ab")), ["a", "b"])

    def test_rows(self):
        with tempfile.TemporaryDirectory() as directory:
            directory = os.path.realpath(directory)
            mount = os.path.join(directory, "mount")
            os.makedirs(os.path.join(mount, "train/n1"))
            os.symlink(mount, os.path.join(directory, "link"))
            os.symlink("mount/train/n1/x", os.path.join(directory, "one"))
            paths = Paths(mount, os.path.join(mount, "train"))
            expected = {
                "n1/x": b"train/n1/x",
                b"n1/\xff": b"train/n1/\xff",
                "../y": b"y",
                ("n1/x", 7): b"train/n1/x",
                (os.path.join(mount, "y"), 0): b"y",
                os.path.join(directory, "link/train/n1/x"): b"train/n1/x",
                os.path.join(directory, "one"): b"train/n1/x",
                os.path.join(mount, "..", "mount/y"): b"y",
                mount + "2/y": b"",
                mount: b"",
                "n1/": b"",
                "..": b"",
            }

            def rows_of(samples):
                return [row for block in paths.blocks(samples) for row in Feed.rows(block)]

            for sample, path in expected.items():
                self.assertEqual(rows_of([sample]), [(path, 0, 0)], sample)
            self.assertEqual(rows_of([("y", 4, 5)]), [(b"train/y", 4, 5)])
            os.symlink("mount/train/n1/y", os.path.join(directory, "x"))
            lists = [*expected, os.path.join(directory, "x"), os.path.join(directory, "one"), "/x"]
            rows = [(path, 0, 0) for path in (*expected.values(), b"train/n1/y", b"train/n1/x", b"")]
            for turn in range(2):
                self.assertEqual(rows_of(lists), rows, turn)


if __name__ == "__main__":
    unittest.main()
