"""A Kubernetes node on the host: etcd, API server, controller manager, scheduler, containerd and kubelet.

All state is below one directory of the test, but for what host.py removes and restores. There is no kube-proxy, DNS or registry: pods
use the one image that the node has (image.py).
"""

import glob
import json
import os
import signal
import subprocess
import time

import e2e
import host
import image

NODE = "node-1"


CONTAINERD = """version = 2
root = "{dir}/ctr/root"
state = "{dir}/ctr/state"
[grpc]
  address = "{dir}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/ctr/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{dir}/ctr/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{dir}/cni"
    bin_dir = "/usr/lib/cni"
"""


class Bed:
    def __init__(self):
        self.dir = os.path.join(e2e.DIR, "b")  # short: kubelet's sockets lie below it
        self.kubelet = os.path.join(self.dir, "kubelet")
        self.bin = os.environ["GRANARY_K8S_BED"]
        self.config = os.path.join(self.dir, "admin.kubeconfig")
        self.commands = {}
        self.processes = {}
        self.number = self.lock = self.address = None

    def __enter__(self):
        began = time.monotonic()
        os.makedirs(self.dir + "/cni")
        host.tidy()
        self.number, self.lock = host.claim(self.dir)
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        print("the node is ready after %.1f s" % (time.monotonic() - began))
        return self

    def __exit__(self, *_):
        self.down()

    def down(self):
        self.lock.close()
        host.tidy()
        for process in self.processes.values():
            process.wait()

    def up(self):
        self.address = host.address_of(self.number)
        e2e.run("ip", "addr", "replace", self.address + "/32", "dev", "lo")
        e2e.run("mount", "--bind", self.dir, self.dir)
        e2e.run("mount", "--make-rshared", self.dir)  # mounts of the keeper propagate into containers
        self.make_groups()
        self.make_certificates()
        self.list_commands()
        for name in ("etcd", "containerd", "apiserver"):
            self.start(name)
        root, archive = (os.path.join(self.dir, name) for name in ("root", "image.tar"))
        image.make_root(root)
        image.write(root, archive)
        ctr = ("ctr", "-a", self.dir + "/containerd.sock", "-n", "k8s.io")
        e2e.poll(lambda: e2e.attempt(*ctr, "version")[0] == 0, "containerd answers")
        e2e.run(*ctr, "image", "import", archive)
        e2e.poll(lambda: self.attempt("get", "--raw", "/readyz")[0] == 0, "the API server is ready")
        for name in ("controller-manager", "scheduler", "kubelet"):
            self.start(name)
        e2e.poll(self.schedulable, "the node is ready for pods")
        e2e.poll(lambda: self.attempt("get", "serviceaccount/default", "configmap/kube-root-ca.crt")[0] == 0, "the default service account exists")

    def schedulable(self):
        code, out, _ = self.attempt("get", "node", NODE, "-o", "json")
        node = json.loads(out) if code == 0 else {"status": {}}
        ready = {"Ready": "True"}.items() <= {one["type"]: one["status"] for one in node["status"].get("conditions", [])}.items()
        return ready and not node["spec"].get("taints")

    def make_groups(self):
        """kubelet's root group must exist in every hierarchy; in version 1 its CPUs are not inherited."""
        tops = ["/sys/fs/cgroup"] if os.path.exists("/sys/fs/cgroup/cgroup.procs") else glob.glob("/sys/fs/cgroup/*")
        for top in tops:
            if not os.path.exists(top + "/cgroup.procs"):
                continue
            group = os.path.join(top, host.group_of(self.number))
            os.makedirs(group, exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if os.path.exists(top + "/" + name):
                    with open(top + "/" + name) as f, open(group + "/" + name, "w") as to:
                        to.write(f.read())

    # Certificates

    def openssl(self, *words):
        e2e.run("openssl", *words)

    def certificate(self, name, subject, extension):
        path = os.path.join(self.dir, name)
        with open(path + ".ext", "w") as f:
            f.write("basicConstraints=CA:FALSE\n%s\n" % extension)
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self.openssl("req", "-new", *new, "-subj", subject, "-keyout", path + ".key", "-out", path + ".csr")
        authority = ("-CA", self.dir + "/ca.crt", "-CAkey", self.dir + "/ca.key", "-CAcreateserial")
        self.openssl("x509", "-req", "-in", path + ".csr", *authority, "-days", "30", "-out", path + ".crt", "-extfile", path + ".ext")

    def make_certificates(self):
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self.openssl("req", "-x509", *new, "-days", "30", "-subj", "/CN=test", "-keyout", self.dir + "/ca.key", "-out", self.dir + "/ca.crt")
        self.openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.dir + "/sa.key")
        names = "IP:%s,IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc" % self.address
        self.certificate("apiserver", "/CN=kube-apiserver", "subjectAltName=" + names)
        self.certificate("kubelet", "/CN=" + NODE, "subjectAltName=IP:" + self.address)
        users = {
            "admin": "/O=system:masters/CN=admin",
            "controller-manager": "/CN=system:kube-controller-manager",
            "scheduler": "/CN=system:kube-scheduler",
            "node": "/O=system:nodes/CN=system:node:" + NODE,
        }
        for name, subject in users.items():  # a client's name and groups are its subject
            self.certificate(name, subject, "extendedKeyUsage=clientAuth")
            path = os.path.join(self.dir, name)
            cluster = {"server": "https://%s:443" % self.address, "certificate-authority": self.dir + "/ca.crt"}
            user = {"client-certificate": path + ".crt", "client-key": path + ".key"}
            config = {"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}
            self.write(name + ".kubeconfig", {**config, "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}]})

    # Programs

    def write(self, name, content):
        with open(os.path.join(self.dir, name), "w") as f:
            f.write(content if isinstance(content, str) else json.dumps(content))

    def list_commands(self):
        here, at = self.dir, self.address
        client, peer = "http://%s:2379" % at, "http://%s:2380" % at
        self.write("containerd.toml", CONTAINERD.format(dir=here, image=image.NAME))
        ranges = [[{"subnet": "10.211.%s.0/24" % self.number}]]
        plugin = {"type": "ptp", "ipam": {"type": "host-local", "dataDir": here + "/ipam", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}}
        self.write("cni/10-test.conflist", {"cniVersion": "0.4.0", "name": host.group_of(self.number), "plugins": [plugin]})
        self.write("kubelet.json", self.kubelet_config())
        self.commands = {
            "etcd": ["etcd", "--data-dir", here + "/etcd", "--listen-client-urls", client, "--advertise-client-urls", client,
                     "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
                     "--log-level", "warn", "--unsafe-no-fsync"],
            "containerd": ["containerd", "-c", here + "/containerd.toml"],
            "apiserver": self.kube("kube-apiserver", {
                "etcd-servers": client, "bind-address": at, "advertise-address": at, "secure-port": 443,
                "tls-cert-file": here + "/apiserver.crt", "tls-private-key-file": here + "/apiserver.key", "client-ca-file": here + "/ca.crt",
                "kubelet-preferred-address-types": "InternalIP", "kubelet-certificate-authority": here + "/ca.crt",
                "kubelet-client-certificate": here + "/admin.crt", "kubelet-client-key": here + "/admin.key",
                "authorization-mode": "Node,RBAC", "enable-admission-plugins": "NodeRestriction", "allow-privileged": "true",
                "service-cluster-ip-range": "10.210.%s.0/24" % self.number, "service-account-issuer": "https://kubernetes.default.svc",
                "service-account-signing-key-file": here + "/sa.key", "service-account-key-file": here + "/sa.key"}),
            "controller-manager": self.kube("kube-controller-manager", {
                **self.as_user("controller-manager"), "use-service-account-credentials": "true", "pvclaimbinder-sync-period": "1s",
                "flex-volume-plugin-dir": self.kubelet + "/volume-plugins", "service-account-private-key-file": here + "/sa.key",
                "root-ca-file": here + "/ca.crt"}),
            "scheduler": self.kube("kube-scheduler", self.as_user("scheduler")),
            "kubelet": self.kube("kubelet", {
                "config": here + "/kubelet.json", "kubeconfig": here + "/node.kubeconfig", "root-dir": self.kubelet,
                "hostname-override": NODE, "node-ip": at, "v": 2}),
        }

    def kube(self, program, options):
        return [os.path.join(self.bin, program), "--cert-dir=" + self.dir + "/generated"] + ["--%s=%s" % item for item in options.items()]

    def as_user(self, name):
        config = os.path.join(self.dir, name + ".kubeconfig")
        kinds = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return {**{kind: config for kind in kinds}, "bind-address": self.address, "leader-elect": "false"}

    def kubelet_config(self):
        """A nearly full disk neither evicts pods nor has the image removed, which no registry could bring back."""
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "address": self.address,
            "healthzBindAddress": self.address, "readOnlyPort": 0,
            "tlsCertFile": self.dir + "/kubelet.crt", "tlsPrivateKeyFile": self.dir + "/kubelet.key",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": self.dir + "/ca.crt"}},
            "authorization": {"mode": "Webhook"}, "containerRuntimeEndpoint": "unix://%s/containerd.sock" % self.dir,
            "cgroupDriver": "cgroupfs", "cgroupRoot": "/" + host.group_of(self.number), "failCgroupV1": False, "enforceNodeAllocatable": [],
            "failSwapOn": False, "makeIPTablesUtilChains": False, "maxOpenFiles": 100000, "maxPods": 250, "podLogsDir": self.dir + "/logs",
            "volumePluginDir": self.kubelet + "/volume-plugins", "imageGCHighThresholdPercent": 100, "resolvConf": "",
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }

    def start(self, name):
        with open(os.path.join(e2e.DIR, name + ".log"), "a") as log:
            self.processes[name] = subprocess.Popen(self.commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir)

    def stop(self, name, number=signal.SIGTERM):
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(e2e.PATIENCE)

    def restart(self, name, number=signal.SIGTERM):
        self.stop(name, number)
        self.start(name)

    # The API

    def attempt(self, *words, text=None):
        """(exit status, stdout, stderr) of kubectl"""
        command = [os.path.join(self.bin, "kubectl"), "--kubeconfig", self.config, *words]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=e2e.PATIENCE)
        return done.returncode, done.stdout, done.stderr

    def kubectl(self, *words, text=None):
        code, out, err = self.attempt(*words, text=text)
        e2e.equal(code, 0, "exit of kubectl %s: %s%s" % (" ".join(words), out, err))
        return out

    def get(self, *words):
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects):
        self.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def delete(self, *pods, namespace="default"):
        """Seconds until the pods are gone from the API, which is after kubelet has unpublished their volumes."""
        began = time.monotonic()
        self.kubectl("delete", "pod", "-n", namespace, "--timeout=%ds" % e2e.PATIENCE, *pods)
        return time.monotonic() - began

    def ready(self, *pods):
        self.kubectl("wait", "--for=condition=Ready", "--timeout=%ds" % e2e.PATIENCE, *["pod/" + name for name in pods])

    def finished(self, name):
        """What a pod printed that has succeeded."""
        self.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=%ds" % e2e.PATIENCE, "pod/" + name)
        return self.kubectl("logs", name)

    def event(self, pod, *texts):
        """An event of the pod with all these texts."""

        def find():
            events = self.get("events", "--field-selector=involvedObject.name=" + pod)["items"]
            return next((one["message"] for one in events if all(text in one["message"] for text in texts)), None)

        return e2e.poll(find, "an event of pod %s with %s" % (pod, texts))
