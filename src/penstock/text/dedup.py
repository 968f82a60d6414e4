"""Which items came before: exact, on disk, in bounded memory.

An item (a line, a document, a band of a MinHash) is a 128-bit hash and its place. Units write theirs sorted into 256
buckets by the top byte of the hash; a range of buckets is then resolved on its own, over all units. The answer does
not depend on how buckets are grouped or who resolves them. Two different texts share a 128-bit hash about once in
10^14 corpora of a trillion lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.shards.atomic import replacing

BUCKETS: Final = 256
_HEADER_BYTES: Final = 8 * (BUCKETS + 1)
ITEM_BYTES: Final = 20
"""On disk, for each item."""
WORKING_BYTES: Final = 80
"""In memory while resolving, for each item."""


@dataclass(frozen=True, slots=True)
class Items:
    """Hashes of items and their numbers in the unit that they come from."""

    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    number: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.low)


def joined_items(parts: Sequence[Items]) -> Items:
    """All of `parts`, one after the other."""
    if not parts:
        return Items(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint32))
    return Items(
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
        np.concatenate([part.number for part in parts]),
    )


def write_items(path: Path, items: Items) -> None:
    """Writes the items of a unit, bucket by bucket, in their order inside each."""
    bucket = (items.high >> np.uint64(56)).astype(np.uint8)
    order = np.argsort(bucket, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(bucket, minlength=BUCKETS))]).astype("<u8")
    with replacing(path, durable=False) as file:
        file.write(bounds.tobytes())
        for column, dtype in ((items.low, "<u8"), (items.high, "<u8"), (items.number, "<u4")):
            file.write(column[order].astype(dtype, copy=False).view(np.uint8).data)


def bucket_sizes(path: Path) -> NDArray[np.int64]:
    """How many items of a unit each bucket has."""
    bounds: NDArray[np.int64] = np.fromfile(path, "<u8", BUCKETS + 1).astype(np.int64)
    return bounds[1:] - bounds[:-1]


def read_items(path: Path, buckets: range) -> Items:
    """The items of a unit in a range of buckets."""
    bounds = np.fromfile(path, "<u8", BUCKETS + 1).astype(np.int64)
    total, first = int(bounds[-1]), int(bounds[buckets.start])
    count = int(bounds[buckets.stop]) - first

    def column(offset: int, dtype: str) -> NDArray[Any]:
        size = np.dtype(dtype).itemsize
        return np.fromfile(path, dtype, count, offset=_HEADER_BYTES + offset * total + first * size)

    return Items(column(0, "<u8"), column(8, "<u8"), column(16, "<u4"))


def earlier_equals(items: Items) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of all items that equal an earlier one, and the place of the first such item for each."""
    size = len(items)
    none = np.empty(0, np.int64)
    if size < 2:
        return none, none
    # One sort of plain integers: the top of the hash, then the place. Equal hashes end up side by side, in order.
    place_bits = np.uint64(int(size - 1).bit_length())
    keys = (items.low >> place_bits << place_bits) | np.arange(size, dtype=np.uint64)
    keys.sort()
    tops = keys >> place_bits
    # Every place after the first in a run of equal tops, and where that run starts.
    later = np.flatnonzero(tops[1:] == tops[:-1]) + 1
    if not len(later):
        return none, none
    continues = np.concatenate([[False], later[1:] == later[:-1] + 1])
    starts = np.maximum.accumulate(np.where(continues, 0, later - 1))
    mask = np.uint64((1 << int(place_bits)) - 1)
    members = (keys[later] & mask).astype(np.int64)
    firsts = (keys[starts] & mask).astype(np.int64)
    equal = (items.low[members] == items.low[firsts]) & (items.high[members] == items.high[firsts])
    if equal.all():
        return members, firsts
    # Different hashes with the same top: a handful in a billion. Look at their whole runs one by one.
    runs = np.isin(firsts, firsts[~equal])
    exact_members, exact_firsts = _told_apart(items, members[runs], firsts[runs])
    return np.concatenate([members[~runs], exact_members]), np.concatenate([firsts[~runs], exact_firsts])


def _told_apart(
    items: Items, members: NDArray[np.int64], firsts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same answer for runs that hold more than one hash."""
    places = np.union1d(members, firsts)
    found = _first_of_each(items, places)
    return places[found != places], found[found != places]


def _first_of_each(items: Items, members: NDArray[np.int64]) -> NDArray[np.int64]:
    seen: dict[tuple[int, int], int] = {}
    return np.array([seen.setdefault((int(items.low[m]), int(items.high[m])), int(m)) for m in members], np.int64)


def bucket_ranges(sizes: NDArray[np.int64], max_items: int) -> list[range]:
    """Ranges of buckets with about `max_items` items each, all buckets in exactly one."""
    ranges: list[range] = []
    start, held = 0, 0
    for bucket, size in enumerate(sizes.tolist()):
        if held and held + size > max_items:
            ranges.append(range(start, bucket))
            start, held = bucket, 0
        held += size
    ranges.append(range(start, len(sizes)))
    return ranges


def write_drops(path: Path, units: NDArray[np.int64], numbers: NDArray[np.uint32], num_units: int) -> None:
    """Writes which items of which unit are dropped, so that each unit finds its own at once."""
    order = np.argsort(units, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(units, minlength=num_units))]).astype("<u8")
    with replacing(path, durable=False) as file:
        file.write(np.array([num_units], "<u8").tobytes())
        file.write(bounds.tobytes())
        file.write(numbers[order].astype("<u4").tobytes())


def read_drops(paths: Sequence[Path], unit: int) -> NDArray[np.uint32]:
    """The numbers of the dropped items of one unit."""
    found = [np.empty(0, np.uint32)]
    for path in paths:
        num_units = int(np.fromfile(path, "<u8", 1)[0])
        start, stop = np.fromfile(path, "<u8", 2, offset=8 * (1 + unit)).astype(np.int64).tolist()
        found.append(np.fromfile(path, "<u4", stop - start, offset=8 * (num_units + 2) + 4 * start))
    return np.concatenate(found)
