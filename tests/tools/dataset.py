"""Deterministic data sets: bytes as a function of the key, the same that s3d makes up (tests/tools/s3d.h)."""

import hashlib

KiB = 1 << 10
MiB = 1 << 20

_LENGTH = 1048583
_noise = hashlib.shake_128(b"granary s3d").digest(_LENGTH)
_noise = _noise + _noise  # a slice never wraps


def content(key, size, offset=0, version=0):
    """Bytes [offset, offset + size) of the object `key`; another version has other bytes."""
    seed = key if version == 0 else "%s\n%d" % (key, version)
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little")
    start = (start + offset) % _LENGTH
    if size <= _LENGTH:
        return _noise[start : start + size]
    block = _noise[start : start + _LENGTH]
    return (block * (size // _LENGTH + 1))[:size]


def small_files(count, size=110 * KiB, prefix="", per_directory=100):
    """{key: size} of many files of about `size` bytes in nested folders."""
    keys = {}
    for i in range(count):
        directory = i // per_directory
        key = "%sclass-%02d/set-%03d/img-%06d.jpg" % (prefix, directory % 10, directory, i)
        keys[key] = size + (i * 7919) % 2048 - 1024 if size > 4096 else size
    return keys


def large_files(count, size=64 * MiB, prefix=""):
    return {"%sshards/shard-%05d.tar" % (prefix, i): size for i in range(count)}


def odd_keys(prefix=""):
    """Keys that a careless client gets wrong, all of which a file system can name."""
    long_part = "n" * 255
    keys = [
        "a b c.txt",
        "100%.txt",
        "%41.txt",
        "plus+plus.txt",
        "question?mark.txt",
        "and&and=is.txt",
        "hash#hash.txt",
        "semi;colon,comma.txt",
        "quote'\"quote.txt",
        "<angle>.txt",
        "back\\slash.txt",
        "star*[x]{y}.txt",
        "tilde~dollar$at@excl!.txt",
        "grün/日本語/файл.txt",
        "emoji-\U0001f680.bin",
        ".hidden",
        "..two-dots",
        " leading-blank",
        "trailing-blank ",
        "deep/" + "/".join(str(i) for i in range(60)) + "/leaf",
        long_part,
    ]
    keys.append("/".join(["k" * 200] * 4 + ["k" * (1024 - len(prefix) - 4 * 201)]))
    sizes = {prefix + key: 100 + 37 * i for i, key in enumerate(keys)}
    sizes[prefix + "empty.bin"] = 0
    sizes[prefix + "one.bin"] = 1
    sizes[prefix + "block.bin"] = 4096
    sizes[prefix + "block-and-one.bin"] = 4097
    sizes[prefix + "piece.bin"] = 64 * KiB
    sizes[prefix + "mib.bin"] = MiB
    sizes[prefix + "mib-and-one.bin"] = MiB + 1
    return sizes


def objects(sizes, version=0):
    """What S3.put_many() takes."""
    return [(key, lambda key=key, size=size: content(key, size, version=version)) for key, size in sizes.items()]
