"""A memory limit for a few processes: version 1 or 2 of the kernel's control groups, whichever has memory here."""

import os
import time

V1 = "/sys/fs/cgroup/memory"
V2 = "/sys/fs/cgroup"


def parent_v2():
    """The unified tree's root with memory handed to children, or None."""
    try:
        with open(V2 + "/cgroup.controllers") as f:
            if "memory" not in f.read().split():
                return None
        with open(V2 + "/cgroup.subtree_control", "w") as f:
            f.write("+memory")
    except OSError:
        return None
    return V2


class Group:
    """What is started `within` it, and all that those start, have at most `limit` bytes, their page cache included."""

    def __init__(self, name, limit):
        v1 = os.path.exists(V1 + "/memory.limit_in_bytes")
        top = V1 if v1 else parent_v2()
        if not top:
            raise RuntimeError("no control groups with memory here: neither %s nor a unified tree" % V1)
        self.path = os.path.join(top, "granary-bench-%d-%s" % (os.getpid(), name))
        os.mkdir(self.path)
        with open(self.path + ("/memory.limit_in_bytes" if v1 else "/memory.max"), "w") as f:
            f.write(str(limit))
        self.within = ("sh", "-c", 'echo $$ >"$0" && exec "$@"', self.path + "/cgroup.procs")

    def check(self, pids):
        """They are in it: a daemon that somebody else started is not."""
        with open(self.path + "/cgroup.procs") as f:
            outside = set(pids) - set(f.read().split())
        if outside:
            raise RuntimeError("outside of the control group %s: processes %s" % (self.path, " ".join(sorted(outside))))

    def remove(self):
        """When its processes have ended; pages that are left go to the parent."""
        deadline = time.monotonic() + 10
        while os.path.isdir(self.path):
            try:
                os.rmdir(self.path)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
