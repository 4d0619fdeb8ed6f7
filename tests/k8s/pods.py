"""Granary on a bed, as docs/kubernetes.md installs it: the service on the host, the plugin by the manifests; and pods that use it."""

import contextlib
import json
import os
import re
import signal
import subprocess

import bed
import e2e
import image
import service

DRIVER = "csi.granary.io"
MANIFESTS = os.path.join(service.REPOSITORY, "deploy", "kubernetes")
READER = ["sleep", "1000000"]


def inline(dataset="train", read_only=True, **attributes):
    """A volume of a pod's own."""
    return {"csi": {"driver": DRIVER, "readOnly": read_only, "volumeAttributes": {"dataset": dataset, **attributes}}}


def claimed(name, read_only=True):
    return {"persistentVolumeClaim": {"claimName": name, "readOnly": read_only}}


def claim(name, mode="ReadOnlyMany", volume_mode="Filesystem", read_only=True):
    """A static volume of the dataset `train`, and the claim of that name."""
    common = {"accessModes": [mode], "storageClassName": "", "volumeMode": volume_mode}
    csi = {"driver": DRIVER, "volumeHandle": name, "readOnly": read_only, "volumeAttributes": {"dataset": "train"}}
    reference = {"namespace": "default", "name": name}
    volume = {**common, "capacity": {"storage": "1Gi"}, "claimRef": reference, "csi": csi, "persistentVolumeReclaimPolicy": "Retain"}
    request = {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": request},
    )


def pod(name, *volumes, command=READER, block=False):
    """Its volumes are at /data0, /data1 and so on."""
    names = ["data%d" % i for i in range(len(volumes))]
    container = {"name": "main", "image": image.NAME, "command": command}
    if block:
        container["volumeDevices"] = [{"name": one, "devicePath": "/dev/" + one} for one in names]
    else:
        container["volumeMounts"] = [{"name": one, "mountPath": "/" + one, "readOnly": True} for one in names]
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,  # with 0 the API server forgets a pod before kubelet has unpublished its volumes
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": one, **volume} for one, volume in zip(names, volumes)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


class Node(bed.Bed):
    """With a service whose keeper lets the plugin mount for pods, and the plugin."""

    def __init__(self):
        super().__init__()
        self.service = service.Service(keeper={"client": "csi,root=%s/pods" % self.kubelet})

    def __enter__(self):
        super().__enter__()
        with contextlib.ExitStack() as stack:
            stack.callback(super().__exit__)
            stack.enter_context(self.service)
            e2e.poll(lambda: os.path.isdir(os.path.join(self.service.run, "keeper", "clients", "csi")), "directory of the client csi")
            self.manifest("csi-driver.yaml")
            self.manifest("node-plugin.yaml")
            e2e.poll(self.registered, "kubelet has registered the plugin")
            self.stack = stack.pop_all()
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.kubectl("delete", "namespace", "granary", "--timeout=%ds" % e2e.PATIENCE)
        self.stack.__exit__(kind, None, None)

    def manifest(self, name):
        """As in deploy/kubernetes, but for the directories of the test and the image."""
        with open(os.path.join(MANIFESTS, name)) as f:
            text = self.service.place(f.read()).replace("/var/lib/kubelet", self.kubelet)
        text = re.sub(r"image: \S+", "image: " + image.NAME, text)
        return self.kubectl("apply", "-f", "-", text=text)

    def registered(self):
        drivers = self.get("csinode", bed.NODE)["spec"]["drivers"] or []
        return DRIVER in [one["name"] for one in drivers]

    def dataset(self, name, url, *options):
        e2e.run("cachectl", "dataset", "create", name, url, *options)
        e2e.run("cachectl", "dataset", "update", name, "--allow", "namespace:default")

    def mounts(self):
        """Those that the keeper has."""
        return service.ask(self.service["keeper"].socket)["mounts"]

    def in_plugin(self):
        """Pid of cachecsi in its container."""
        found = subprocess.run(["pgrep", "-f", "^cachecsi --endpoint=unix:///csi/csi.sock --kubelet-endpoint=" + self.kubelet], capture_output=True, text=True)
        pids = found.stdout.split()
        return int(pids[0]) if pids else None

    def end_plugin(self, number=signal.SIGKILL):
        """Its container is started again by kubelet."""
        os.kill(self.in_plugin(), number)

    def volumes_left(self):
        """Mounts and directories of pods' volumes of the driver, of any pod."""
        with open("/proc/self/mountinfo") as f:
            mounts = [line.split()[4] for line in f if "/volumes/kubernetes.io~csi/" in line.split()[4] and line.split()[4].startswith(self.dir)]
        found = []
        for pod_id in os.listdir(self.kubelet + "/pods"):
            with contextlib.suppress(OSError):
                directory = os.path.join(self.kubelet, "pods", pod_id, "volumes", "kubernetes.io~csi")
                found += [os.path.join(directory, name) for name in os.listdir(directory)]
        return mounts + found + self.mounts()

    def nothing_left(self):
        e2e.poll(lambda: not self.volumes_left(), "no mount, directory or mount of the keeper is left")
        e2e.poll(lambda: not e2e.daemons("cachefuse"), "no daemon of a mount is left")


class Reader:
    """A pod in which soak-reader reads the objects of a volume at random and compares every byte (tests/soak/reader.c)."""

    def __init__(self, node, name, sizes, volume, **options):
        self.node, self.name = node, name
        listed = "".join("%d %s\n" % (size, key) for key, size in sizes.items())
        node.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"objects": listed}})
        words = " ".join("--%s %s" % item for item in options.items())
        one = pod(name, volume, command=["sh", "-c", "exec soak-reader --list /list/objects --sample 200 %s /data0 >/out/progress 2>/out/errors" % words])
        one["spec"]["volumes"] += [{"name": "list", "configMap": {"name": name}}, {"name": "out", "emptyDir": {}}]
        one["spec"]["containers"][0]["volumeMounts"] += [{"name": "list", "mountPath": "/list"}, {"name": "out", "mountPath": "/out"}]
        node.apply(one)
        node.ready(name)
        uid = node.get("pod", name)["metadata"]["uid"]
        self.out = os.path.join(node.kubelet, "pods", uid, "volumes", "kubernetes.io~empty-dir", "out")

    def state(self):
        """Its last line; read on the host, which needs neither kubelet nor containerd."""
        with open(self.out + "/progress") as f:
            lines = [line for line in f if line.endswith("}\n")]
        return json.loads(lines[-1]) if lines else {"reads": 0}

    def reads_on(self, what):
        """Some hundred reads later; none has failed."""
        before = self.state()["reads"]
        e2e.poll(lambda: self.state()["reads"] > before + 300, "the pod reads on: " + what)
        with open(self.out + "/errors") as f:
            e2e.equal(f.read(), "", "errors of reads: " + what)
        print("%s: %s" % (what, self.state()))
