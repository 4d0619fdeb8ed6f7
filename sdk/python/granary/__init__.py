"""Tell a Granary mount in which order this job will read (docs/order.md). No dependencies; copy the folder, or pip install it.

    import granary

    order = granary.Order("/mnt/imagenet")
    order.samples(files)                          # once: the data set's files, in its own order
    for epoch in range(90):
        order.epoch(epoch, rank=rank, world=8)    # as torch.utils.data.DistributedSampler(..., shuffle=True, seed=0)
        ...

An order is forgotten when it is closed, and with its process. Reading needs none of this: an order only makes the mount fetch
what comes next before it is asked for.
"""

from .order import NoFeed, Order, OrderError, announce
from .sampler import Sampler, randperm

__all__ = ["NoFeed", "Order", "OrderError", "Sampler", "announce", "randperm"]
