"""Several hosts on one machine: network namespaces behind one bridge, each with directories and daemons of its own.

    with Cluster("build", "/var/tmp/x", workers=3, mounts=2) as cluster:
        cluster.up()
        cluster["m0"].cachectl("mount", "imagenet", "/var/tmp/x/mnt")
        cluster.cut("m0", "w1")

Hosts are `master`, `w0` ..., `m0` ...; each has the address 10.99.0.N, 10.99.0.1 is the bridge's: origins listen there
(origin_options()). A namespace lives as long as its holder, a process that sleeps; so nothing stays of the network once all
processes are gone, whatever became of this program. Mounts are seen by everybody: only the network is a host's own.

Tests take this as a library, people as tools/hosts: what is there is kept in DIR/hosts.json, from which another process goes on.
"""

import errno
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time

NETWORK = "10.99.0."
MASTER_PORT, WORKER_PORT = 7420, 7421
READY_SECONDS = 120  # on however slow a machine
DAEMONS = {"master": "cachemaster", "worker": "cacheworker", "keeper": "cachekeeper"}


class HostsError(Exception):
    """Something that could not be done, in words for people."""


def wait_for(fn, what, seconds=READY_SECONDS):
    deadline = time.monotonic() + seconds
    while not (result := fn()):
        if time.monotonic() > deadline:
            raise HostsError("not within %s s: %s" % (seconds, what))
        time.sleep(0.02)
    return result


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def signal_to(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.socket_path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.socket_path)


def ask(path, what="/v1/status"):
    """The JSON that a daemon's admin socket answers, or None."""
    connection = UnixConnection(path)
    try:
        connection.request("GET", what)
        answer = connection.getresponse()
        text = answer.read()
        return json.loads(text) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def yaml_lines(value, indent=""):
    """Of nested dictionaries with text, numbers, switches and lists of text."""
    for key, entry in value.items():
        if isinstance(entry, dict):
            yield "%s%s:" % (indent, key)
            yield from yaml_lines(entry, indent + "  ")
        elif isinstance(entry, (list, tuple)):
            yield "%s%s:" % (indent, key)
            yield from ("%s  - %s" % (indent, each) for each in entry)
        else:
            yield "%s%s: %s" % (indent, key, {True: "true", False: "false"}.get(entry, entry))


class Namespace:
    """Of a network: exists until its holder ends."""

    def __init__(self, pid=None):
        self.process = None
        if pid is None:
            self.process = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo; exec sleep 2147483647"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            if not self.process.stdout.read(1):
                raise HostsError("cannot make a network namespace: run it as root, on a kernel that has them")
            self.process.stdout.close()
            pid = self.process.pid
        self.pid = pid
        self.path = "/proc/%d/ns/net" % pid

    def within(self, *command):
        return ["nsenter", "--net=" + self.path, "--", *command]

    def ip(self, *lines):
        """Commands of ip(8), all at once."""
        done = subprocess.run(
            self.within("ip", "-batch", "-"), input="\n".join(lines) + "\n", capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise HostsError("ip: %s (%s)" % (done.stderr.strip(), "; ".join(lines)))

    def try_ip(self, *words):
        """False when it says no: what is to be taken away may not be there."""
        return subprocess.run(self.within("ip", *words), capture_output=True, check=False).returncode == 0

    def bridge(self, port, state):
        """0: what arrives at a port is dropped, 3: all is well."""
        words = ("bridge", "link", "set", "dev", port, "state", str(state))
        done = subprocess.run(self.within(*words), capture_output=True, text=True, check=False)
        if done.returncode:
            raise HostsError("%s: %s" % (" ".join(words), done.stderr.strip()))

    def tc(self, *words):
        return subprocess.run(self.within("tc", *words), capture_output=True, text=True, check=False)

    def end(self):
        signal_to(self.pid, signal.SIGKILL)
        if self.process:
            self.process.wait()


class Host:
    """One machine: roles is what runs there, of `master`, `worker`, `keeper`."""

    def __init__(self, cluster, name, number, roles):
        self.cluster, self.name, self.number, self.roles = cluster, name, number, tuple(roles)
        self.address = NETWORK + str(number)
        self.dir = os.path.join(cluster.dir, name)
        self.run_dir = self.dir + "/r"  # short: sockets lie below it
        self.namespace = None
        self.pids = {}  # {role: pid} of what was started
        self.processes = {}  # {role: Popen} of what this process started
        self.group = None  # of its daemons' sockets: a number; None: only root may connect
        self.port = "v-" + name  # of the bridge

    def path(self, name):
        return os.path.join(self.dir, name)

    def admin(self, role):
        return "%s/%s/%s.sock" % (self.run_dir, role, role)

    def log(self, role):
        return self.path(role + ".log")

    # What it is told -------------------------------------------------------------------------

    def config(self):
        """Its granary.yaml, as nested dictionaries; cluster.options changes them."""
        lot = self.cluster
        run = self.run_dir
        master = "tcp:%s:%d" % (lot.master.address, MASTER_PORT)
        sections = {"log-level": lot.log_level}
        if "master" in self.roles:
            sections["master"] = {
                "state": self.path("state"),
                "listen": ["unix:%s/master/master.rpc" % run, "tcp:%s:%d" % (self.address, MASTER_PORT)],
                "admin": self.admin("master"),
                "audit-log": self.path("audit.log"),
                "memory": "256MiB",
                "cluster-key": lot.key,
            }
        if "worker" in self.roles:
            sections["worker"] = {
                "tier": [self.path("tier")],
                "capacity": lot.capacity,
                "create": True,
                "memory": lot.memory,
                "master": master,
                "listen": ["unix:%s/worker/worker.rpc" % run, "tcp:%s:%d" % (self.address, WORKER_PORT)],
                "admin": self.admin("worker"),
                "name": self.name,
                "cluster-key": lot.key,
            }
        if "keeper" in self.roles:
            sections["keeper"] = {
                "cache": self.path("keeper"),
                "run": run + "/keeper",
                "master": master,
                "memory": "512MiB",
                "stay": True,
                "leave-mounts": False,
                "token": self.path("token"),
            }
            own = "unix:%s/worker/worker.rpc" % run
            sections["keeper"]["worker"] = own if "worker" in self.roles else "none"
        for role, more in lot.options.items():
            if role in sections:
                sections[role].update(more)
        for role, more in lot.host_options.get(self.name, {}).items():
            sections[role].update(more)
        return sections

    def write_config(self):
        os.makedirs(self.dir, exist_ok=True)
        for role in self.roles:
            path = os.path.dirname(self.admin(role))
            os.makedirs(path, mode=0o700, exist_ok=True)
            if self.group is not None:
                os.chown(path, -1, self.group)
                os.chmod(path, 0o750)
        with open(self.path("granary.yaml"), "w") as f:
            f.write("\n".join(yaml_lines(self.config())) + "\n")

    def environment(self):
        changed = {
            "GRANARY_RUN_DIR": self.run_dir,
            "GRANARY_CONFIG": self.path("granary.yaml"),
            "GRANARY_HOST": self.dir,  # else all were one by the id of their boot
        }
        return dict(os.environ, **self.cluster.environment, **changed)

    # Its network -----------------------------------------------------------------------------

    def plug(self):
        self.namespace = Namespace()
        self.cluster.switch.ip(
            "link add %s mtu %d type veth peer name eth0 mtu %d netns %d"
            % (self.port, self.cluster.mtu, self.cluster.mtu, self.namespace.pid),
            "link set %s master br0 up" % self.port,
        )
        self.namespace.ip("link set lo up", "addr add %s/24 dev eth0" % self.address, "link set eth0 up")

    # Its processes ---------------------------------------------------------------------------

    def command(self, *words):
        return self.namespace.within(*words)

    def start(self, role, wait=True):
        before = () if self.group is None else ("setpriv", "--regid", str(self.group), "--clear-groups")
        with open(self.log(role), "a") as log:
            process = subprocess.Popen(
                self.command(*before, self.cluster.program(DAEMONS[role]), "--config", self.path("granary.yaml")),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment(), start_new_session=True,
            )  # fmt: skip
        self.processes[role] = process
        self.pids[role] = process.pid
        self.cluster.save()
        if wait:
            self.wait(role)

    def answers(self, role):
        return ask(self.admin(role)) is not None

    def wait(self, role):
        def answers():
            if not self.runs(role):
                with open(self.log(role)) as log:
                    raise HostsError("the %s of %s ended:\n%s" % (role, self.name, "".join(log.readlines()[-5:])))
            return self.answers(role)

        wait_for(answers, "the %s of %s answers" % (role, self.name))

    def runs(self, role):
        process = self.processes.get(role)
        return process.poll() is None if process else role in self.pids and alive(self.pids[role])

    def send(self, role, number):
        if role not in self.pids:
            raise HostsError("no %s was started on %s" % (role, self.name))
        signal_to(self.pids[role], number)

    def stop(self, role, number=signal.SIGTERM, seconds=READY_SECONDS):
        """Ends it; SIGKILL is as if it had crashed. Returns its exit status where that can be known."""
        if role not in self.pids:
            return None
        self.send(role, number)
        return self.ended(role, seconds)

    def ended(self, role, seconds=READY_SECONDS):
        wait_for(lambda: not self.runs(role), "the %s of %s has ended" % (role, self.name), seconds)
        process = self.processes.pop(role, None)
        del self.pids[role]
        self.cluster.save()
        return process.returncode if process else None

    def kill(self, role):
        return self.stop(role, signal.SIGKILL)

    def restart(self, role, number=signal.SIGTERM):
        self.stop(role, number)
        self.start(role)

    def freeze(self, role):
        self.send(role, signal.SIGSTOP)

    def thaw(self, role):
        self.send(role, signal.SIGCONT)

    def power_off(self):
        """As if the plug was pulled: nobody hears of it."""
        self.cluster.cut(self.name)
        for role in list(self.pids):
            self.kill(role)

    def power_on(self):
        self.cluster.heal(self.name)
        for role in self.roles:
            self.start(role)

    def status(self, role, what="/v1/status"):
        found = ask(self.admin(role), what)
        if found is None:
            raise HostsError("the %s of %s does not answer %s" % (role, self.name, what))
        return found

    def attempt(self, *words, timeout=120):
        """Runs a command there: (exit status, stdout, stderr)."""
        with open(self.path("out"), "w+") as out, open(self.path("err"), "w+") as err:  # a daemon left behind holds a pipe
            code = subprocess.run(
                self.command(*words), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self.environment(),
                timeout=timeout, check=False,
            ).returncode  # fmt: skip
            texts = []
            for f in (out, err):
                f.seek(0)
                texts.append(f.read())
        return code, texts[0], texts[1]

    def cachectl(self, *words, timeout=120):
        code, out, err = self.attempt(self.cluster.program("cachectl"), *words, timeout=timeout)
        if code:
            raise HostsError("%s: cachectl %s: exit %d\n%s%s" % (self.name, " ".join(words), code, out, err))
        return out

    def mount(self, dataset, name="mnt", options=()):
        """Mounts below the host's directory; returns the mount point."""
        path = self.path(name)
        os.makedirs(path, exist_ok=True)
        self.cachectl("mount", dataset, path, *options)
        if not os.path.ismount(path):
            raise HostsError("%s is no mount point after cachectl mount" % path)
        return path


class Cluster:
    """Hosts and the wires between them.

    workers, mounts: how many hosts of each kind; with_mounts: workers have a keeper, too. capacity, memory: of each worker.
    options: {"worker": {key: value}} for granary.yaml; host_options: {host: {role: {key: value}}}.
    """

    def __init__(self, build, directory, workers=3, mounts=2, with_mounts=False, capacity="1GiB", memory="256MiB",
                 options=None, host_options=None, environment=None, mtu=1500, log_level="info"):  # fmt: skip
        self.build = os.path.realpath(build)
        self.dir = os.path.realpath(directory)
        self.capacity, self.memory, self.mtu, self.log_level = capacity, memory, mtu, log_level
        self.options, self.host_options, self.environment = options or {}, host_options or {}, environment or {}
        self.key = os.path.join(self.dir, "cluster.key")
        self.switch = None
        self.cuts = set()
        self.hosts = {}
        self.add("master", 2, ("master",))
        for k in range(workers):
            self.add("w%d" % k, 11 + k, ("worker", "keeper") if with_mounts else ("worker",))
        for k in range(mounts):
            self.add("m%d" % k, 101 + k, ("keeper",))

    def add(self, name, number, roles):
        self.hosts[name] = Host(self, name, number, roles)
        return self.hosts[name]

    def __getitem__(self, name):
        if name not in self.hosts:
            raise HostsError("no host %s; there are: %s" % (name, " ".join(self.hosts)))
        return self.hosts[name]

    @property
    def master(self):
        return self.hosts["master"]

    def of(self, role):
        return [host for host in self.hosts.values() if role in host.roles]

    @property
    def workers(self):
        return self.of("worker")

    def program(self, name):
        return os.path.join(self.build, "bin", name)

    def origin_options(self):
        """Of an s3d that all hosts reach, and whose counters this process reaches."""
        return ["--listen", NETWORK + "1:0", "--netns", self.switch.path]

    # Up and down -----------------------------------------------------------------------------

    def wire(self):
        os.makedirs(self.dir, exist_ok=True)
        self.switch = Namespace()
        self.switch.ip(
            "link set lo up", "link add br0 type bridge", "addr add %s1/24 dev br0" % NETWORK, "link set br0 up"
        )
        for host in self.hosts.values():
            host.plug()
        self.save()

    def make_keys(self):
        if not os.path.exists(self.key):
            self.call(self.program("cachectl"), "key", "create", "--out", self.key)

    def call(self, *words):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=READY_SECONDS, check=False)
        if done.returncode:
            raise HostsError("%s: exit %d: %s%s" % (" ".join(words), done.returncode, done.stdout, done.stderr))
        return done.stdout

    def up(self):
        """Network, keys, configuration and all daemons but the keepers, which need a token first; workers are members."""
        if not self.switch:
            self.wire()
        self.make_keys()
        for host in self.hosts.values():
            host.write_config()
        self.master.start("master")
        for host in self.workers:
            host.start("worker", wait=False)
        for host in self.workers:
            host.wait("worker")
        self.wait_members()

    def members(self):
        """{name: what the master's /v1/workers says of it}"""
        found = ask(self.master.admin("master"), "/v1/workers")
        return {each["name"]: each for each in found["workers"]} if found else {}

    def wait_members(self, state="up", names=None, seconds=READY_SECONDS):
        """Until these workers, or all, are in that state; those that are up have their share of slots."""
        names = names or [host.name for host in self.workers]

        def so():
            found = self.members()
            rows = [found.get(name, {}) for name in names]
            return all(row.get("state") == state and (row["slots"] > 0 or state != "up") for row in rows)

        wait_for(so, "%s %s" % (" ".join(names), state), seconds)

    def dataset(self, name, url, endpoint=None, options=()):
        """Makes a dataset, and a token for it for each host that mounts; keepers run afterwards."""
        words = ["dataset", "create", name, url, *options]
        if endpoint:
            words += ["--endpoint", endpoint, "--path-style"]
        self.master.cachectl(*words)
        for host in self.of("keeper"):
            if not os.path.exists(host.path("token")):
                self.master.cachectl("token", "create", name, "--out", host.path("token"))
            if not host.runs("keeper"):
                host.start("keeper")

    def down(self):
        """Ends everything; what does not end by itself is killed. Returns what went wrong, for those who look."""
        trouble = []
        for pair in list(self.cuts):
            self.heal(*pair)
        for host in self.of("keeper"):
            if host.runs("keeper"):
                code, out, err = host.attempt(self.program("cachectl"), "umount", "--all", "--force")
                if code:
                    trouble.append("umount on %s: exit %d: %s%s" % (host.name, code, out, err))
        for role in ("keeper", "worker", "master"):
            running = [host for host in self.of(role) if host.runs(role)]
            for host in running:
                host.send(role, signal.SIGCONT)
                host.send(role, signal.SIGTERM)
            for host in running:
                try:
                    code = host.ended(role)
                    if code:
                        trouble.append("%s of %s: exit %s" % (role, host.name, code))
                except HostsError as error:
                    trouble.append(str(error))
                    host.kill(role)
        self.unwire()
        return trouble

    def unwire(self):
        for host in self.hosts.values():
            if host.namespace:
                host.namespace.end()
                host.namespace = None
        if self.switch:
            self.switch.end()
            self.switch = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        trouble = self.down()
        if trouble and kind is None:
            raise HostsError("; ".join(trouble))

    # Wires -----------------------------------------------------------------------------------

    def cut(self, a, b=None):
        """Packets of a host, or between two, are lost from now on; nobody is told."""
        if b is None:
            self.switch.bridge(self[a].port, 0)
        else:
            for here, there in ((self[a], self[b]), (self[b], self[a])):
                here.namespace.ip("neigh replace %s lladdr 02:00:00:00:00:99 dev eth0 nud permanent" % there.address)
        self.cuts.add((a, b) if b else (a,))
        self.save()

    def heal(self, a, b=None):
        if b is None:
            self.switch.bridge(self[a].port, 3)
        else:
            for here, there in ((self[a], self[b]), (self[b], self[a])):
                here.namespace.try_ip("neigh", "del", there.address, "dev", "eth0")
        self.cuts.discard((a, b) if b else (a,))
        self.save()

    def slow(self, a, rate=None):
        """Both ways at most `rate`, such as 100mbit; None: as fast as it goes."""
        for namespace, device in ((self[a].namespace, "eth0"), (self.switch, self[a].port)):
            namespace.tc("qdisc", "del", "dev", device, "root")  # there may be none
            if rate:
                done = namespace.tc(
                    "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "512k", "latency", "100ms"
                )  # fmt: skip
                if done.returncode:
                    raise HostsError("tc: " + done.stderr.strip())

    # Between processes -----------------------------------------------------------------------

    def save(self):
        state = {
            "build": self.build, "capacity": self.capacity, "memory": self.memory, "mtu": self.mtu,
            "log_level": self.log_level, "options": self.options, "host_options": self.host_options,
            "environment": self.environment, "switch": self.switch and self.switch.pid,
            "cuts": [list(pair) for pair in self.cuts],
            "hosts": [
                {
                    "name": host.name, "number": host.number, "roles": host.roles,
                    "namespace": host.namespace and host.namespace.pid, "pids": host.pids, "group": host.group,
                }
                for host in self.hosts.values()
            ],
        }  # fmt: skip
        path = os.path.join(self.dir, "hosts.json")
        with open(path + ".new", "w") as f:
            os.chmod(f.name, 0o600)  # the environment may hold the bucket's keys
            json.dump(state, f, indent=1)
        os.replace(path + ".new", path)

    @classmethod
    def load(cls, directory):
        try:
            with open(os.path.join(directory, "hosts.json")) as f:
                state = json.load(f)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            raise HostsError("no hosts in %s: make some with up, or name their --dir" % directory) from error
        names = ("capacity", "memory", "mtu", "log_level", "options", "host_options", "environment")
        cluster = cls(state["build"], directory, 0, 0, **{name: state[name] for name in names})
        cluster.hosts = {}
        for row in state["hosts"]:
            host = cluster.add(row["name"], row["number"], row["roles"])
            host.namespace = Namespace(row["namespace"]) if row["namespace"] else None
            host.pids = dict(row["pids"])
            host.group = row["group"]
        cluster.switch = Namespace(state["switch"]) if state["switch"] else None
        cluster.cuts = {tuple(pair) for pair in state["cuts"]}
        return cluster

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)


def possible():
    """May namespaces and bridges be made here?"""
    try:
        namespace = Namespace()
    except (OSError, HostsError):
        return False
    try:
        namespace.ip("link add br0 type bridge", "link add v0 type veth peer name v1")
        return True
    except (OSError, HostsError):
        return False
    finally:
        namespace.end()
