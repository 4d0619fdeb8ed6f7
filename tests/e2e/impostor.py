"""Servers that are none, and what stands between clients and servers."""

import base64
import concurrent.futures
import contextlib
import ctypes
import os
import socket
import struct
import threading

import e2e
import tls

HEADER = 80
HELLO = 1
TLS13 = 0x0304
AES_128_GCM_SHA256 = b"\x13\x01"
CLONE_NEWNET = 0x40000000

libc = ctypes.CDLL(None)
ssl = ctypes.CDLL("libssl.so.3")
for name in ("SSL_CTX_new", "TLS_server_method", "SSL_new", "SSL_SESSION_new", "SSL_CIPHER_find"):
    getattr(ssl, name).restype = ctypes.c_void_p

FIND_KEY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p))
SELECT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_ubyte),
                          ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p)  # fmt: skip


def certificate(name):
    """An Ed25519 key pair and its certificate, as any process can make them: their files."""
    base = os.path.join(e2e.DIR, name)
    tls.openssl("req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "30", "-subj", "/CN=granary",
                "-keyout", base + ".key", "-out", base + ".crt")  # fmt: skip
    return base + ".crt", base + ".key"


def enter(namespace):
    """New sockets of this thread, and of those that it starts, are of that network namespace: its path, or None."""
    if namespace:
        fd = os.open(namespace, os.O_RDONLY)
        result = libc.setns(fd, CLONE_NEWNET)
        os.close(fd)
        e2e.equal(result, 0, "setns(2) to " + namespace)


def elsewhere(namespace, fn):
    """What fn returns, called in a network namespace."""
    with concurrent.futures.ThreadPoolExecutor(1, initializer=enter, initargs=(namespace,)) as pool:
        return pool.submit(fn).result()


class Listener:
    """tcp:HOST:PORT for a block; counts the connections, of which each is served by a thread."""

    def __init__(self, where=("127.0.0.1", 0), namespace=None):
        self.connections = 0
        self.listener = elsewhere(namespace, lambda: socket.create_server(where))
        self.address = "tcp:%s:%d" % self.listener.getsockname()
        threading.Thread(target=self._accept, args=(namespace,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept(2)
        self.listener.close()

    def _accept(self, namespace):
        enter(namespace)
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()


class Impostor(Listener):
    """Somebody with a token: TLS by the token's key, if the client takes that, else by a certificate of its own. Counts the
    requests that clients made of it."""

    def __init__(self, token, *where):
        with open(token, encoding="ascii") as f:
            claims, key = (base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)) for word in f.read().split()[1:3])
        self.identity, self.key = b"t:" + claims, key
        self.requests = 0
        self.callbacks = FIND_KEY(self._find_key), SELECT(self._select)
        self.context = ctypes.c_void_p(ssl.SSL_CTX_new(ctypes.c_void_p(ssl.TLS_server_method())))
        for path, use in zip(certificate("impostor"), (ssl.SSL_CTX_use_certificate_file, ssl.SSL_CTX_use_PrivateKey_file)):
            e2e.equal(use(self.context, path.encode(), 1), 1, "use of " + path)
        ssl.SSL_CTX_set_psk_find_session_callback(self.context, self.callbacks[0])
        ssl.SSL_CTX_set_alpn_select_cb(self.context, self.callbacks[1], None)
        super().__init__(*where)

    def _find_key(self, connection, identity, size, session):
        session[0] = None
        if ctypes.string_at(identity, size) == self.identity:
            made = ctypes.c_void_p(ssl.SSL_SESSION_new())
            cipher = ctypes.c_void_p(ssl.SSL_CIPHER_find(ctypes.c_void_p(connection), AES_128_GCM_SHA256))
            ssl.SSL_SESSION_set1_master_key(made, self.key, ctypes.c_size_t(len(self.key)))
            ssl.SSL_SESSION_set_cipher(made, cipher)
            ssl.SSL_SESSION_set_protocol_version(made, TLS13)
            session[0] = made.value
        return 1

    def _select(self, _connection, out, out_size, offered, _size, _arg):
        """The first one that is offered."""
        out_size[0] = ctypes.string_at(offered, 1)[0]
        out[0] = offered + 1
        return 0

    def _read(self, connection, size):
        data = b""
        while len(data) < size:
            part = ctypes.create_string_buffer(size - len(data))
            n = ssl.SSL_read(connection, part, len(part))
            if n <= 0:
                return None
            data += part.raw[:n]
        return data

    def _serve(self, client):
        connection = ctypes.c_void_p(ssl.SSL_new(self.context))
        ssl.SSL_set_fd(connection, client.fileno())
        greeting = b"\x0a\x07granary\x10\x03"
        header = b"GRN1" + bytes([3, HELLO, 0, 0]) + bytes(44) + struct.pack("<I", len(greeting)) + bytes(24)
        if ssl.SSL_accept(connection) == 1 and ssl.SSL_write(connection, header + greeting, len(header + greeting)) > 0:
            while (header := self._read(connection, HEADER)) is not None:
                self._read(connection, struct.unpack_from("<I", header, 52)[0])
                self.requests += header[5] != HELLO
        client.close()
        ssl.SSL_free(connection)


class Middle(Listener):
    """Between clients and a server: what both say goes on unless `change` says otherwise.

    change(direction, number, data), of the data as it came: "up" from the client, "down" from the server; what is to go on
    instead. `records` has what both said on each connection, as it came.
    """

    def __init__(self, target, change=lambda direction, number, data: data, where=("127.0.0.1", 0), namespace=None):
        host, port = target.removeprefix("tcp:").rsplit(":", 1)
        self.target, self.change = (host, int(port)), change
        self.records = []
        super().__init__(where, namespace)

    def _serve(self, client):
        record = {"up": bytearray(), "down": bytearray()}
        self.records.append(record)
        server = socket.create_connection(self.target)
        threading.Thread(target=self._carry, args=("up", client, server, record), daemon=True).start()
        self._carry("down", server, client, record)

    def _carry(self, direction, source, target, record):
        number = 0
        try:
            while data := source.recv(65536):
                record[direction] += data
                target.sendall(self.change(direction, number, data))
                number += 1
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for each in (source, target):  # one of the two is gone
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


class Player(Listener):
    """Answers the first bytes of each client with the same ones."""

    def __init__(self, answer, *where):
        self.answer = answer
        super().__init__(*where)

    def _serve(self, client):
        try:
            client.recv(65536)
            client.sendall(self.answer)
            while client.recv(65536):
                pass
        except OSError:
            pass  # it had enough
        client.close()


def heard(address, data, namespace=None):
    """What a server says to these bytes up to its end."""
    host, port = address.removeprefix("tcp:").rsplit(":", 1)
    answer = b""
    with elsewhere(namespace, lambda: socket.create_connection((host, int(port)), timeout=e2e.PATIENCE)) as s:
        try:
            s.sendall(data)
            while part := s.recv(65536):
                answer += part
        except ConnectionResetError:
            pass  # it had more to read
    return answer
