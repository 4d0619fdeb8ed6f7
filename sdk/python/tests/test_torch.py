"""What granary.torch.Announcing yields and announces: with samplers of the test's own, and with PyTorch's if installed."""

import copy
import errno
import os
import pickle
import random
import unittest
import warnings
from unittest import mock

import granary
import granary.torch
from granary.torch import Announcing

try:
    import torch
    from torch.utils import data
except ImportError:
    torch = None
try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    StatefulDataLoader = None


class Recorder(granary.Order):
    """An order that keeps what it is given."""

    def __init__(self):
        self.announced = []
        self.refused = []

    def announce(self, numbers=None):
        self.announced.append(list(numbers))

    def refuse(self, error):
        self.refused.append(error)


class Counting:
    """A sampler that counts what was drawn from it, in epochs of a seed."""

    def __init__(self, n, seed=0):
        self.n = n
        self.epoch = seed
        self.drawn = 0

    def __len__(self):
        return self.n

    def __iter__(self):
        order = list(range(self.n))
        random.Random(self.epoch).shuffle(order)
        for number in order[self.drawn :]:
            self.drawn += 1
            yield number
        self.drawn = 0
        self.epoch += 1

    def state_dict(self):
        return {"epoch": self.epoch, "drawn": self.drawn}

    def load_state_dict(self, state):
        self.epoch, self.drawn = state["epoch"], state["drawn"]


class StatefulIterator:
    def __init__(self, numbers):
        self.numbers = numbers
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.numbers):
            raise StopIteration
        self.at += 1
        return self.numbers[self.at - 1]

    def state_dict(self):
        return {"numbers": self.numbers, "at": self.at}

    def load_state_dict(self, state):
        self.numbers, self.at = state["numbers"], state["at"]


class Shuffling:
    """A new order each time that only its iterators know."""

    def __iter__(self):
        return StatefulIterator(random.sample(range(100), 20))


class AnnouncingTest(unittest.TestCase):
    def setUp(self):
        self.order = Recorder()

    def test_yields_what_it_announces(self):
        sampler = Announcing(Counting(50), self.order)
        epochs = [list(sampler) for _ in range(2)]
        self.assertEqual(epochs, self.order.announced)
        self.assertEqual(epochs, [list(plain) for plain in [Counting(50), Counting(50, seed=1)]])
        self.assertEqual(len(sampler), 50)
        self.assertEqual(sampler.epoch, 2)  # the sampler's own

    def test_nothing_is_drawn_early(self):
        plain = Counting(5)
        sampler = Announcing(plain, self.order)
        items = iter(sampler)
        self.assertEqual((plain.drawn, self.order.announced), (0, []))
        next(items)
        self.assertEqual(len(self.order.announced[0]), 5)

    def test_announced_early(self):
        """What announce() has drawn is what the next epoch yields."""
        plain = Counting(50)
        sampler = Announcing(plain, self.order, start=3)
        for epoch, rest in ((0, list(Counting(50))[3:]), (1, list(Counting(50, seed=1)))):
            sampler.announce()
            sampler.announce()  # it is
            self.assertEqual(self.order.announced[epoch:], [rest])
            state = sampler.state_dict()
            self.assertEqual((state["yielded"], state["sampler"]), (3 - 3 * epoch, {"epoch": epoch, "drawn": 0}))
            self.assertEqual(list(sampler), rest)
        self.assertEqual(len(self.order.announced), 2)

    def test_another_epoch_than_announced(self):
        class Epochs(Counting):
            def set_epoch(self, epoch):
                self.epoch, self.drawn = epoch, 0

        sampler = Announcing(Epochs(20), self.order, start=5)
        sampler.announce()
        sampler.set_epoch(epoch=7)
        state = {"granary": 1, "yielded": 5, "sampler": {"epoch": 7, "drawn": 0}, "iterator": None}
        self.assertEqual(sampler.state_dict(), state)
        self.assertEqual(list(sampler), list(Counting(20, seed=7))[5:])
        self.assertEqual(self.order.announced[-1], list(Counting(20, seed=7))[5:])
        self.assertFalse(hasattr(Announcing(range(3), self.order), "set_epoch"))

    def test_resumed_after_announced(self):
        stopped = Announcing(Counting(30, seed=2), self.order)
        items = iter(stopped)
        seen = [next(items) for _ in range(11)]
        sampler = Announcing(Counting(30), self.order)
        sampler.announce()
        sampler.load_state_dict(stopped.state_dict())
        sampler.announce()
        self.assertEqual(sampler.state_dict(), stopped.state_dict())
        self.assertEqual(seen + list(sampler), list(Counting(30, seed=2)))
        self.assertEqual(len(list(sampler)), 30)

    def test_batches(self):
        batches = [[3, 1], (2, 0), [7]]
        sampler = Announcing(batches, self.order)
        self.assertEqual(list(sampler), batches)
        self.assertEqual(self.order.announced, [[3, 1, 2, 0, 7]])

    def test_start(self):
        sampler = Announcing(Counting(10), self.order, start=7)
        self.assertEqual(list(sampler), list(Counting(10))[7:])
        self.assertEqual(self.order.announced, [list(Counting(10))[7:]])
        self.assertEqual(len(list(sampler)), 10)
        self.assertEqual(list(Announcing(Counting(10), self.order, start=11)), [])

    def test_parts(self):
        """An epoch longer than a part; and one without an end."""
        with mock.patch.object(granary.torch, "PART", 8):
            self.assertEqual(list(Announcing(range(100), self.order)), list(range(100)))
            announced = self.order.announced
            self.assertEqual(announced[:2], [list(range(8)), list(range(4, 12))])
            self.assertEqual(sorted({n for part in announced for n in part}), list(range(100)))
            self.assertLessEqual(max(map(len, announced)), 8)
            items = iter(Announcing(iter(int, 1), self.order))
            self.assertEqual([next(items) for _ in range(1000)], [0] * 1000)
            items = iter(Announcing(iter(str, 1), self.order))
            self.assertEqual([next(items) for _ in range(1000)], [""] * 1000)

    def test_not_numbers(self):
        items = ["a", 3, None, -1, 2.0]
        self.assertEqual(list(Announcing(items, self.order)), items)
        self.assertEqual(self.order.announced, [[3, 2]])
        self.assertEqual(len(self.order.refused), 3)

    def check_resumed(self, make, stop, start=0):
        sampler = make()
        items = iter(sampler)
        for _ in range(stop):
            next(items)
        state = pickle.loads(pickle.dumps(sampler.state_dict()))
        rest = list(items)
        again = make()
        again.load_state_dict(state)
        self.assertEqual(again.state_dict(), state)
        items = iter(again)
        self.assertEqual([next(items), next(items)], rest[:2])
        self.assertEqual(again.state_dict()["yielded"], start + stop + 2)
        self.assertEqual(list(items), rest[2:])
        self.assertEqual(self.order.announced[-1], rest)
        return sampler, again

    def test_state_of_a_sampler(self):
        sampler, again = self.check_resumed(lambda: Announcing(Counting(30), self.order), 11)
        self.assertEqual(list(sampler), list(again))  # the next epoch

    def test_state_of_an_iterator(self):
        self.check_resumed(lambda: Announcing(Shuffling(), self.order), 5)

    def test_state_without_one(self):
        self.check_resumed(lambda: Announcing(range(20), self.order), 6)
        self.check_resumed(lambda: Announcing(range(20), self.order, start=4), 6, start=4)

    def test_state_before_the_first(self):
        sampler = Announcing(range(20), self.order, start=4)
        self.assertEqual(sampler.state_dict()["yielded"], 4)

    def test_state_of_a_job_without_announcing(self):
        plain = Counting(30)
        items = iter(plain)
        for _ in range(9):
            next(items)
        sampler = Announcing(Counting(30), self.order)
        sampler.load_state_dict(copy.deepcopy(plain.state_dict()))
        self.assertEqual(list(sampler), list(items))

    def test_without_a_mount(self):
        """Announcing over files of no mount, or of none at all: a warning, and the sampler's numbers."""
        os.environ["GRANARY_SOCKET"] = "/nowhere"
        self.addCleanup(os.environ.pop, "GRANARY_SOCKET")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for files in ([("a/b", 1), ("a/c", 0)], [], [os.path.abspath("x")]):
                sampler = Announcing([1, 0], files)
                self.assertEqual(list(sampler), [1, 0])
                sampler.order.wait(60)
                sampler.close()
        self.assertEqual([w.category for w in warned], [granary.OrderWarning] * 3)

    def test_bad_files(self):
        """One warning, and the sampler's numbers. Items of a data set are not read to look for paths among them."""
        read = []

        class Images:  # as a Dataset of PyTorch: no __iter__
            def __len__(self):
                return 5

            def __getitem__(self, number):
                read.append(number)
                return object()

        class Decoded(Images):
            def __iter__(self):
                return map(self.__getitem__, range(len(self)))

        class Subset:
            dataset, indices = Images(), [0]

        for files, reads in ((7, 0), (None, 0), ([7], 0), ([()], 0), (Images(), 0), (Subset(), 0), (Decoded(), 1)):
            read.clear()
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                sampler = Announcing([1, 0], files)
                self.assertEqual(list(sampler), [1, 0])
                self.assertFalse(sampler.order.wait(0))
                sampler.close()
            self.assertEqual([w.category for w in warned], [granary.OrderWarning], files)
            self.assertIn("nothing is announced", str(warned[0].message))
            self.assertEqual(len(read), reads, files)
            with self.assertRaises((TypeError, IndexError)):
                Announcing([1, 0], files, strict=True)

    def test_no_current_directory(self):
        """It was removed: relative files have no place."""
        with mock.patch("os.getcwd", side_effect=FileNotFoundError(errno.ENOENT, "No such file or directory")):
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                self.assertEqual(list(Announcing([1, 0], ["a", "b"])), [1, 0])
        self.assertEqual([w.category for w in warned], [granary.OrderWarning])


@unittest.skipUnless(torch, "no PyTorch: pip install torch")
class TorchTest(unittest.TestCase):
    def setUp(self):
        self.order = Recorder()

    def loaded(self, sampler=None, **options):
        """The epoch of a DataLoader over 0..99, with the default generator seeded."""
        torch.manual_seed(7)
        loader = data.DataLoader(range(100), sampler=sampler, **options)
        return torch.cat([batch.flatten() for batch in loader]).tolist()

    def test_samplers(self):
        """Each gives what it gives without Announcing, also those that draw from the default generator."""
        weights = [1.0 + n % 3 for n in range(100)]
        for make in (
            lambda: data.SequentialSampler(range(100)),
            lambda: data.RandomSampler(range(100)),
            lambda: data.RandomSampler(range(100), replacement=True, num_samples=70),
            lambda: data.SubsetRandomSampler(range(10, 40)),
            lambda: data.WeightedRandomSampler(weights, 80),
            lambda: data.DistributedSampler(range(100), 3, 1, seed=4),
        ):
            for workers in (0, 2):
                expected = self.loaded(make(), batch_size=8, num_workers=workers)
                self.order.announced.clear()
                found = self.loaded(Announcing(make(), self.order), batch_size=8, num_workers=workers)
                self.assertEqual(found, expected)
                self.assertEqual(self.order.announced, [expected])

    def test_batch_sampler(self):
        def make():
            return data.BatchSampler(data.RandomSampler(range(100)), 8, drop_last=True)

        expected = self.loaded(batch_sampler=make(), num_workers=2)
        self.assertEqual(len(expected), 96)
        self.assertEqual(self.loaded(batch_sampler=Announcing(make(), self.order), num_workers=2), expected)
        self.assertEqual(self.order.announced, [expected])

    def test_distributed_epochs(self):
        sampler = Announcing(data.DistributedSampler(range(100), 2, 0), self.order)
        self.assertIsInstance(sampler, data.Sampler)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            list(sampler)
        self.assertNotEqual(*self.order.announced)

    def test_tensors(self):
        items = [torch.tensor(3), torch.tensor([1, 2])]
        self.assertEqual(len(list(Announcing(items, self.order))), 2)
        self.assertEqual(self.order.announced, [[3, 1, 2]])

    def test_files(self):
        files = granary.torch.files_of(data.Subset(data.ConcatDataset([["a", "b"], ["c"]]), torch.tensor([2, 0])))
        self.assertEqual(files, ["c", "a"])

    @unittest.skipUnless(StatefulDataLoader, "no torchdata: pip install torchdata")
    def test_stateful_loader(self):
        def make():
            generator = torch.Generator()
            generator.manual_seed(3)
            sampler = Announcing(data.RandomSampler(range(100), generator=generator), self.order)
            return StatefulDataLoader(range(100), batch_size=8, sampler=sampler, num_workers=0)

        loader = make()
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        state = loader.state_dict()
        rest = [batch.tolist() for batch in batches]
        again = make()
        again.load_state_dict(state)
        self.assertEqual([batch.tolist() for batch in again], rest)


if __name__ == "__main__":
    unittest.main()
