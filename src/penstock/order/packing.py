"""Best-fit-decreasing on a histogram of lengths.

Items of one length are alike, so a hundred million of them are placed in as many steps as there are lengths times
kinds of bins: the bins are those that placing items one by one would give, and nobody ever walks over the items.
"""

import gc
from bisect import bisect_left, insort
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class BinClasses:
    """Bins by what is in them. Bin `b` of class `c` holds, for each of its entries, `per_bin` items of one length:
    those numbered `first + b * per_bin` and on, among the items of that length."""

    num_bins: NDArray[np.int64]
    """Of each class."""
    entry_starts: NDArray[np.int64]
    """Where each class's entries begin; one more at the end."""
    entry_length: NDArray[np.int64]
    entry_per_bin: NDArray[np.int64]
    entry_first: NDArray[np.int64]

    @property
    def total_bins(self) -> int:
        return int(self.num_bins.sum())


class _Group:
    """Bins with the same content so far: length, items in a bin and number of the first item, over and over.

    Plain numbers in one list take less time and room than an object for each entry.
    """

    __slots__ = ("count", "entries")

    def __init__(self, count: int, entries: list[int]) -> None:
        self.count = count
        self.entries = entries

    def split_off(self, count: int) -> "_Group":
        """The first `count` bins, as a group of their own."""
        taken = _Group(count, self.entries.copy())
        entries = self.entries
        for at in range(0, len(entries), 3):
            entries[at + 2] += count * entries[at + 1]
        self.count -= count
        return taken


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Nothing made meanwhile goes in circles; in a process with torch, looking for it takes longer than the work."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_no_collecting()
def packed_classes(histogram: NDArray[np.int64], capacity: int) -> BinClasses:
    """Items, `histogram[length]` of each length from 1 to `capacity`, in bins of `capacity`.

    As many bins as best-fit-decreasing takes item by item: of the bins with room, the fullest gets the next item.
    """
    groups: dict[int, list[_Group]] = {}
    rooms: list[int] = []
    full: list[_Group] = []

    def put(room: int, group: _Group) -> None:
        if room == 0:
            full.append(group)
        elif room in groups:
            groups[room].append(group)
        else:
            groups[room] = [group]
            insort(rooms, room)

    for length in np.flatnonzero(histogram)[::-1].tolist():
        left = int(histogram[length])
        first = 0
        while left:
            at = bisect_left(rooms, length)
            if at == len(rooms):
                room, group = capacity, _Group(-(-left // (capacity // length)), [])
            else:
                room = rooms[at]
                group = groups[room].pop()
                if not groups[room]:
                    del groups[room]
                    del rooms[at]
            # A bin that took one such item is the fullest that can take another: it takes all it has room for.
            per_bin = min(room // length, left)
            whole = min(group.count, left // per_bin)
            if whole < group.count:
                rest, group = group, group.split_off(whole)
                put(room, rest)
            group.entries += (length, per_bin, first)
            first += whole * per_bin
            left -= whole * per_bin
            put(room - per_bin * length, group)

    every = full + [group for room in rooms for group in groups[room]]
    every = [group for group in every if group.count]
    sizes = [len(group.entries) // 3 for group in every]
    entries = np.array([number for group in every for number in group.entries], np.int64).reshape(-1, 3)
    return BinClasses(
        np.array([group.count for group in every], np.int64),
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64),
        entries[:, 0].copy(),
        entries[:, 1].copy(),
        entries[:, 2].copy(),
    )
