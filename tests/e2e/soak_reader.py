"""soak-reader (tests/soak/reader.c): a process of readers that compares every byte of synthetic objects."""

import json
import os
import signal
import subprocess

import e2e


class Reader:
    """Readers below a directory until end(); options are those of soak-reader, e.g. threads=16, open=500, rate=50."""

    def __init__(self, path, sizes, name="reader", **options):
        listed = os.path.join(e2e.DIR, name + ".list")
        with open(listed, "w") as f:
            for key, size in sizes.items():
                f.write("%d %s\n" % (size, key))
        self.out = os.path.join(e2e.DIR, name + ".out")
        self.err = os.path.join(e2e.DIR, name + ".err")
        command = [os.path.join(e2e.BUILD, "tests", "soak-reader"), "--list", listed]
        for option, value in options.items():
            command += ["--" + option, str(value)]
        print(" ".join(command + [path]))
        with open(self.out, "w") as out, open(self.err, "w") as err:
            self.process = subprocess.Popen(command + [path], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def running(self):
        return self.process.poll() is None

    def said(self):
        """What it complained of, if anything."""
        with open(self.err) as f:
            return f.read()

    def state(self):
        """The last line of progress, or None."""
        with open(self.out) as f:
            lines = [line for line in f if line.endswith("}\n")]
        return json.loads(lines[-1]) if lines else None

    def join(self, seconds):
        """Waits for its own end; raises when a byte was wrong or a read failed."""
        code = self.process.wait(seconds)
        e2e.check(code == 0, "soak-reader: exit %d, %s\n%s" % (code, self.state(), self.said()))
        return self.state()

    def end(self, seconds=e2e.PATIENCE):
        """Ends it now."""
        if self.running():
            self.process.send_signal(signal.SIGTERM)
        return self.join(seconds)
