"""Orders against what PyTorch itself made (vectors.json)."""

import json
import os
import struct
import unittest
import zlib

from granary import Sampler, randperm
from granary.sampler import randperm_large

with open(os.path.join(os.path.dirname(__file__), "vectors.json"), encoding="utf-8") as f:
    VECTORS = json.load(f)


def crc(numbers):
    return zlib.crc32(struct.pack("<%dI" % len(numbers), *numbers))


class SamplerTest(unittest.TestCase):
    def test_randperm(self):
        self.assertGreater(len(VECTORS["randperm"]), 20)
        for row in VECTORS["randperm"]:
            if row["n"] > 100000:
                continue  # the same as test_order_sampler.c, which is quicker
            order = randperm(row["n"], row["seed"])
            self.assertEqual(order[: len(row["head"])], row["head"])
            self.assertEqual(crc(order), row["crc32"], row)

    def test_sampler(self):
        self.assertGreater(len(VECTORS["sampler"]), 300)
        for row in VECTORS["sampler"]:
            sampler = Sampler(row["n"], row["world"], row["rank"], row["shuffle"], row["seed"], row["drop_last"])
            sampler.set_epoch(row["epoch"])
            order = list(sampler)
            self.assertEqual(len(sampler), row["count"])
            self.assertEqual(order[:8], row["head"])
            self.assertEqual(crc(order), row["crc32"], row)

    def test_large_way(self):
        self.assertEqual(sorted(randperm_large(1000, 3)), list(range(1000)))
        # As test_order_sampler.c has it.
        self.assertEqual(randperm_large(10, 5489), [7, 4, 6, 5, 3, 1, 2, 8, 9, 0])

    def test_ranks_share_everything(self):
        read = [number for rank in range(3) for number in Sampler(10, 3, rank)]
        self.assertEqual(len(read), 12)
        self.assertEqual(set(read), set(range(10)))


if __name__ == "__main__":
    unittest.main()
