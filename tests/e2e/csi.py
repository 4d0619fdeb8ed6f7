"""cachecsi, and what kubelet asks it: gRPC by Debian's python3-grpcio, messages encoded here."""

import json
import os
import signal
import subprocess

import grpc

import e2e

NAME = "csi.granary.io"
READER, READERS, WRITER, WRITERS = 2, 3, 1, 5  # access modes: SINGLE_NODE_READER_ONLY, MULTI_NODE_READER_ONLY, SINGLE_NODE_WRITER, MULTI_NODE_MULTI_WRITER


# Messages ------------------------------------------------------------------------------------


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def encode(*fields):
    """(number, value): an int, a bool, or str and bytes, also of an encoded message. None: left out."""
    out = b""
    for number, value in fields:
        if value is None:
            continue
        if isinstance(value, int):
            out += varint(number << 3) + varint(int(value))
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def mapping(number, entries):
    return b"".join(encode((number, encode((1, key), (2, value)))) for key, value in entries)


def decode(message):
    """{number: values}; what has a length as bytes."""
    at, out = 0, {}

    def read():
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            number |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return number

    while at < len(message):
        key = read()
        value = read()
        if key & 7 == 2:
            value, at = message[at : at + value], at + value
        out.setdefault(key >> 3, []).append(value)
    return out


def texts(message, number):
    return [value.decode() for value in decode(message).get(number, [])]


# The plugin ----------------------------------------------------------------------------------


class Plugin:
    """cachecsi as a pod of its DaemonSet has it: root without capabilities."""

    def __init__(self, host):
        self.host = host
        self.directory = os.path.join(e2e.DIR, "csi")
        os.makedirs(self.directory, exist_ok=True)
        self.endpoint, self.registration = (os.path.join(self.directory, name) for name in ("csi.sock", "reg.sock"))
        self.process = None
        self.channels = {}

    def start(self, crash=None):
        """`crash`: the directory of a debug program that dies at a crash point (tests/debug)."""
        keeper = os.path.join(self.host.run, "keeper", "clients", "csi", "keeper.sock")
        e2e.poll(lambda: os.path.exists(keeper), "socket of the client csi")
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        command += [os.path.join(e2e.BUILD, "debug", "bin", "cachecsi") if crash else os.path.join(self.host.bin, "cachecsi"), "--endpoint", "unix://" + self.endpoint]
        command += ["--registration", self.registration, "--keeper", keeper, "--node", "node-1"]
        with open(os.path.join(e2e.DIR, "csi.log"), "a") as log:
            environment = {**os.environ, "GRANARY_CRASH_DIR": crash} if crash else None
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        e2e.poll(self.answers, "the plugin answers")

    def answers(self):
        e2e.equal(self.process.poll(), None, "the plugin runs")
        if not os.path.exists(self.registration):
            return False
        self.close()
        return self.attempt("Identity/GetPluginInfo")[0] == "OK"

    def close(self):
        for channel in self.channels.values():
            channel.close()
        self.channels = {}

    def stop(self, number=signal.SIGTERM):
        self.close()
        self.process.send_signal(number)
        e2e.equal(self.process.wait(e2e.PATIENCE), 0 if number == signal.SIGTERM else -number, "exit of the plugin")
        self.process = None

    def died(self):
        """At a crash point."""
        self.close()
        e2e.equal(self.process.wait(e2e.PATIENCE), -signal.SIGKILL, "exit of the plugin")
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if self.process:
            self.stop()

    def method(self, name):
        path = self.registration if name.startswith("Registration/") else self.endpoint
        if path not in self.channels:
            self.channels[path] = grpc.insecure_channel("unix://" + path)
        package = "pluginregistration." if name.startswith("Registration/") else "csi.v1."
        return self.channels[path].unary_unary("/" + package + name)

    def attempt(self, name, message=b"", timeout=e2e.PATIENCE):
        """(status, answer or the line of the error)"""
        try:
            return "OK", self.method(name)(message, timeout=timeout)
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def call(self, name, message=b"", timeout=e2e.PATIENCE):
        status, answer = self.attempt(name, message, timeout)
        e2e.equal(status, "OK", "status of %s: %s" % (name, answer))
        return answer

    def refused(self, name, message, status, *wanted):
        """As kubelet it asks again while that is UNAVAILABLE, unless that is what is expected."""
        asked = []
        e2e.poll(lambda: asked.append(self.attempt(name, message)) or asked[-1][0] in (status, "OK") or asked[-1][0] != "UNAVAILABLE", name)
        found, line = asked[-1]
        e2e.equal(found, status, "status of %s: %s" % (name, line))
        for text in wanted:
            e2e.check(text in line, "%r is in %r" % (text, line))
        return line

    def publish(self, volume, timeout=e2e.PATIENCE):
        """As kubelet does: again while it is UNAVAILABLE or in flight."""
        e2e.poll(lambda: self.attempt("Node/NodePublishVolume", volume.publish(), timeout)[0] not in ("UNAVAILABLE", "ABORTED"), "published")
        self.call("Node/NodePublishVolume", volume.publish())

    def unpublish(self, volume):
        self.call("Node/NodeUnpublishVolume", volume.unpublish())


class Volume:
    """One volume of a pod: an inline one, as kubelet sends it, unless `mode` says otherwise."""

    def __init__(self, target, name="csi-1", attributes=None, mode=WRITER, readonly=True, pod=None, token="first"):
        self.target, self.name, self.mode, self.readonly = target, name, mode, readonly
        engine = {} if e2e.ENGINE == "native" else {"engine": e2e.ENGINE}
        self.attributes = {"dataset": "train", **engine} if attributes is None else attributes
        self.pod = {"pod.namespace": "team", "pod.name": "train-0", "pod.uid": os.path.relpath(target, "/").split("pods/")[-1].split("/")[0], "serviceAccount.name": "trainer", "ephemeral": "true"}
        self.pod.update(pod or {})
        self.token = token

    def context(self):
        entries = list(self.attributes.items()) + [("csi.storage.k8s.io/" + key, value) for key, value in self.pod.items()]
        if self.token is None:
            return entries
        tokens = {"granary": {"token": self.token, "expirationTimestamp": "2030-01-01T00:00:00Z"}}
        return entries + [("csi.storage.k8s.io/serviceAccount.tokens", json.dumps(tokens))]

    def capability(self):
        return encode((2, b""), (3, encode((1, self.mode))))

    def publish(self, reverse=False):
        message = encode((1, self.name), (4, self.target), (5, self.capability()), (6, self.readonly or None))
        return message + mapping(8, self.context()[:: -1 if reverse else 1])

    def unpublish(self):
        return encode((1, self.name), (2, self.target))


def pods(root, count):
    """Targets below ROOT/pods, as kubelet makes them: their parents exist, they do not."""
    found = []
    for i in range(count):
        parent = os.path.join(root, "pods", "uid-%d" % i, "volumes", "kubernetes.io~csi", "data")
        os.makedirs(parent, mode=0o750, exist_ok=True)
        found.append(os.path.join(parent, "mount"))
    return found
