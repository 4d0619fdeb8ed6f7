"""The tests' API server of Kubernetes."""

import json
import os
import subprocess
import urllib.error
import urllib.request

import e2e

JOBS = "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/"
PODS = "/api/v1/namespaces/team/pods/"


class Kube:
    """fake-kube for a block; `config` is its kubeconfig."""

    def __init__(self):
        self.dir = os.path.join(e2e.DIR, "kube")
        os.makedirs(self.dir)
        self.config = os.path.join(self.dir, "kubeconfig")

    def __enter__(self):
        self.process = subprocess.Popen([e2e.BUILD + "/tests/fake-kube", self.dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process:
            self.process.stdin.close()
            e2e.equal(self.process.wait(e2e.PATIENCE), 0, "fake-kube")
            self.process.stdout.close()
            self.process = None

    def control(self, **body):
        request = urllib.request.Request("http://127.0.0.1:%d/fake" % self.port, json.dumps(body).encode(), method="POST")
        urllib.request.urlopen(request, timeout=e2e.PATIENCE).close()

    def get(self, path):
        """The object there; None: there is none."""
        request = urllib.request.Request("http://127.0.0.1:%d%s" % (self.port, path), headers={"Authorization": "Bearer the-token"})
        try:
            with urllib.request.urlopen(request, timeout=e2e.PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            e2e.equal(error.code, 404, "status")
            return None

    def put(self, path, change):
        """Changes the object there as its operator would."""
        change = {**(self.get(path) or {"metadata": {"name": path.rsplit("/", 1)[1]}}), **change}
        self.control(put={path: change})

    def requests(self, method=None):
        """All so far, of clients under test."""
        with open(os.path.join(self.dir, "requests")) as f:
            rows = [json.loads(line) for line in f]
        return [r for r in rows if "User-Agent: granary" in r["head"] and method in (None, r["method"])]
