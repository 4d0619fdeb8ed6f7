"""What a bed (bed.py) changes on the host: an address on lo, control groups, sysctls, directories. Each is removed or restored.

Run as a program it does so after tests that were killed.
"""

import contextlib
import fcntl
import glob
import json
import os
import shutil
import signal
import subprocess
import time

PATIENCE = 60  # seconds for the end of processes that were killed
STATE = "/run/granary-k8s"
# Set by kubelet, and by the network plugin.
SYSCTLS = (
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.keys.root_maxkeys",
    "kernel.keys.root_maxbytes",
    "net.ipv4.ip_forward",
)
DIRECTORIES = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/var/log/pods", "/run/containerd", "/opt/containerd")


def alive(pid):
    """A zombie is not."""
    try:
        return bool(os.readlink("/proc/%d/exe" % pid))
    except OSError:
        return False


def sysctl(name):
    return "/proc/sys/" + name.replace(".", "/")


def note_host():
    """What beds change, as it was before the first."""
    os.makedirs(STATE)
    found = {}
    for name in SYSCTLS:
        with contextlib.suppress(FileNotFoundError), open(sysctl(name)) as f:
            found[name] = f.read()
    absent = [path for path in DIRECTORIES if not os.path.exists(path)]
    with open(os.path.join(STATE, "host"), "w") as f:
        json.dump({"sysctl": found, "absent": absent}, f)


def restore_host():
    with open(os.path.join(STATE, "host")) as f:
        noted = json.load(f)
    for name, value in noted["sysctl"].items():
        with open(sysctl(name), "w") as f:
            f.write(value)
    for path in noted["absent"]:
        for plugin in glob.glob(path + "/device-plugins/*"):
            os.unlink(plugin)
        for directory, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):  # what another program has put there stays
                os.rmdir(directory)
    shutil.rmtree(STATE)


@contextlib.contextmanager
def host_locked():
    with open(STATE + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def claim(directory):
    """(number, file that is locked as long as the bed lives)"""
    with host_locked():
        if not os.path.exists(STATE):
            note_host()
        for number in range(10):
            lock = open(os.path.join(STATE, str(number)), "a+")
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock.truncate(0)
                lock.write(directory)
                lock.flush()
                return number, lock
            lock.close()
    raise AssertionError("ten beds run on this machine")


def tidy():
    """Removes what ended tests have left on the host; with the last, restores it."""
    with host_locked():
        if not os.path.exists(STATE):
            return
        living = False
        for name in filter(str.isdigit, os.listdir(STATE)):
            with open(os.path.join(STATE, name)) as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    living = True
                    continue
                remove(name, lock.read())
                os.unlink(lock.name)
        if not living:
            restore_host()


def group_of(number):
    return "granary-k8s-%s" % number


def groups(number):
    """Control groups of a bed, the deepest first, in all hierarchies."""
    found = []
    for top in glob.glob("/sys/fs/cgroup/" + group_of(number)) + glob.glob("/sys/fs/cgroup/*/" + group_of(number)):
        found += [directory for directory, _, _ in os.walk(top, topdown=False)]
    return found


def processes(number, directory):
    """Those of the bed's programs, and those of its containers."""
    found = set()
    for group in groups(number):
        with contextlib.suppress(OSError), open(group + "/cgroup.procs") as f:
            found.update(map(int, f.read().split()))
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as f:
            if (directory + "/").encode() in f.read() and pid != os.getpid():
                found.add(pid)
    return {pid for pid in found if alive(pid)}


def remove(number, directory):
    left = glob.glob("/var/lib/cni/results/%s-*" % group_of(number))
    for path in glob.glob(directory + "/ctr/state/io.containerd.runtime.v2.task/k8s.io/*/address"):
        left += glob.glob("/var/lib/cni/results/cni-loopback-%s-lo" % path.split("/")[-2])
        with open(path) as f:
            left.append(f.read().replace("unix://", ""))
    deadline = time.monotonic() + PATIENCE
    while (pids := processes(number, directory)) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    with open("/proc/self/mountinfo") as f:
        points = [line.split()[4] for line in f]
    for point in points[::-1]:
        if (point + "/").startswith(directory + "/"):
            subprocess.run(["umount", "-l", point], stderr=subprocess.DEVNULL)
    subprocess.run(["ip", "addr", "del", address_of(number) + "/32", "dev", "lo"], stderr=subprocess.DEVNULL)
    for path in left:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    for path in glob.glob("/var/log/containers/*"):
        if os.readlink(path).startswith(directory + "/"):
            os.unlink(path)
    for group in groups(number):
        with contextlib.suppress(OSError):
            os.rmdir(group)


def address_of(number):
    return "10.210.%s.1" % number


if __name__ == "__main__":
    tidy()
