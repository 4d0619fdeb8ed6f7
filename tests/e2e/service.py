"""The service of a host, started as deploy/systemd says: users, directories, command lines and environment of the units.

Paths are put below a directory of the test: /usr/bin, /run/granary, /var/lib/granary, /etc/granary. Installed is one whose
package lies where it belongs.
"""

import configparser
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading

import e2e

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
USER = 64055  # that need not exist
NAMES = ("master", "worker", "keeper")


LAUNCHER = """import fcntl, os, sys
fds = [int(word) for word in sys.argv[1].split(",") if word]
high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in fds]
for number, fd in enumerate(high):
    os.dup2(fd, 3 + number)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Store:
    """The service manager's descriptor store: what the daemon sends it, for the next one."""

    def __init__(self, path):
        self.path = path
        self.fds = {}  # name: descriptors
        self.lock = threading.Lock()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if os.path.exists(path):
            os.unlink(path)
        self.socket.bind(path)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            data, fds, _, _ = socket.recv_fds(self.socket, 4096, 16)
            said = dict(line.split("=", 1) for line in data.decode().splitlines())
            with self.lock:
                if said.get("FDSTORE"):
                    self.fds.setdefault(said["FDNAME"], []).extend(fds)
                    fds = []
                elif said.get("FDSTOREREMOVE"):
                    fds = fds + self.fds.pop(said["FDNAME"], [])
                for fd in fds:
                    os.close(fd)

    def names(self):
        with self.lock:
            return sorted(self.fds)

    def start(self, command, environment, **options):
        with self.lock:
            passed = [(name, fd) for name, fds in self.fds.items() for fd in fds]
            environment = dict(environment, NOTIFY_SOCKET=self.path, LISTEN_FDS=str(len(passed)))
            environment["LISTEN_FDNAMES"] = ":".join(name for name, _ in passed)
            fds = [fd for _, fd in passed]
            words = [sys.executable, "-c", LAUNCHER, ",".join(map(str, fds)), *command]
            return subprocess.Popen(words, env=environment, pass_fds=fds, **options)


class Unit:
    """One of the three daemons."""

    def __init__(self, service, name):
        self.service = service
        self.name = name
        self.process = None
        parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters="=")
        parser.optionxform = str
        with open(os.path.join(service.units, "granary-%s.service" % name)) as f:
            parser.read_file(f)
        self.unit = parser["Service"]
        self.command = shlex.split(service.place(self.unit["ExecStart"]))
        self.socket = os.path.join(service.run, name, name + ".sock")
        self.store = None

    def number(self, what):
        return {"root": 0, "granary": self.service.user}[self.unit.get(what, "root")]

    def prefix(self):
        words = ["setpriv", "--reuid", self.number("User"), "--regid", self.number("Group"), "--clear-groups"]
        if self.unit.get("NoNewPrivileges") == "yes":
            words.append("--no-new-privs")
        bounding = self.unit.get("CapabilityBoundingSet")
        if bounding is not None:
            kept = ["+" + name.partition("_")[2].lower() for name in bounding.split()]
            words += ["--bounding-set", ",".join(["-all", *kept]), "--inh-caps", "-all"]
        return [str(word) for word in words]

    def directories(self):
        for kind, base in (("Runtime", self.service.run), ("State", self.service.lib)):
            for name in self.unit[kind + "Directory"].split():
                path = os.path.join(base, os.path.relpath(name, "granary"))
                os.makedirs(path, exist_ok=True)
                os.chown(path, self.number("User"), self.number("Group"))
                os.chmod(path, int(self.unit[kind + "DirectoryMode"], 8))

    def environment(self):
        environment = dict(os.environ)
        for line in shlex.split(self.service.place(self.unit.get("Environment", ""))):
            name, _, value = line.partition("=")
            environment[name] = value
        environment.update(self.service.environment)
        return environment

    def start(self):
        self.directories()
        with open(os.path.join(e2e.DIR, self.name + ".log"), "a") as log:
            options = {
                "stdin": subprocess.DEVNULL,
                "stdout": log,
                "stderr": log,
                "umask": int(self.unit.get("UMask", "022"), 8),
                "start_new_session": True,
            }
            command = self.prefix() + self.command
            if not self.store and int(self.unit.get("FileDescriptorStoreMax", "0")):
                self.store = Store(os.path.join(e2e.DIR, self.name + ".notify"))
            if self.store:
                self.process = self.store.start(command, self.environment(), **options)
            else:
                self.process = subprocess.Popen(command, env=self.environment(), **options)
        e2e.poll(self.answers, "the %s of the service answers" % self.name)

    def answers(self):
        e2e.equal(self.process.poll(), None, "the %s of the service runs" % self.name)
        return os.path.exists(self.socket) and ask(self.socket)

    def stop(self, number=signal.SIGTERM):
        """As systemctl stop, or kill -9: returns the exit status."""
        self.process.send_signal(number)
        code = self.process.wait(e2e.PATIENCE)
        self.process = None
        return code

    def restart(self, number=signal.SIGTERM):
        code = self.stop(number)
        e2e.equal(code, 0 if number == signal.SIGTERM else -number, "exit of the " + self.name)
        self.start()


def ask(socket, path="/v1/status"):
    command = ["curl", "-sS", "--max-time", str(e2e.PATIENCE), "--unix-socket", socket, "http://x" + path]
    done = subprocess.run(command, capture_output=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


class Service:
    """Master, worker and keeper; a tier of `capacity`. Commands find it by GRANARY_RUN_DIR, which is set here. `keeper`: keys of its section."""

    def __init__(self, capacity="1GiB", bin_dir=None, environment=None, keeper=None):
        self.root = os.path.join(e2e.DIR, "host")
        self.run, self.lib, self.etc = (os.path.join(self.root, name) for name in ("run", "lib", "etc"))
        self.bin = bin_dir or os.path.join(e2e.DIR, "bin")  # the build may lie where the user may not look
        self.units = os.path.join(REPOSITORY, "deploy", "systemd")
        self.environment = environment or {}
        self.capacity = capacity
        for directory in (os.path.dirname(e2e.DIR), e2e.DIR):
            os.chmod(directory, 0o711)
        for directory in (self.run, self.lib, self.etc):
            os.makedirs(directory, mode=0o755)
        if not bin_dir:
            shutil.copytree(os.path.join(e2e.BUILD, "bin"), self.bin)
        with open(os.path.join(REPOSITORY, "deploy", "granary.yaml")) as f:
            text = re.sub(r"\n  admin-listen:.*", "", self.place(f.read()))  # other tests have these ports
        for key, value in (keeper or {}).items():
            text = text.replace("\nkeeper:\n", '\nkeeper:\n  %s: [ "%s" ]\n' % (key, value))
        with open(os.path.join(self.etc, "granary.yaml"), "w") as f:
            f.write(text)
        os.environ["GRANARY_RUN_DIR"] = self.run
        self.daemons = {name: Unit(self, name) for name in NAMES}

    user = USER

    def place(self, text):
        for path, ours in (
            ("/usr/bin", self.bin),
            ("/run/granary", self.run),
            ("/var/lib/granary", self.lib),
            ("/etc/granary", self.etc),
        ):
            text = re.sub(re.escape(path) + r"(?=[/\s]|$)", ours, text)
        return text

    def verify(self):
        """What systemd has to say about the units, where it is installed."""
        if not shutil.which("systemd-analyze"):
            return
        placed = os.path.join(self.root, "units")
        os.makedirs(placed)
        for name in os.listdir(self.units):
            with open(os.path.join(self.units, name)) as f, open(os.path.join(placed, name), "w") as to:
                to.write(self.place(f.read()))
        code, out, err = e2e.attempt(
            "systemd-analyze", "verify", "--man=no", *(os.path.join(placed, name) for name in sorted(os.listdir(placed)))
        )
        ours = [line for line in (out + err).splitlines() if "granary-" in line]
        print("systemd-analyze verify: exit %d\n%s%s" % (code, out, err))  # what else it misses here is not the units'
        e2e.equal(ours, [], "what systemd-analyze says of the units")

    def __getitem__(self, name):
        return self.daemons[name]

    def __enter__(self):
        worker = self["worker"]
        worker.directories()
        tier = os.path.join(self.lib, "worker", "tier")
        e2e.run(*worker.prefix(), os.path.join(self.bin, "cacheworker"), "tier", "init", tier, "--capacity", self.capacity)
        for name in NAMES:
            self[name].start()
        return self

    def __exit__(self, kind, *_):
        running = any(self[name].process for name in NAMES)
        code, out, err = e2e.attempt("cachectl", "umount", "--all", "--force") if running else (0, "", "")
        for name in reversed(NAMES):
            if self[name].process:
                self[name].stop()
        if kind is None:
            e2e.equal((code, out, err), (0, "", ""), "umount --all")

    def mount(self, url, name, origin=None, options=()):
        path = os.path.join(e2e.DIR, name)
        os.makedirs(path, exist_ok=True)
        command = ["cachectl", "mount", url, path, *options]
        if origin:
            command += ["--endpoint", origin.endpoint, "--path-style"]
        if e2e.ENGINE != "native" and "--engine" not in options:
            command += ["--engine", e2e.ENGINE]
        e2e.run(*command)
        e2e.check(os.path.ismount(path), path + " is a mount point after cachectl mount")
        return path


class Installed(Service):
    """That of an installed package."""

    def __init__(self):
        self.run, self.lib, self.etc, self.bin = "/run/granary", "/var/lib/granary", "/etc/granary", "/usr/bin"
        self.units = "/lib/systemd/system"
        self.user = pwd.getpwnam("granary").pw_uid
        self.environment = {}
        self.capacity = "1GiB"
        os.environ.pop("GRANARY_RUN_DIR", None)
        self.daemons = {name: Unit(self, name) for name in NAMES}

    def place(self, text):
        return text
