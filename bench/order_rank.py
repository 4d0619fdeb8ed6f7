#!/usr/bin/python3
"""The job of the scenario `loader`: order_rank.py OPTIONS, eight ranks with a DataLoader of PyTorch each. Prints JSON: seconds of each rank.

Runs under a Python that has PyTorch (SDK_PYTHON). The ranks are forked from one process, so that PyTorch is loaded once.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
import warnings

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "sdk", "python"))

import torch  # noqa: E402
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset  # noqa: E402

import granary.torch  # noqa: E402


class Files(Dataset):
    def __init__(self, files, reads):
        self.samples = files
        self.reads = reads  # shared with the workers; 0: starting

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        if not self.reads.value:
            return 1
        with open(self.samples[number], "rb", buffering=0) as f:
            return len(f.readall())


class Switched:
    """A sampler that yields a few numbers first, so that the loader's workers have started before anything is read."""

    def __init__(self, starting, sampler):
        self.starting = starting
        self.sampler = sampler

    def __iter__(self):
        starting, self.starting = self.starting, None
        return iter(range(starting) if starting else self.sampler)


def shuffled(count, seed):
    generator = torch.Generator()
    generator.manual_seed(seed)
    return torch.randperm(count, generator=generator).tolist()


def run_rank(options, files, rank, barrier, results):
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than processors: they wait, mostly
    reads = multiprocessing.Value("b", 0)
    data = Files(files, reads)
    part = Subset(data, shuffled(len(files), 1000 + options.seed)[: options.samples])  # the same in every rank
    sampler = DistributedSampler(part, options.ranks, rank, seed=options.seed)
    if options.mode in ("announced", "early"):
        sampler = granary.torch.Announcing(sampler, part)
    if options.mode == "early":
        sampler.announce()
    if options.mode == "wrong":  # the rank's share of the whole data set, in another order
        wrong = granary.torch.Announcing(DistributedSampler(data, options.ranks, rank, seed=options.seed + 1), data)
    switched = Switched(options.workers * 2 * options.batch, sampler)
    loader = DataLoader(part, options.batch, sampler=switched, num_workers=options.workers, persistent_workers=True)
    for _ in loader:
        pass
    barrier.wait()
    reads.value = 1
    if options.mode == "wrong":
        next(iter(wrong))
    waits = []
    began = asked = time.monotonic()
    for batch in loader:
        waits.append(time.monotonic() - asked)
        if int(batch.min()) < 2:
            raise RuntimeError("a file was not read")
        time.sleep(options.compute / 1000 * len(batch))
        asked = time.monotonic()
    results[rank] = {"seconds": asked - began, "waits": waits}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", required=True, help="a file with a path per line")
    parser.add_argument("--mode", required=True, choices=("none", "announced", "early", "wrong"))
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True, help="of all ranks")
    parser.add_argument("--compute", type=float, required=True, help="milliseconds per sample")
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    with open(options.list, encoding="utf-8") as f:
        files = f.read().splitlines()
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(options.ranks)
    with fork.Manager() as manager:
        results = manager.dict()
        ranks = [fork.Process(target=run_rank, args=(options, files, n, barrier, results)) for n in range(options.ranks)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        if any(rank.exitcode for rank in ranks):
            sys.exit("a rank failed")
        print(json.dumps([results[n] for n in range(options.ranks)]))


main()
