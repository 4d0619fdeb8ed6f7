"""Which files of the mount the samples of a job are: what data sets look like, and paths as jobs write them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ._wire import BODY_MAX, SAMPLE

DIRECTORIES_MAX = 65536  # resolved directories that are remembered


def is_path(item: Any) -> bool:
    return isinstance(item, (str, bytes, os.PathLike))


def is_sample(item: Any) -> bool:
    """A path, or a tuple that begins with one."""
    return is_path(item) or (isinstance(item, (tuple, list)) and bool(item) and is_path(item[0]))


def files_of(data: Any) -> Sequence[Any]:
    """The samples of a list, of torchvision's ImageFolder, and of PyTorch's Subset and ConcatDataset of those.

    TypeError for a data set without a list of files. An item of it is a decoded file, so one at most is read."""
    if is_path(data):
        return [data]
    if hasattr(data, "indices") and hasattr(data, "dataset"):
        files = files_of(data.dataset)
        return [files[i] for i in data.indices]
    if hasattr(data, "datasets"):
        return [file for part in data.datasets for file in files_of(part)]
    if hasattr(data, "samples"):
        return files_of(data.samples)
    if isinstance(data, (list, tuple)):
        return data
    if not hasattr(data, "__iter__"):  # as data sets of PyTorch
        raise TypeError("%s has no list of files: pass its paths" % type(data).__name__)
    files = []
    for item in data:
        if not is_sample(item):
            raise TypeError("%s has items of type %s, not paths" % (type(data).__name__, type(item).__name__))
        files.append(item)
    return files


def split(sample: Any) -> tuple[Any, int, int]:
    """Path, offset and length of a path, a (path, class) or a (path, offset, length)."""
    if not isinstance(sample, (tuple, list)):
        return sample, 0, 0
    if len(sample) == 3:
        return sample[0], int(sample[1]), int(sample[2])
    return sample[0], 0, 0


class Paths:
    """Finds the path below the mount at `root` of each path of a job; relative ones begin at `base`."""

    def __init__(self, root: str, base: str) -> None:
        self.root = os.fsencode(root).rstrip(b"/") + b"/"
        self.base = os.fsencode(base)
        self.directories: dict[bytes, bytes] = {}

    def _real_directory(self, directory: bytes) -> bytes:
        real = self.directories.get(directory)
        if real is None:
            if len(self.directories) >= DIRECTORIES_MAX:
                self.directories.clear()
            real = os.path.join(os.path.normpath(directory), b"")
            if not real.startswith(self.root):
                real = os.path.join(os.path.realpath(directory), b"")  # a link; the mount itself has none
            self.directories[directory] = real
        return real

    def find(self, path: Any) -> bytes:
        """b"": the file is not below the mount. A path that is written as below it is not looked up: that would wait
        for the mount."""
        path = os.path.join(self.base, os.fsencode(path))
        directory, name = os.path.split(path)
        if name in (b"", b".", b".."):
            return b""
        real = self._real_directory(directory) + name
        if not real.startswith(self.root):
            real = os.path.realpath(real)  # a link to one file
        return real[len(self.root) :] if real.startswith(self.root) else b""

    def _below(self, known: dict[str, bytes | None], directory: str) -> bytes | None:
        """What comes before the names of a directory's files; None: it is not below the mount, and links are looked up."""
        if len(known) >= DIRECTORIES_MAX:
            known.clear()
        real = self._real_directory(os.path.join(self.base, os.fsencode(directory + "/")))
        known[directory] = real[len(self.root) :] if real.startswith(self.root) else None
        return known[directory]

    def _rows(self, samples: Iterable[Any]) -> Iterator[bytes]:
        """Each sample as a list has it. Files of one directory follow one another in most lists."""
        known: dict[str, bytes | None] = {}
        encoding, errors = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
        for sample in samples:
            path, offset, length = (sample, 0, 0) if type(sample) is str else split(sample)
            below = None
            if type(path) is str:
                directory, slash, name = path.rpartition("/")
                if slash and name not in ("", ".", ".."):
                    below = known[directory] if directory in known else self._below(known, directory)
                    below = None if below is None else below + name.encode(encoding, errors)
            if below is None:
                below = self.find(path)
            yield SAMPLE.pack(offset, length, len(below)) + below

    def blocks(self, samples: Iterable[Any]) -> Iterator[bytes]:
        """The bodies of the messages that hold the list."""
        rows: list[bytes] = []
        size = 0
        for row in self._rows(samples):
            size += len(row)
            if size > BODY_MAX:
                yield b"".join(rows)
                rows, size = [], len(row)
            rows.append(row)
        yield b"".join(rows)
