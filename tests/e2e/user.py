"""Ordinary users for the tests: who they are, what they run, and a place where they may mount."""

import json
import os
import pwd
import shutil
import stat
import sys

import e2e
import service

BIN = os.path.join(e2e.DIR, "bin")  # copies of the programs: the build may lie where users may not look


class User:
    """A user with a home below the test's directory; fusermount3 needs its entry in /etc/passwd."""

    def __init__(self, name):
        self.name = name
        entry = pwd.getpwnam(name)
        self.uid, self.gid = entry.pw_uid, entry.pw_gid
        self.home = os.path.join(e2e.DIR, name)
        self.env = {
            "HOME": self.home,
            "XDG_RUNTIME_DIR": self.directory("run"),
            "XDG_CACHE_HOME": None,
            "GRANARY_RUN_DIR": None,
            "TMPDIR": None,
            "PATH": BIN + ":" + os.environ["PATH"].partition(":")[2],
        }
        self.prefix = (shutil.which("setpriv"), "--reuid", str(self.uid), "--regid", str(self.gid), "--clear-groups")

    def directory(self, name):
        path = os.path.join(self.home, name)
        os.makedirs(path, mode=0o700, exist_ok=True)
        for made in (self.home, path):
            os.chown(made, self.uid, self.gid)
        return path

    def attempt(self, *command, before=(), env=None):
        return e2e.attempt(*before, *self.prefix, *command, env=dict(self.env, **(env or {})))

    def run(self, *command, **more):
        code, out, err = self.attempt(*command, **more)
        e2e.equal(code, 0, "exit of %s: %s%s" % (" ".join(command), out, err))
        return out

    def refused(self, *command, text, status, **more):
        code, out, err = self.attempt(*command, **more)
        print("exit %d: %s" % (code, err.strip()))
        e2e.equal((code, out, err.count("\n")), (status, "", 1), "exit, output and lines of " + " ".join(command) + err)
        for part in [text] if isinstance(text, str) else text:
            e2e.check(part in err, "%r is not in: %s" % (part, err))

    def fork(self, fn, *args):
        """fn in a child of this user; see e2e.fork."""

        def run():
            self.become()
            fn(*args)

        return e2e.fork(run)

    def become(self):
        """Of this process, for good."""
        os.setgroups([])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)

    def does(self, fn, *args):
        """The exit status of fn as this user: 0, or an errno."""
        pid = self.fork(fn, *args)
        return e2e.reap([pid])[pid]


class Member(User):
    """Of a host with the service, in its group or not. `host` (tests/tools/hosts.py): which, of a cluster."""

    def __init__(self, name, member=True, host=None):
        super().__init__(name)
        self.name = name
        self.where = host.command() if host else ()
        self.env.update(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
        environment = host.environment() if host else os.environ
        for variable in ("GRANARY_RUN_DIR", "GRANARY_CONFIG", "GRANARY_HOST"):
            self.env[variable] = environment.get(variable)
        if member:
            self.prefix = self.prefix[:-1] + ("--groups", str(service.USER))

    def attempt(self, *command, before=(), env=None):
        return super().attempt(*command, before=(*before, *self.where), env=env)

    def mount(self, name, path, *options):
        command = ["cachectl", "mount", name, path, *options]
        if e2e.ENGINE != "native":
            command += ["--engine", e2e.ENGINE]
        return self.run(*command)

    def refuse(self, name, path, status):
        """The one line with which a mount is refused."""
        code, out, err = self.attempt("cachectl", "mount", name, path)
        print("exit %d: %s" % (code, err.strip()))
        e2e.equal((code, out, err.count("\n")), (status, "", 1), "exit, output and lines: " + err)
        e2e.check(not os.path.ismount(path), "mounted without permission")
        return err

    def post(self, socket, path, body):
        """(status, answer) of a request that need not come from cachectl."""
        command = ("curl", "-sS", "-w", "\n%{http_code}", "-d", json.dumps(body), "--unix-socket", socket, "http://x" + path)
        out, _, code = self.run(*command).rpartition("\n")
        return int(code), json.loads(out)


def kind(path):
    """Of the file system mounted at a path, or None."""
    with open("/proc/self/mountinfo") as f:
        for line in f:
            if line.split()[4] == path:
                return line.split(" - ")[1].split()[0]
    return None


def source(path):
    """What the mount at a path says that it shows."""
    with open("/proc/self/mountinfo") as f:
        return [line.split(" - ")[1].split()[1] for line in f if line.split()[4] == path][-1]


def enter_namespace():
    """The test once more, in a mount namespace where every user may open /dev/fuse, as where udev has made it.

    Users may pass to the test's directory, and run the programs.
    """
    if not os.environ.get("E2E_INSIDE"):
        node = os.path.join(e2e.DIR, "fuse")
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(10, 229))
        os.chmod(node, 0o666)
        os.environ["E2E_INSIDE"] = "1"
        script = 'mount --bind "$0" /dev/fuse && exec "$@"'
        os.execvp("unshare", ["unshare", "-m", "sh", "-c", script, node, os.path.realpath(sys.argv[0])])
    e2e.forget_mounts()
    for directory in (os.path.dirname(e2e.DIR), e2e.DIR):
        os.chmod(directory, 0o711)
    shutil.copytree(os.path.join(e2e.BUILD, "bin"), BIN)
