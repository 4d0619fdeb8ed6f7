"""A wire-tap: what was said to an origin, head by head, on the way through an address of the test's choice, with TLS or without."""

import socket
import ssl
import threading
import urllib.parse


class Wire:
    """http(s)://ADDRESS:PORT in front of an origin, for a block. `host` is another name of that address, for the endpoint."""

    def __init__(self, origin, address="127.0.0.1", certificate=None, host=None):
        self.target = urllib.parse.urlsplit(origin.endpoint)
        self.context = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
        self.listener = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        host = host or ("[%s]" % address if ":" in address else address)
        self.authority = "%s:%d" % (host, self.listener.getsockname()[1])
        self.endpoint = ("https://" if certificate else "http://") + self.authority
        self.lock = threading.Lock()
        self.heads = []  # (target, {name: value})
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def requests(self, text=""):
        """Heads so far whose target holds that text."""
        with self.lock:
            return [head for head in self.heads if text in head[0]]

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            with client if self.context is None else self.context.wrap_socket(client, server_side=True) as outside:
                with socket.create_connection((self.target.hostname, self.target.port)) as inside:
                    back = threading.Thread(target=copy, args=(inside, outside), daemon=True)
                    back.start()
                    self._tap(outside, inside)
                    back.join()
        except OSError:
            pass  # the client does not like us, or is gone

    def _tap(self, source, target):
        """Requests without bodies, which are all that a cache sends."""
        left = b""
        while data := source.recv(65536):
            left += data
            while b"\r\n\r\n" in left:
                head, _, left = left.partition(b"\r\n\r\n")
                self._note(head.decode())
                target.sendall(head + b"\r\n\r\n")
        target.shutdown(socket.SHUT_WR)

    def _note(self, head):
        first, *lines = head.split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if ": " in line)
        with self.lock:
            self.heads.append((first.split(" ")[1], {name.lower(): value for name, value in headers.items()}))


def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass  # one of the two is gone
