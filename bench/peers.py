"""s3fs and rclone, mounted with their caches on."""

import os
import subprocess
import time

NAMES = ("s3fs", "rclone")
READY_SECONDS = 30


def mount_s3fs(bench, endpoint, bucket):
    directory = bench.path("s3fs")
    os.makedirs(directory)
    with open(bench.path("s3fs.key"), "w") as f:
        os.chmod(f.name, 0o600)
        f.write("%s:%s" % (bench.environment["AWS_ACCESS_KEY_ID"], bench.environment["AWS_SECRET_ACCESS_KEY"]))
    bench.run(
        "s3fs", bucket, directory, "-o",
        "url=%s,use_path_request_style,passwd_file=%s,use_cache=%s,ro,parallel_count=16,max_stat_cache_size=100000,"
        "kernel_cache,stat_cache_expire=36000" % (endpoint, bench.path("s3fs.key"), bench.path("s3fs.cache")),
        environment=bench.marked("s3fs"),
    )  # fmt: skip
    return directory


def mount_rclone(bench, endpoint, bucket):
    directory = bench.path("rclone")
    os.makedirs(directory)
    with open(bench.path("rclone.conf"), "w") as f:
        f.write(
            "[b]\ntype=s3\nprovider=Ceph\nendpoint=%s\naccess_key_id=%s\nsecret_access_key=%s\n"
            % (endpoint, bench.environment["AWS_ACCESS_KEY_ID"], bench.environment["AWS_SECRET_ACCESS_KEY"])
        )
    environment = bench.marked("rclone")
    environment.pop("AWS_CA_BUNDLE", None)  # it does not start with one it cannot read
    child = subprocess.Popen(
        [
            "rclone", "mount", "b:" + bucket, directory, "--config", bench.path("rclone.conf"), "--cache-dir",
            bench.path("rclone.cache"), "--vfs-cache-mode", "full", "--read-only", "--dir-cache-time", "10h",
            "--attr-timeout", "10h", "--vfs-read-chunk-size", "8M", "--no-modtime",
        ],
        env=environment,
    )  # fmt: skip
    bench.children.append(child)
    deadline = time.monotonic() + READY_SECONDS
    while not os.path.ismount(directory):
        if time.monotonic() > deadline:
            raise RuntimeError("rclone did not mount")
        time.sleep(0.05)
    return directory


def mount_all(bench, endpoint, bucket):
    return {"s3fs": mount_s3fs(bench, endpoint, bucket), "rclone": mount_rclone(bench, endpoint, bucket)}


def umount_all(bench):
    for name in NAMES:
        if os.path.ismount(bench.path(name)):
            subprocess.run(["umount", "-l", bench.path(name)], timeout=60, check=False)
