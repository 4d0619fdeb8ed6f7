"""The orders of PyTorch's samplers, to the number, without PyTorch.

randperm() is torch.randperm(n, generator=g) of a CPU generator g after g.manual_seed(seed); Sampler is
torch.utils.data.DistributedSampler. Checked against PyTorch's own numbers: tests/vectors.json.
"""

import random

LARGE = 0xFFFFFFFF // 20  # from here on torch.randperm() goes another way
WORDS = 624


def generator(seed):
    """MT19937 as init_genrand() of its authors seeds it; torch uses 32 bits of the seed. Python's own seeds it otherwise."""
    word = seed & 0xFFFFFFFF
    state = [word]
    for i in range(1, WORDS):
        word = (1812433253 * (word ^ (word >> 30)) + i) & 0xFFFFFFFF
        state.append(word)
    made = random.Random()
    made.setstate((3, tuple(state) + (WORDS,), None))
    return made


def randperm_small(n, seed):
    word = generator(seed).getrandbits
    out = list(range(n))
    for i in range(n - 1):
        other = i + word(32) % (n - i)
        out[i], out[other] = out[other], out[i]
    return out


def randperm_large(n, seed):
    word = generator(seed).getrandbits
    out = [0] * n
    for i in range(n):
        upper = word(32)  # the first is the upper half
        other = (upper << 32 | word(32)) % (i + 1)
        out[i] = i
        out[i] = out[other]
        out[other] = i
    return out


def randperm(n, seed):
    return randperm_small(n, seed) if n < LARGE else randperm_large(n, seed)


class Sampler:
    """The numbers of the samples that a rank reads, epoch by epoch: as torch.utils.data.DistributedSampler."""

    def __init__(self, n, world=1, rank=0, shuffle=True, seed=0, drop_last=False):
        if not 0 <= rank < world:
            raise ValueError("rank %d is not one of %d" % (rank, world))
        self.n = n
        self.world = world
        self.rank = rank
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.n // self.world if self.drop_last else -(-self.n // self.world)

    def __iter__(self):
        order = randperm(self.n, self.seed + self.epoch) if self.shuffle else range(self.n)
        return iter([order[(k * self.world + self.rank) % self.n] for k in range(len(self))])
