"""Other file systems for S3, each with its cache on and the settings that its documents advise for many reads in parallel.

s3fs and rclone are Debian's. The others take part when a variable has the path of their program; JuiceFS has objects of its own,
which import_juicefs() makes.
"""

import os
import shutil
import subprocess
import time

import dataset

NAMES = ("s3fs", "rclone")
PROGRAMS = {  # of the others: variable, and the program as its makers call it
    "mountpoint": ("BENCH_MOUNTPOINT_S3", "mount-s3"),
    "geesefs": ("BENCH_GEESEFS", "geesefs"),
    "juicefs": ("BENCH_JUICEFS", "juicefs"),
}
READY_SECONDS = 30
JUICEFS_VOLUME = "juicefs"  # its objects have this prefix

SETTINGS = {
    "s3fs": "ro,kernel_cache,parallel_count=16,multireq_max=64,max_stat_cache_size=1000000,stat_cache_expire=36000,"
    "enable_noobj_cache",
    "rclone": "--vfs-cache-mode full --vfs-fast-fingerprint --read-only --dir-cache-time 10h --attr-timeout 10h "
    "--vfs-read-chunk-size 8M --no-modtime",
    "mountpoint": "--read-only --metadata-ttl indefinite --max-threads 64",
    "geesefs": "-o ro --memory-limit 4000 --list-type 2 --no-checksum --no-detect --stat-cache-ttl 10h",
    "juicefs": "--read-only --attr-cache 36000 --entry-cache 36000 --dir-entry-cache 36000 --open-cache 36000 "
    "--max-downloads 200 --cache-size 20480 --no-usage-report",
}


def others():
    """{name: program} of those that a variable names."""
    return {name: os.environ[variable] for name, (variable, _) in PROGRAMS.items() if os.environ.get(variable)}


def command(bench, name, endpoint, bucket, prefix, cache):
    """What mounts it in the foreground; the mountpoint is bench.path(name). prefix: of the keys, ends with '/', or ''."""
    directory = bench.path(name)
    settings = SETTINGS[name].split()
    if name == "s3fs":
        options = "url=%s,use_path_request_style,use_cache=%s,%s" % (endpoint, cache, settings[0])
        return ["s3fs", (bucket + ":/" + prefix.rstrip("/")) if prefix else bucket, directory, "-f", "-o", options]
    if name == "rclone":
        with open(bench.path("rclone.conf"), "w") as f:
            f.write("[b]\ntype=s3\nprovider=Ceph\nendpoint=%s\nenv_auth=true\nregion=us-east-1\n" % endpoint)
        return ["rclone", "mount", "b:%s/%s" % (bucket, prefix), directory, "--config", f.name, "--cache-dir", cache] + settings
    program = others()[name]
    if name == "mountpoint":
        os.makedirs(cache, exist_ok=True)
        within = ["--prefix", prefix] if prefix else []
        place = ["--endpoint-url", endpoint, "--force-path-style", "--region", "us-east-1", "--cache", cache]
        return [program, bucket, directory, "--foreground"] + place + within + settings
    if name == "geesefs":
        place = ["--endpoint", endpoint, "--region", "us-east-1", "--cache", cache]
        return [program, "-f"] + place + settings + ["%s:%s" % (bucket, prefix), directory]
    within = ["--subdir", "/" + prefix.rstrip("/")] if prefix else []
    return [program, "mount", "--cache-dir", cache] + within + settings + [juicefs_database(bench), directory]


def foreground(bench, name, argv, directory):
    """Starts what mounts in the foreground, and waits for the mount."""
    os.makedirs(directory, exist_ok=True)
    environment = bench.marked(name)
    environment.pop("AWS_CA_BUNDLE", None)  # rclone does not start with one it cannot read
    log = bench.path(name + ".log")
    with open(log, "ab") as f:
        child = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=f, stderr=f)
    deadline = time.monotonic() + READY_SECONDS
    while not os.path.ismount(directory):
        if time.monotonic() > deadline or child.poll() is not None:
            child.kill()
            child.wait()
            with open(log, errors="replace") as f:
                raise RuntimeError("%s did not mount: %s" % (name, f.read()[-500:]))
        time.sleep(0.01)
    bench.children.append(child)
    bench.others.append(directory)


def mount(bench, name, endpoint, bucket, prefix=""):
    foreground(bench, name, command(bench, name, endpoint, bucket, prefix, bench.path(name + ".cache")), bench.path(name))
    return bench.path(name)


def umount(bench, name, forget=False):
    """With forget its cache goes too."""
    directory = bench.path(name)
    bench.others.remove(directory)
    subprocess.run(["umount", "-l", directory], timeout=60, check=False)
    child = next(c for c in reversed(bench.children) if directory in c.args)
    bench.children.remove(child)
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()  # geesefs can wait for ever for the mount that is gone
        child.wait()
    if forget:
        shutil.rmtree(directory + ".cache", ignore_errors=True)


def mount_all(bench, endpoint, bucket):
    return {name: mount(bench, name, endpoint, bucket) for name in NAMES}


def umount_all(bench):
    for name in NAMES:
        umount(bench, name)


def juicefs_database(bench):
    return "sqlite3://" + bench.path("juicefs.db")


def import_juicefs(bench, endpoint, bucket, directory, sizes):
    """Writes {key: size} into a new volume, whose objects are files below `directory` first and read from the bucket then."""
    program = others()["juicefs"]
    database = juicefs_database(bench)
    place = ["--storage", "file", "--bucket", directory + "/"]
    bench.run(program, "-q", "format", *place, "--trash-days", "0", database, JUICEFS_VOLUME)
    into = bench.path("juicefs")
    argv = [program, "mount", "--no-usage-report", "--cache-dir", into + ".cache", database, into]
    foreground(bench, "juicefs", argv, into)
    for key, size in sizes.items():
        os.makedirs(os.path.join(into, os.path.dirname(key)), exist_ok=True)
        with open(os.path.join(into, key), "wb") as f:
            for at in range(0, size, 64 << 20):
                f.write(dataset.content(key, min(size - at, 64 << 20), offset=at))
    umount(bench, "juicefs", forget=True)
    bench.run(
        program, "-q", "config", database, "--storage", "s3", "--bucket", "%s/%s" % (endpoint, bucket), "--access-key",
        bench.environment["AWS_ACCESS_KEY_ID"], "--secret-key", bench.environment["AWS_SECRET_ACCESS_KEY"], "--force", "--yes",
    )  # fmt: skip
