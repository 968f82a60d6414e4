"""Rows of whole documents, packed best-fit-decreasing.

Every pass has the same rows by length, filled with other documents: those of one length change places.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.order.items import Items
from penstock.order.packing import BinClasses, packed_classes
from penstock.order.permute import mixed, mixed_many, permuted
from penstock.order.segments import TOKEN_COST, Segments, merged


class PackedRows:
    """The rows of a dataset: first those that a piece of a long document fills, then those that items share."""

    whole_documents = True

    def __init__(self, items: Items, shard_tokens: NDArray[np.int64], *, key: int) -> None:
        self.items = items
        self._shard_ends = np.cumsum(shard_tokens)
        self._shard_starts = self._shard_ends - shard_tokens
        self.seq_len = items.seq_len
        self._key = key
        self._classes: BinClasses = packed_classes(items.histogram, items.seq_len)
        self._offsets = np.cumsum(items.histogram) - items.histogram
        self._num_full = items.num_full_pieces
        self._row_ends = self._num_full + np.cumsum(self._classes.num_bins)
        self._row_starts = self._row_ends - self._classes.num_bins

    @property
    def num_rows(self) -> int:
        return self._num_full + self._classes.total_bins

    @property
    def num_tokens(self) -> int:
        return self.items.num_tokens

    @cached_property
    def _class_costs(self) -> NDArray[np.float64]:
        classes = self._classes
        length = classes.entry_length.astype(np.float64)
        costs = classes.entry_per_bin * (TOKEN_COST * length + length * length)
        return np.add.reduceat(costs, classes.entry_starts[:-1]) if len(costs) else costs

    def costs(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Known from a row's class alone."""
        found = np.full(len(rows), TOKEN_COST * self.seq_len + float(self.seq_len) ** 2)
        packed = np.flatnonzero(rows >= self._num_full)
        found[packed] = self._class_costs[np.searchsorted(self._row_ends, rows[packed], side="right")]
        return found

    def segments(self, rows: NDArray[np.int64], epoch: int) -> Segments:
        """The documents, and pieces of documents, in each row."""
        if not self._num_full:
            return self._shared(rows, np.arange(len(rows)), epoch)
        is_full = rows < self._num_full
        where = np.flatnonzero(~is_full)
        shared = self._shared(rows[where], where, epoch)
        if len(where) == len(rows):
            return shared
        alone = np.flatnonzero(is_full)
        return merged([self._full(rows[alone], alone), shared])[0]

    def _full(self, rows: NDArray[np.int64], where: NDArray[np.int64]) -> Segments:
        items = self.items
        document = np.searchsorted(items.long_ends, rows, side="right")
        before = np.where(document > 0, items.long_ends[document - 1], 0)
        start = items.long_starts[document] + (rows - before) * self.seq_len
        return self._in_shards(where, start, np.full(len(rows), self.seq_len), np.ones(len(rows), bool))

    def _shared(self, rows: NDArray[np.int64], where: NDArray[np.int64], epoch: int) -> Segments:
        classes = self._classes
        which = np.searchsorted(self._row_ends, rows, side="right")
        number = rows - self._row_starts[which]
        first_entry = classes.entry_starts[which]
        num_entries = classes.entry_starts[which + 1] - first_entry
        entry = runs(first_entry, num_entries)
        per_bin = classes.entry_per_bin[entry]
        number_of_bin: Any = np.repeat(number, num_entries)
        first_item = classes.entry_first[entry] + number_of_bin * per_bin
        item = runs(first_item, per_bin)
        length = np.repeat(classes.entry_length[entry], per_bin)
        row = np.repeat(np.repeat(where, num_entries), per_bin)
        keys = mixed_many(mixed(self._key, epoch), length)
        place = permuted(item, length=self.items.histogram[length], key=keys)
        start = self.items.starts[self._offsets[length] + place]
        return self._in_shards(row, start, length, np.zeros(len(row), bool))

    def _in_shards(
        self, row: NDArray[np.int64], start: NDArray[np.int64], length: NDArray[np.int64], goes_on: NDArray[np.bool_]
    ) -> Segments:
        shard = np.searchsorted(self._shard_ends, start, side="right")
        return Segments(row, shard, start - self._shard_starts[shard], length, goes_on)


def runs(first: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """`count[i]` numbers on from `first[i]`, for every i, end to end."""
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    numbers: NDArray[np.int64] = np.arange(total) + np.repeat(first - (ends - count), count)
    return numbers
