"""Raw requests to daemons of a test's own, with the keys that the test wants: tests/tools/wire_probe.c."""

import ctypes
import os
import struct
import subprocess

import e2e

OPEN_SOURCE, GET_TABLE, GET_SLOTS, REFRESH, GET_TERMS, HOLD, PRELOAD, JOIN, BEAT, TABLE, ADMIN = 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
FETCH, FETCH_CACHED, PREFETCH, RECHECK, CANCEL, HELD, SEAL, MAP, FILE = 16, 17, 18, 19, 20, 21, 22, 23, 24
LOCAL_OK, PEER, LAST = 4, 32, 64
NOBODY = "ee" * 16
BLOCK = 4096
PROBE = os.path.join(e2e.BUILD, "tests", "wire-probe")


def at(name):
    return os.path.join(e2e.DIR, name)


class Daemon:
    """A program that says READY, at the end of a pipe."""

    def __init__(self, name, *command, listens=True):
        reading, writing = os.pipe()
        with open(at(name + ".log"), "a") as log:
            self.process = subprocess.Popen(
                [*map(str, command), "--ready-fd", str(writing)], pass_fds=[writing], stdin=subprocess.DEVNULL, stderr=log
            )
        os.close(writing)
        with os.fdopen(reading) as ready:
            line = ready.readline()
        e2e.check(line.startswith("READY"), "%s: %s" % (name, line))
        if not listens:
            return
        # The port that it chose: of the one socket that listens on TCP.
        out = e2e.run("ss", "-Hltnp")
        own = [words.split()[3] for words in out.splitlines() if "pid=%d," % self.process.pid in words]
        e2e.equal(len(own), 1, "sockets that %s listens on" % name)
        self.address = "tcp:" + own[0]

    def end(self):
        self.process.terminate()
        e2e.equal(self.process.wait(e2e.PATIENCE), 0, "exit status of a daemon")


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def message(**fields):
    """protobuf: n1=bytes, n2=number."""
    out = b""
    for name, value in fields.items():
        number = int(name[1:])
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        else:
            out += varint(number << 3) + varint(value)
    return out


def line(op, volume=NOBODY, lineage=0, generation=0, offset=0, length=BLOCK, flags=0, payload=b""):
    return "%d %s %d %d %d %d %d %s" % (op, volume, lineage, generation, offset, length, flags, payload.hex())


class Answer:
    def __init__(self, text):
        head, _, self.text = text.partition(" text=")
        words = dict(word.split("=") for word in head.split())
        self.status, self.payload, self.fd = words["status"], int(words["payload"]), int(words["fd"])
        self.data, self.file = (bytes.fromhex(words.get(name, "")) for name in ("data", "file"))

    def same(self):
        return self.status, self.payload, self.fd, self.text


def probe(command, lines, n, within=()):
    done = subprocess.run([*within, PROBE, *command], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=e2e.PATIENCE)
    e2e.equal(done.returncode, 0, "exit status of the probe: " + done.stderr)
    answers = [Answer(text) for text in done.stdout.splitlines()]
    e2e.equal(len(answers), n, "answers")
    return answers


def ask(address, keys, *lines, within=()):
    """within: the words before a command that run it elsewhere, as in a network namespace."""
    return probe(["ask", address, *keys], lines, len(lines), within)


def rows(table):
    """The rows of an object table as they are encoded, names and all: catalog/table_format.h."""
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t] * 2
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    index, _, blocks = struct.unpack_from("<QQI", table, 128)
    out = table[index:]
    for _ in range(blocks):
        offset, _, packed, raw, key = struct.unpack_from("<QQIIH", table, index + 32)
        block = ctypes.create_string_buffer(raw)
        e2e.equal(zstd.ZSTD_decompress(block, raw, table[offset : offset + packed], packed), raw, "bytes of a block")
        out += block.raw
        index += 58 + key
    return out


def place_of(volume, content):
    """Objects begin with a block; elsewhere the same noise may be in others."""
    place = volume.find(content)
    while place % BLOCK and place >= 0:
        place = volume.find(content, place + 1)
    e2e.check(place >= 0, "an object is not in the volume")
    return place
