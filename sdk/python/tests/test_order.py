"""What a job says to a feed: against a feed of the test's own."""

import errno
import hashlib
import os
import socket
import struct
import tempfile
import threading
import unittest

import granary
from granary import order as wire


class Feed:
    """Takes jobs one after the other, keeps what they say, answers as it is told."""

    def __init__(self, path):
        self.known = set()
        self.messages = []
        self.hang_up_after = None
        self.refuse = None
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def close(self):
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
                try:
                    self.serve(connection)
                except (ConnectionError, AssertionError):
                    pass

    def exactly(self, connection, size):
        data = b""
        while len(data) < size:
            part = connection.recv(size - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return data

    def answer(self, connection, status, unknown=0, text=b""):
        connection.sendall(struct.pack("<IIiIQQ", wire.REPLY, 24 + len(text), status, 0, 0, unknown) + text)

    def serve(self, connection):
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
                self.answer(connection, 0, unknown=2)

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

    def tearDown(self):
        del os.environ["GRANARY_SOCKET"]
        self.feed.close()
        self.directory.cleanup()

    def test_sampler(self):
        with granary.Order(self.directory.name) as order:
            order.samples(["a", ("b", 5, 7), os.path.join(self.root, "c/d")])
            self.assertEqual(order.unknown, 2)
            order.epoch(3, seed=2, rank=1, world=4, drop_last=True)
            order.forget()
        kinds = [wire.HELLO, wire.LIST, wire.SAMPLES, wire.SAMPLER, wire.FORGET]
        self.assertEqual(self.feed.kinds(), kinds)
        self.assertEqual(self.feed.messages[0][1:], (struct.pack("<I", 1), [os.stat(self.root).st_ino]))
        rows = list(self.feed.rows(self.feed.messages[2][1]))
        self.assertEqual(rows, [(b"a", 0, 0), (b"b", 5, 7), (b"c/d", 0, 0)])
        self.assertEqual(self.feed.messages[3][1], struct.pack("<QQIII", 2, 3, 1, 4, 3))

    def test_long(self):
        names = ["directory/%05d" % i for i in range(10000)]
        with granary.Order(self.directory.name) as order:
            order.samples(names)
            order.announce(range(40000))
        sent = b"".join(body for kind, body in self.feed.messages[1:] if kind == wire.SAMPLES)
        self.assertEqual([row[0].decode() for row in self.feed.rows(sent)], names)
        numbers = [body for kind, body in self.feed.messages[1:] if kind == wire.NUMBERS]
        self.assertEqual(len(numbers), 3)
        self.assertEqual(struct.unpack_from("<II", numbers[1]), (40000, 16383))

    def test_known_list_is_not_sent_again(self):
        for _ in range(2):
            with granary.Order(self.directory.name) as order:
                order.samples(["a"])
        self.assertEqual(self.feed.kinds(), [wire.HELLO, wire.LIST, wire.SAMPLES, wire.HELLO, wire.LIST])

    def test_refused(self):
        self.feed.refuse = wire.SAMPLER
        with granary.Order(self.directory.name) as order:
            order.samples([])
            with self.assertRaisesRegex(granary.OrderError, "not this one"):
                order.announce()
            order.root = "/mnt/data"
            with self.assertRaises(ValueError):
                order.samples(["/mnt/data2/a"])

    def test_daemon_started_anew(self):
        with granary.Order(self.directory.name) as order:
            order.samples(["a", "b"])
            self.feed.known.clear()
            self.feed.hang_up_after = wire.SAMPLER
            order.epoch(1)
        kinds = [wire.LIST, wire.SAMPLES, wire.SAMPLER]
        self.assertEqual(self.feed.kinds(), [wire.HELLO] + kinds + [wire.HELLO] + kinds)

    def test_nobody(self):
        os.environ["GRANARY_SOCKET"] = self.path + ".none"
        with self.assertRaises(granary.NoFeed):
            granary.Order(self.directory.name)
        with self.assertRaises(granary.NoFeed):
            granary.announce(self.directory.name, ["a"])


if __name__ == "__main__":
    unittest.main()
