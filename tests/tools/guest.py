"""Guests: virtual machines with one of Debian's kernels and this machine's files, read-only, for tests of what this machine's kernel
does not have. Used by tests/kernels and tests/rdma."""

import glob
import lzma
import os
import shutil
import subprocess
import tempfile

INIT = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "kernels/init")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Which of this machine's archives has it, by a release of it that this machine uses, and the suite there.
SUITES = {
    "5.10": ("bookworm-security", "bullseye-security"),
    "6.1": ("bookworm", "bookworm"),
    "6.12": ("bookworm", "bookworm-backports"),
}
MODULES = (
    "virtio_pci virtio_blk 9pnet_virtio 9p overlay virtio_console virtio_rng crc32c_generic ext4 fuse erofs loop"
    " crc32_generic dummy ib_uverbs rdma_rxe"
).split()
NEEDED = ("qemu-system-x86_64", "busybox", "cpio", "depmod", "modprobe", "mkfs.ext4", "apt-get", "dpkg-deb")
DISK_BYTES = 512 << 20


def missing(more=()):
    """Why there can be no guest here; None: there can."""
    names = [name for name in NEEDED + tuple(more) if not shutil.which(name)]
    if names:
        return "not here: %s (deploy/install-packages kernels)" % " ".join(names)
    if os.uname().machine != "x86_64" or os.geteuid() != 0:
        return "needs root on an x86-64 machine"
    return None


def run(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise OSError("%s: %s" % (command[0], last))
    return done.stdout


# ---- kernels ---------------------------------------------------------------------------------------------------------


def archive(release):
    """Where this machine has the release from."""
    for line in run("apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)").splitlines():
        if line.split()[0] == release:
            return line.split()[1]
    raise OSError("apt-get: this machine uses no archive of %s" % release)


def fetch(name, directory):
    """The package of the newest kernel of a suite, by an apt of its own, so that this machine's is as before."""
    for part in ("lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(directory, part))
    with open(directory + "/sources.list", "w") as f:
        release, suite = SUITES[name]
        f.write("deb [signed-by=%s] %s %s main\n" % (KEYRING, archive(release), suite))
    options = []
    for key, value in (
        ("Dir::Etc::sourcelist", directory + "/sources.list"),
        ("Dir::Etc::sourceparts", "/dev/null"),
        ("Dir::State::lists", directory + "/lists"),
        ("Dir::Cache", directory + "/cache"),
        ("APT::Sandbox::User", "root"),
        ("Acquire::Languages", "none"),
    ):
        options += ["-o", "%s=%s" % (key, value)]
    run("apt-get", *options, "-qq", "update", timeout=300)
    depends = run("apt-cache", *options, "depends", "linux-image-amd64")
    package = [line.split()[-1] for line in depends.splitlines() if "Depends: linux-image-" in line][0]
    run("apt-get", *options, "-qq", "download", package, cwd=directory, timeout=600)
    return glob.glob(directory + "/*.deb")[0]


def unpacked(vmlinuz):
    """The kernel itself, which starts sooner than its unpacker in an emulated machine; or what there is."""
    data = open(vmlinuz, "rb").read()
    at = data.find(b"\xfd7zXZ\0")
    while at >= 0:
        try:
            kernel = lzma.LZMADecompressor().decompress(data[at:])
            if kernel[:4] == b"\x7fELF":
                return kernel
        except lzma.LZMAError:
            pass
        at = data.find(b"\xfd7zXZ\0", at + 1)
    return data


def modules(top, version):
    """Paths of the modules of MODULES and what they need, in the order of loading."""
    paths = []
    for module in MODULES:
        shown = subprocess.run(
            ["modprobe", "-d", top, "-S", version, "--show-depends", module], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ).stdout
        for line in shown.splitlines():
            if line.startswith("insmod ") and line.split()[1] not in paths:
                paths.append(line.split()[1])
    return paths


def make_initrd(top, version, path):
    with tempfile.TemporaryDirectory() as root:
        for part in ("bin", "mod", "proc", "sys", "dev", "lower", "rw", "new"):
            os.mkdir(os.path.join(root, part))
        shutil.copy(shutil.which("busybox"), root + "/bin/busybox")
        shutil.copy(INIT, root + "/init")
        for number, module in enumerate(modules(top, version)):
            data = open(module, "rb").read()
            name = os.path.basename(module)
            if name.endswith(".xz"):
                data, name = lzma.decompress(data), name[:-3]
            with open("%s/mod/%03d-%s" % (root, number, name), "wb") as f:
                f.write(data)
        names = subprocess.run(["find", "."], cwd=root, stdout=subprocess.PIPE).stdout
        with open(path, "wb") as f:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names, stdout=f, check=True)


def kernel(name, store):
    """A directory with a kernel and its initrd, made when it is not there, or was made for other modules. OSError, IndexError or
    subprocess.SubprocessError: it cannot be had."""
    place = os.path.join(store, name)
    wanted = " ".join(MODULES)
    try:
        if open(place + "/modules").read() == wanted:
            return place
    except OSError:
        pass
    os.makedirs(store, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store) as work:
        package = fetch(name, work)
        run("dpkg-deb", "-x", package, work + "/root")
        version = os.listdir(work + "/root/lib/modules")[0]
        run("depmod", "-b", work + "/root", version)
        os.mkdir(work + "/made")
        make_initrd(work + "/root", version, work + "/made/initrd")
        with open(work + "/made/vmlinux", "wb") as f:
            f.write(unpacked(glob.glob(work + "/root/boot/vmlinuz-*")[0]))
        with open(work + "/made/modules", "w") as f:
            f.write(wanted)
        shutil.rmtree(place, ignore_errors=True)
        os.rename(work + "/made", place)
    return place


# ---- guests ----------------------------------------------------------------------------------------------------------


def boot(place, share, seconds, accel, append="", memory=1024):
    """Boots the guest, which runs SHARE/guest and powers itself off; its exit status, or None."""
    disk = share + ".disk"
    with open(disk, "wb") as f:
        f.truncate(DISK_BYTES)
    run("mkfs.ext4", "-q", "-F", disk)
    command = ["qemu-system-x86_64", "-accel", accel, "-cpu", "host" if accel == "kvm" else "max"]
    command += ("-smp 2 -m %d -M q35 -nodefaults -no-user-config -display none -no-reboot" % memory).split()
    command += ["-kernel", place + "/vmlinux", "-initrd", place + "/initrd"]
    command += ["-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr " + append]
    command += ["-serial", "file:%s/console" % share]
    command += ["-device", "virtio-rng-pci", "-drive", "file=%s,if=none,id=d,format=raw,cache=unsafe" % disk]
    command += ["-device", "virtio-blk-pci,drive=d"]
    for number, tag, path, mode in ((0, "host", "/", "readonly=on,"), (1, "share", share, "")):
        command += ["-fsdev", "local,id=f%d,path=%s,security_model=none,%smultidevs=remap" % (number, path, mode)]
        command += ["-device", "virtio-9p-pci,fsdev=f%d,mount_tag=%s" % (number, tag)]
    try:
        with open(share + "/qemu", "wb") as log:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        os.unlink(disk)
    try:
        return int(open(share + "/status").read())
    except (OSError, ValueError):
        return None


def tail(path, lines):
    with open(path, encoding="utf-8", errors="replace") as f:
        return "".join("      " + line for line in f.readlines()[-lines:])


def copy_program(path, share):
    """A program without what only a debugger reads: the guest fetches it through an emulated machine."""
    os.makedirs(share + "/bin", exist_ok=True)
    run("strip", "-o", "%s/bin/%s" % (share, os.path.basename(path)), path)
