"""Commands of pages, as they are written there, on scratch hosts: the fenced blocks of a page are scripts, and the options of the
commands within its sentences are compared with --help."""

import functools
import itertools
import os
import pwd
import re
import shlex
import shutil

import e2e
import service

TOP = service.REPOSITORY
SCRATCH = os.path.join(e2e.DIR, "clone")  # looks like a clone that was built
BIN = os.path.join(e2e.DIR, "bin")
MANAGED = os.path.join(e2e.DIR, "managed")  # while it exists, what Host.manage() started is started again

# Programs in whose place another one runs.
STUBS = {
    "sudo": ("the test is root", 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"'),
    "make": ("it would build and test once more: only whether there is the target",
             'for t; do case $t in -*|*=*) ;; *) grep -qs "^$t:" %s/Makefile %s/*/module.mk || exit 2;; esac; done' % (TOP, TOP)),
    "apt-get": ("the host keeps its packages; tests/soak/deb installs ours", '[ "$1 $2" = "install -y" ]'),
    "git": ("the clone is the scratch directory", '[ "$1" = clone ] && ln -sfn . "$3"'),
    "systemctl": ("there is no systemd: the test starts the daemons as the units say; tests/soak/systemd has a real one", 'exec "$TEST" systemctl "$@"'),
    "docker": ("there is no Docker: the options; 11-container runs the daemons", 'exec "$TEST" docker "$@"'),
}
INLINE = re.compile(r"`((?:cachectl|cachemaster|cacheworker|cachefuse|cachekeeper) [^`]+)`")


# ---- options ---------------------------------------------------------------------------------------------------------


@functools.cache
def help_of(program, *words):
    """--help of the longest command that these words begin with."""
    for n in range(len(words), -1, -1):
        name = " ".join((program, *words[:n]))
        code, out, _ = e2e.attempt(program, *words[:n], "--help")
        if code == 0 and re.match(r"Usage: %s( \[| [A-Z]|\n)" % re.escape(name), out):
            e2e.check(n > 0 or not words or program != "cachectl", "no such command: %s %s" % (program, words[0] if words else ""))
            return out
    raise AssertionError("no --help: " + " ".join((program, *words)))


def check_options(words):
    """A command exists and has the options that are written."""
    plain = [word for word in words[1:] if not word.startswith("-")][:2]
    named = []
    for word in plain:
        if not re.fullmatch(r"[a-z-]+", word):
            break
        named.append(word)
    text = help_of(words[0], *(named if words[0] == "cachectl" else []))
    for word in words[1:]:
        option = re.match(r"--?[a-z][a-z-]*", word)
        if option:
            e2e.check(re.search(r"(?m)^  (-\w, )?%s\b|^  %s, " % ((re.escape(option.group(0)),) * 2), text), "%s: no option %s" % (" ".join(words), word))


def check_sentences(name):
    for words in INLINE.findall(re.sub(r"\s+", " ", text(name + ".md"))):
        check_options(words.split())


# ---- pages -----------------------------------------------------------------------------------------------------------


def text(name):
    with open(os.path.join(TOP, name), encoding="utf-8") as f:
        return f.read()


def all_blocks(name):
    """(language, lines) of each fenced block of a page."""
    found = re.findall(r"(?ms)^( *)```([a-z]*)\n(.*?)^\1```$", text(name))
    return [(language, re.sub(r"\\\n\s*", "", body).splitlines()) for _, language, body in found]


def blocks(name):
    """The fenced blocks of a page, each a list of lines; those of another language than the shell's are not commands."""
    return [lines for language, lines in all_blocks(name) if language in ("", "sh")]


def uncommented(name):
    return [re.sub(r"\s+#\s.*", "", line) for block in blocks(name) for line in block]


def begins(line, known):
    """The entry of a table that the command of a line begins with."""
    return next((entry for entry in known if re.search(r"(^|[\s;/])%s(?!\w)" % re.escape(entry), line.strip())), None)


class Script:
    """Makes scripts of blocks. Each table has a reason for each of its entries, beginnings of commands:

    changed     {entry: (the command in its place, why)}
    before      {entry: (a line that runs before, why)}
    left_out    {entry: why}: lines that are no command, or one that does not end
    """

    def __init__(self, changed, before, left_out):
        self.changed, self.before, self.left_out = changed, before, left_out
        self.substituted = {}  # {value: what the pages show in its place}
        self.used = set()

    def change(self, line):
        for value, shown in self.substituted.items():
            line = line.replace(shown, value)
        entry = begins(line, self.changed)
        self.used.add(entry)
        return line.replace(entry, self.changed[entry][0]) if entry else line

    def line(self, line):
        """The lines of the script for one of a page."""
        command = line.strip().removeprefix("sudo ")
        entry = next((entry for entry in self.left_out if command.startswith(entry)), None)
        if entry:
            self.used.add(entry)
            if command.startswith("cache"):
                words = shlex.split(command, comments=True)
                check_options(list(itertools.takewhile(lambda word: word not in ("|", "&&", "--"), words)))
            return
        entry = begins(line, self.before)
        self.used.add(entry)
        if entry:
            yield self.before[entry][0]
        line = self.change(line)
        if " && " in line:  # `set -e` looks at the last command of such a line only
            line = re.sub(r"(\s+#\s.*)?$", " || exit", line, count=1)
        yield line
        mounted = re.search(r"cachectl mount \S+ (\S+)", line)
        if mounted and begins(line, ["docker"]) is None:
            yield '"$TEST" compare ' + mounted.group(1)

    def of(self, some):
        lines = ["set -eo pipefail"]
        for block in some:
            lines.append("cd " + SCRATCH)
            for line in block:
                lines += self.line(line)
        return "\n".join(lines) + "\n"

    def run(self, name, some, enter=(), env=None):
        """The commands of blocks of a page; `enter`: the command that enters the host."""
        path = os.path.join(e2e.DIR, os.path.basename(name) + ".sh")
        with open(path, "w") as f:
            f.write(self.of(some))
        code, out, err = e2e.attempt(*enter, "bash", "-x", path, env=env)
        print(out + err)
        e2e.equal(code, 0, "exit of the commands of %s.md; the last one above" % name)

    def check_used(self):
        """No entry of a table is outdated."""
        e2e.equal(self.used - {None}, set(self.changed) | set(self.before) | set(self.left_out), "entries of the tables that the pages have")


# ---- hosts -----------------------------------------------------------------------------------------------------------


class Host(service.Installed):
    """The service of a scratch host, as systemd would start it."""

    place = service.Service.place

    def __init__(self):
        self.run, self.lib, self.etc, self.bin = "/run/granary", "/var/lib/granary", "/etc/granary", BIN
        self.units = os.path.join(TOP, "deploy", "systemd")
        self.user = pwd.getpwnam("granary").pw_uid
        self.environment = {}
        self.daemons = {name: service.Unit(self, name) for name in service.NAMES}


    def manage(self, name):
        """Starts that daemon in a process that starts it again whenever it has ended, until end_service()."""
        write(MANAGED, "")
        if os.fork() == 0:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(null, number)
            try:
                self[name].start()
                while self[name].process.wait() == 0 and os.path.exists(MANAGED):
                    self[name].start()
            finally:
                os._exit(0)
        e2e.poll(lambda: os.path.exists(self[name].socket) and service.ask(self[name].socket), "the %s answers" % name)


def write(path, content, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(content)
    os.chmod(path, mode)


def scratch_programs():
    """Programs that a user of the host may run, and the stubs."""
    for directory in (os.path.dirname(e2e.DIR), e2e.DIR):
        os.chmod(directory, 0o711)
    shutil.copytree(os.path.join(e2e.BUILD, "bin"), BIN)
    for name, (_, body) in STUBS.items():
        write(os.path.join(e2e.DIR, "stubs", name), "#!/bin/sh\n%s\n" % body, 0o755)


def scratch_clone(keys):
    """A clone that was built, with a file of the bucket's keys."""
    os.mkdir(SCRATCH)
    for name in os.listdir(TOP):
        if not name.startswith((".", "build")):
            os.symlink(os.path.join(TOP, name), os.path.join(SCRATCH, name))
    os.mkdir(os.path.join(SCRATCH, "build"))
    os.symlink(BIN, os.path.join(SCRATCH, "build", "bin"))
    write(os.path.join(SCRATCH, "train.keys"), "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n" % keys, 0o600)


def scratch_host(directory, config):
    """Files of a host below `directory`: a user granary, two others, the configuration. Returns the lines that mount them over
    where Granary has its own, for a shell in a mount namespace."""
    etc, lib = os.path.join(directory, "etc"), os.path.join(directory, "lib")
    os.makedirs(directory, exist_ok=True)
    e2e.run("cp", "-a", "/etc/.", etc)
    shutil.rmtree(os.path.join(etc, "granary"), ignore_errors=True)
    for name, line in (("passwd", "granary:x:%d:%d::/var/lib/granary:/usr/sbin/nologin\n"), ("group", "granary:x:%d:\n")):
        kept = [entry for entry in text(os.path.join(etc, name)).splitlines(True) if not entry.startswith("granary:")]
        write(os.path.join(etc, name), "".join(kept) + line % ((service.USER,) * line.count("%d")))
    for name, line in (("passwd", "alice:x:64056:64056::/nonexistent:/bin/sh\n"), ("group", "alice:x:64056:\nml:x:64057:\n")):
        write(os.path.join(etc, name), text(os.path.join(etc, name)) + line)
    write(os.path.join(etc, "granary", "granary.yaml"), config)
    for name in ("node_exporter", "granary", "dpkg/info", "dpkg/updates"):
        os.makedirs(os.path.join(lib, name))
    shutil.copy("/var/lib/dpkg/status", os.path.join(lib, "dpkg"))  # which packages are installed
    lines = ["mount --bind %s /etc" % etc, "mount --bind %s /var/lib" % lib]
    lines += ["mount -t tmpfs -o mode=0755 none " + at for at in ("/run", "/mnt", "/srv")]
    return "\n".join([*lines, "mkdir /run/granary"]) + "\n"


def environment(endpoint):
    """Of the pages' commands: they find the bucket's server; the keys are those that the pages give."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GRANARY_RUN_DIR", "GRANARY_STATE_DIR"):
        os.environ.pop(name, None)
    os.environ.update(AWS_ENDPOINT_URL=endpoint, PATH="%s/stubs:%s:%s" % (e2e.DIR, BIN, os.environ["PATH"].partition(":")[2]))


def end_service():
    """Ends the daemons of all hosts, which have no mounts any more."""
    if os.path.exists(MANAGED):
        os.unlink(MANAGED)
    for program in ("cachekeeper", "cacheworker", "cachemaster"):
        for pid in e2e.daemons(program):
            os.kill(pid, 15)
    e2e.nothing_left()
