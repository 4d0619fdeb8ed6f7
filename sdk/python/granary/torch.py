"""Announces what a sampler of PyTorch yields, to the mount that its files are on.

    sampler = granary.torch.Announcing(RandomSampler(data), data.samples)
    loader = DataLoader(data, batch_size=256, sampler=sampler, num_workers=8)

Works with any sampler and batch sampler, PyTorch's or not. Importing it needs no PyTorch.
"""

from __future__ import annotations

import array
import copy
import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ._paths import files_of, split
from .order import Order

if TYPE_CHECKING:
    Base = Iterable[Any]
else:
    try:
        from torch.utils.data import Sampler as Base
    except ImportError:
        Base = Iterable

PART = 1 << 20  # what the sampler yields is announced in parts of so many samples
STATE = "granary"  # marks a state of Announcing


def numbers_of(item: Any) -> list[int]:
    """The numbers of samples in what a sampler yields: a number, or a batch of them."""
    if hasattr(item, "tolist"):
        item = item.tolist()
    return [int(number) for number in item] if isinstance(item, (list, tuple)) else [int(item)]


def order_for(files: Any, root: str | os.PathLike[str] | None, strict: bool) -> Order:
    """An order of these files, in the mount of `root` or of the first file; relative ones begin at `root`, or here."""
    try:
        files = files_of(files)
        base = os.getcwd() if root is None else root
        below = base
        if root is None and len(files):
            below = os.path.dirname(os.path.join(base, os.fsdecode(split(files[0])[0])))
    except Exception as error:  # noqa: BLE001  bad files must not end a job
        return Order.refused(error, strict)
    order = Order(below, strict=strict, base=base)
    order.samples(files)
    return order


class Announcing(Base):
    """Yields what `sampler` yields, and announces it to the mount first.

    sampler  any sampler or batch sampler; all else that it has, as set_epoch(), is found here, too
    files    what the sampler's numbers select: the data set's files in its order, as a list of paths, (path, class) or
             (path, offset, length), an ImageFolder, or a Subset or ConcatDataset of some; or an Order with samples
    start    so many of what the first epoch yields are left out: a job that resumes
    root     a directory that relative paths begin at; None: the current one
    strict   raise errors of announcing, as Order does

    The sampler's epoch is drawn when its first item is asked for, or by announce(), 2^20 samples at a time. state_dict()
    has where the epoch began and how much of it was yielded; it resumes there, whatever was drawn ahead.
    """

    def __init__(
        self,
        sampler: Any,
        files: Any,
        *,
        start: int = 0,
        root: str | os.PathLike[str] | None = None,
        strict: bool = False,
    ) -> None:
        self.sampler = sampler
        self.order = files if isinstance(files, Order) else order_for(files, root, strict)
        self._start = start
        self._state: dict[str, Any] | None = None  # of the epoch that is yielded now
        self._resumed: dict[str, Any] | None = None  # to begin the next epoch with
        self._next: Iterator[Any] | None = None  # the next epoch, if it is announced already

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "sampler" not in self.__dict__:
            raise AttributeError(name)
        found = getattr(self.sampler, name)
        return functools.partial(self._set_epoch, found) if name == "set_epoch" else found

    def _set_epoch(self, set_epoch: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._undo()
        return set_epoch(*args, **options)

    def __iter__(self) -> Iterator[Any]:
        # A generator: nothing is drawn before the first item is asked for, as without it.
        epoch = self._next or self._begin()
        self._next = self._resumed = None
        self._start = 0
        yield from epoch
        self._state = None

    def announce(self) -> None:
        """Draws and announces the next epoch now, for a job that does something else first: makes its model, starts the
        workers of its loader, validates. Between epochs, after set_epoch() and load_state_dict()."""
        self._next = self._next or self._begin()

    def _begin(self) -> Iterator[Any]:
        """The next epoch's items, of which the first are announced."""
        state = self._resumed
        items: Any = iter(self.sampler)
        if state and state["iterator"] is not None:
            items.load_state_dict(state["iterator"])
        skip = state["yielded"] if state else self._start
        self._state = self._snapshot(items) if state is None else dict(state, yielded=0)
        epoch = self._announced(items, self._state, skip)
        next(epoch)
        return epoch

    def _undo(self) -> None:
        """What announce() has drawn is of another epoch than the one that comes next."""
        if self._next:
            self._next = self._state = None

    def close(self) -> None:
        """The mount forgets the order."""
        self.order.close()

    def _announced(self, items: Iterator[Any], state: dict[str, Any], skip: int) -> Iterator[Any]:
        """Yields None once the first items are announced, then each."""
        for _ in range(skip):
            next(items, None)
            state["yielded"] += 1
        ahead: deque[Any] = deque()
        counts: deque[int] = deque()
        numbers = array.array("I")
        done = 0  # of numbers
        ended = begun = False
        while True:
            if not ended and len(numbers) - done <= PART // 2:
                del numbers[:done]
                done = 0
                ended = self._draw(items, ahead, counts, numbers)
                self.order.announce(array.array("I", numbers))
            if not begun:
                begun = True
                yield None
            if not ahead:
                return
            done += counts.popleft()
            state["yielded"] += 1
            yield ahead.popleft()

    def _draw(self, items: Iterator[Any], ahead: deque[Any], counts: deque[int], numbers: array.array[int]) -> bool:
        """Until there is a part. True: the epoch has ended."""
        while len(numbers) < PART and len(ahead) < PART:
            try:
                item = next(items)
            except StopIteration:
                return True
            before = len(numbers)
            try:
                numbers.extend(numbers_of(item))
            except (TypeError, ValueError, OverflowError) as error:
                self.order.refuse(error)  # yielded all the same
            ahead.append(item)
            counts.append(len(numbers) - before)
        return False

    # ---- states

    def _snapshot(self, items: Any) -> dict[str, Any]:
        """Of a sampler that nothing of this epoch was drawn from."""
        parts = {"sampler": self.sampler, "iterator": items}
        states = {
            name: copy.deepcopy(part.state_dict()) if hasattr(part, "state_dict") else None
            for name, part in parts.items()
        }
        return {STATE: 1, "yielded": 0, **states}

    def state_dict(self) -> dict[str, Any]:
        """Where the next item is: what the sampler's state was when the epoch began, and how much was yielded since."""
        return dict(self._resumed or self._state or dict(self._snapshot(None), yielded=self._start))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes; also from a state of the sampler itself, as it was saved without Announcing."""
        self._undo()
        if STATE not in state:
            self.sampler.load_state_dict(state)
            return
        if state["sampler"] is not None:
            self.sampler.load_state_dict(state["sampler"])
        self._resumed = dict(state)
