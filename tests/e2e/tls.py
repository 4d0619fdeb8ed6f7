"""Certificates made for a test, and a TLS server in front of an origin."""

import os
import socket
import ssl
import subprocess
import threading
import urllib.parse

import e2e


CONFIG = """
[ca]
default_ca = here
[here]
database = %(dir)s/index
serial = %(dir)s/serial
new_certs_dir = %(dir)s
default_md = sha256
policy = any
x509_extensions = names
[any]
commonName = supplied
[names]
subjectAltName = %(kind)s:%(host)s
"""


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=e2e.PATIENCE)


class Authority:
    """A certificate authority of its own; `file` is its certificate."""

    def __init__(self, name):
        self.base = os.path.join(e2e.DIR, name)
        self.file, self.key = self.base + ".crt", self.base + ".key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
                "-subj", "/CN=" + name, "-keyout", self.key, "-out", self.file)  # fmt: skip

    def issue(self, name, host, expired=False):
        """(certificate, key) for a host name or address."""
        base = "%s-%s" % (self.base, name)
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=" + host,
                "-keyout", base + ".key", "-out", base + ".csr")  # fmt: skip
        with open(base + ".conf", "w") as f:
            f.write(CONFIG % {"dir": base, "kind": "IP" if ":" in host or host.replace(".", "").isdigit() else "DNS", "host": host})
        os.mkdir(base)
        open(base + "/index", "w").close()
        first, last = ("20200101000000Z", "20200201000000Z") if expired else ("20200101000000Z", "20991231000000Z")
        openssl("ca", "-batch", "-config", base + ".conf", "-cert", self.file, "-keyfile", self.key, "-in", base + ".csr",
                "-startdate", first, "-enddate", last, "-create_serial", "-notext", "-out", base + ".crt")  # fmt: skip
        return base + ".crt", base + ".key"


class Front:
    """https://HOST:PORT in front of an origin, with that certificate, for a block."""

    def __init__(self, origin, certificate, host="127.0.0.1"):
        self.target = urllib.parse.urlsplit(origin.endpoint)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*certificate)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "https://%s:%d" % (host, self.listener.getsockname()[1])
        self.accepted = 0  # handshakes that succeeded
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            with self.context.wrap_socket(client, server_side=True) as outside:
                self.accepted += 1
                with socket.create_connection((self.target.hostname, self.target.port)) as inside:
                    back = threading.Thread(target=copy, args=(inside, outside), daemon=True)
                    back.start()
                    copy(outside, inside)
                    back.join()
        except OSError:
            pass  # the client does not like us, or is gone


def copy(source, target):
    """What comes from one socket goes to the other, up to its end."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one of the two is gone
