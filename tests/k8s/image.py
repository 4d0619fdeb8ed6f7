"""The image of all pods: busybox, cachecsi, and soak-reader, which reads and compares."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile

import e2e

NAME = "localhost/granary:test"


def add_program(root, path, place):
    """With the libraries that it is linked to."""
    shutil.copy(path, os.path.join(root, place))
    for library in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", path], capture_output=True, text=True).stdout):
        to = root + library
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if not os.path.exists(to):
            shutil.copy(library, to)


def make_root(root):
    for name in ("bin", "tmp", "etc", "usr/bin"):
        os.makedirs(os.path.join(root, name))
    add_program(root, shutil.which("busybox"), "bin/busybox")
    for name in subprocess.run(["busybox", "--list"], capture_output=True, text=True).stdout.split():
        if name != "busybox":
            os.symlink("busybox", os.path.join(root, "bin", name))
    add_program(root, os.path.join(e2e.BUILD, "bin", "cachecsi"), "usr/bin/cachecsi")
    add_program(root, os.path.join(e2e.BUILD, "tests", "soak-reader"), "usr/bin/soak-reader")
    with open(os.path.join(root, "etc", "passwd"), "w") as f:
        f.write("root:x:0:0::/:/bin/sh\n")


def write(root, path):
    """An OCI image of one layer, as `ctr image import` reads it."""
    blobs = {}

    def blob(kind, data):
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        digest = hashlib.sha256(data).hexdigest()
        blobs["blobs/sha256/" + digest] = data
        return {"mediaType": "application/vnd.oci.image.%s" % kind, "digest": "sha256:" + digest, "size": len(data)}

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(root, arcname=".")
    layer = blob("layer.v1.tar", layer.getvalue())
    config = {"Cmd": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin:/usr/bin"]}
    config = blob("config.v1+json", {"architecture": "amd64", "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}})
    manifest = blob("manifest.v1+json", {"schemaVersion": 2, "config": config, "layers": [layer]})
    manifest["annotations"] = {"io.containerd.image.name": NAME}
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode(), **blobs}
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
