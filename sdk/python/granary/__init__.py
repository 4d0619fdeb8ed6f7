"""Announce to a Granary mount in which order this job will read (docs/order.md). No dependencies.

    import granary.torch

    sampler = granary.torch.Announcing(sampler, files)    # any sampler of PyTorch, and its data set's files
    loader = DataLoader(data, batch_size=256, sampler=sampler)

    order = granary.announce("/mnt/imagenet", files)      # any other program: these, in this order
    ...
    order.close()

Reading needs none of this: the mount only fetches what comes next before it is read. No call raises or waits
for the mount.
"""

from ._wire import NoFeed, OrderError
from .order import Hits, Order, OrderWarning, announce

__all__ = ["Hits", "NoFeed", "Order", "OrderError", "OrderWarning", "announce"]
