"""A real browser, Chromium without a window, driven over the pipe that it has for debuggers (Chrome DevTools Protocol).

It may talk to this host's 127.0.0.1 only: every other name and address is not found.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time

import e2e

DEADLINE = e2e.PATIENCE  # for one answer: a loaded machine is slow


def program():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    e2e.skip("no browser: deploy/install-packages test")
    return None


class Browser:
    """One page; what its console says, what it asks for, and dialogs that it opens are kept."""

    def __init__(self, width=1400, height=1000, dark=False, language="en-US"):
        self.directory = os.path.join(e2e.DIR, "browser")
        self.pending = b""
        self.number = 0
        self.events = []
        self.session = None
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()
        # The browser has the two as its descriptors 3 and 4.
        command = [
            "/bin/sh", "-c", 'exec "$@" 3<&%d 4>&%d' % (to_read, to_write), "sh", program(), "--headless=new",
            "--remote-debugging-pipe", "--user-data-dir=" + self.directory, "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--no-proxy-server", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-breakpad", "--no-first-run",
            "--no-default-browser-check", "--hide-scrollbars", "--force-color-profile=srgb", "--font-render-hinting=none", "--disable-lcd-text",
            "--disable-features=Translate,OptimizationHints,MediaRouter", "--lang=" + language,
            "--window-size=%d,%d" % (width, height), "about:blank",
        ]
        with open(os.path.join(e2e.DIR, "browser.log"), "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[to_read, to_write],
                env=dict(os.environ, LANGUAGE=language.replace("-", "_"), DBUS_SESSION_BUS_ADDRESS="disabled:"),
            )
        os.close(to_read)
        os.close(to_write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.look(width, height, dark)

    def look(self, width, height, dark=False):
        """The window's size, and what its user prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            self.call("Browser.close", whole=True)
            self.process.wait(e2e.PATIENCE)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.read_end)
        os.close(self.write_end)

    # Messages: JSON, each ended by a NUL.

    def message(self, deadline):
        while b"\0" not in self.pending:
            left = deadline - time.monotonic()
            e2e.check(left > 0, "the browser does not answer")
            ready, _, _ = select.select([self.read_end], [], [], min(left, 1))
            if ready:
                part = os.read(self.read_end, 1 << 16)
                e2e.check(part, "the browser ended: see browser.log")
                self.pending += part
        text, _, self.pending = self.pending.partition(b"\0")
        return json.loads(text)

    def call(self, method, whole=False, **params):
        """Asks the page, or the whole browser."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session and not whole:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        deadline = time.monotonic() + DEADLINE
        while True:
            message = self.message(deadline)
            if message.get("id") == self.number:
                e2e.check("error" not in message, "%s: %s" % (method, message.get("error")))
                return message["result"]
            if "method" in message:
                self.events.append(message)

    # What a test asks.

    def open(self, url):
        answer = self.call("Page.navigate", url=url)
        e2e.check("errorText" not in answer, "%s: %s" % (url, answer.get("errorText")))
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'", "the page is there")

    def run(self, expression):
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        e2e.check("exceptionDetails" not in answer, "%s: %s" % (expression, answer.get("exceptionDetails")))
        return answer["result"].get("value")

    def until(self, expression, what, seconds=e2e.PATIENCE):
        """Polls until the expression is true; its value."""
        return e2e.poll(lambda: self.run(expression), what, seconds)

    def screenshot(self, path, height=None):
        """A PNG of the window, or of the page's first `height` lines; its size in bytes."""
        clip = {}
        if height:
            clip = {"clip": {"x": 0, "y": 0, "width": self.run("innerWidth"), "height": height, "scale": 1}, "captureBeyondViewport": True}
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"])
        with open(path, "wb") as f:
            f.write(data)
        return len(data)

    def complaints(self):
        """Errors of the console, exceptions nobody caught, what the policy forbade, dialogs."""
        self.run("1")  # all that was said before has arrived
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append("exception: " + details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append("console: %s" % [arg.get("value", arg.get("description")) for arg in params["args"]])
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append("log: %(text)s" % params["entry"])
            elif event["method"] == "Page.javascriptDialogOpening":
                found.append("dialog: " + params["message"])
        return found

    def requests(self):
        """URLs that the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
