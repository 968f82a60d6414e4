"""In which order one pass goes over the rows of a dataset.

`FullShuffle` mixes everything with everything. `WindowShuffle` is for data of which only a part is at hand at a time:
it takes the shards in random order and mixes the rows of as many of them as fit a window. Each pass has an order of
its own, and shows every row exactly once.
"""

from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.order.permute import mixed, mixed_many, permuted, permuted_one


class Shuffle(Protocol):
    """A bijection on the rows of a dataset, for each pass."""

    def rows(self, index: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Which rows stand at the places `index` of the pass."""
        ...

    def row(self, index: int, epoch: int) -> int:
        """The same for one place."""
        ...


class NoShuffle:
    """Rows as they lie on disk."""

    def rows(self, index: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        return index

    def row(self, index: int, epoch: int) -> int:
        return index


class FullShuffle:
    """Any row anywhere."""

    def __init__(self, num_rows: int, *, key: int) -> None:
        self._num_rows, self._key = num_rows, key

    def rows(self, index: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        return permuted(index, length=self._num_rows, key=mixed(self._key, epoch))

    def row(self, index: int, epoch: int) -> int:
        return permuted_one(index, length=self._num_rows, key=mixed(self._key, epoch))


class WindowShuffle:
    """Rows of a window of shards anywhere in the window; shards, and so windows, in random order."""

    def __init__(self, shard_rows: NDArray[np.int64], *, window_rows: int, key: int) -> None:
        self._shard_rows = np.asarray(shard_rows, np.int64)
        self._shard_starts = np.cumsum(self._shard_rows) - self._shard_rows
        self._window_rows, self._key = window_rows, key
        # A pass needs a table as long as the list of shards; two passes can be in use around the end of one.
        self._pass = lru_cache(maxsize=2)(self._made_pass)

    def windows(self, epoch: int) -> list[NDArray[np.int64]]:
        """The shards of each window of the pass, in the order in which windows come."""
        order, _, window_of_shard, _ = self._pass(epoch)
        cuts = np.flatnonzero(np.diff(window_of_shard)) + 1
        return np.split(order, cuts)

    def rows(self, index: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        order, ends, window_of_shard, window_starts = self._pass(epoch)
        window = window_of_shard[np.searchsorted(ends, index, side="right")]
        first = window_starts[window]
        keys = mixed_many(mixed(self._key, epoch), window + 1)
        place = first + permuted(index - first, length=window_starts[window + 1] - first, key=keys)
        at = np.searchsorted(ends, place, side="right")
        shard = order[at]
        found: NDArray[np.int64] = self._shard_starts[shard] + place - (ends[at] - self._shard_rows[shard])
        return found

    def row(self, index: int, epoch: int) -> int:
        return int(self.rows(np.array([index]), epoch)[0])

    def _made_pass(
        self, epoch: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        num_shards = len(self._shard_rows)
        order = permuted(np.arange(num_shards), length=num_shards, key=mixed(mixed(self._key, epoch), 0))
        rows = self._shard_rows[order]
        ends = np.cumsum(rows)
        window_of_shard = np.empty(num_shards, np.int64)
        starts = [0]
        filled = 0
        for at, count in enumerate(rows.tolist()):
            if filled and filled + count > self._window_rows:
                starts.append(int(ends[at]) - count)
                filled = 0
            filled += count
            window_of_shard[at] = len(starts) - 1
        starts.append(int(ends[-1]) if num_shards else 0)
        return order, ends, window_of_shard, np.array(starts, np.int64)
