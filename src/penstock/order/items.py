"""Documents as items to pack: the piece of each that shares a row, sorted by length.

Takes the ends of documents shard by shard and keeps one number for each: where in the stream its item begins.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

LongDocuments = Literal["split", "truncate", "drop"]
"""What happens to documents longer than a row."""

_BLOCK: Final = 1 << 16
"""Documents that are sorted at once."""


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a dataset. A document longer than a row leaves full pieces, one to a row, and a shorter rest."""

    seq_len: int
    histogram: NDArray[np.int64]
    """How many items there are of each length up to `seq_len`."""
    starts: NDArray[np.int64]
    """Where each item begins in the stream: by length, and in the order of the stream within one length."""
    long_starts: NDArray[np.int64]
    """Where each document with full pieces begins."""
    long_ends: NDArray[np.int64]
    """How many full pieces there are up to and with each of these documents."""
    num_documents: int
    num_long: int
    """Documents longer than a row."""
    num_lost_tokens: int
    """Cut off or dropped."""

    @property
    def num_full_pieces(self) -> int:
        return int(self.long_ends[-1]) if len(self.long_ends) else 0

    @property
    def num_tokens(self) -> int:
        """In items and full pieces together."""
        lengths = np.arange(len(self.histogram))
        return int((self.histogram * lengths).sum()) + self.num_full_pieces * self.seq_len


def sorted_items(
    shards: Callable[[], Iterable[NDArray[np.int64]]], *, seq_len: int, long_documents: LongDocuments = "split"
) -> Items:
    """The items of a dataset; `shards` gives the document ends of each shard, and is asked twice."""
    histogram = np.zeros(seq_len + 1, np.int64)
    num_documents = num_long = num_lost = 0
    long_starts: list[NDArray[np.int64]] = []
    num_full: list[NDArray[np.int64]] = []
    for ends, lengths in _blocks(shards()):
        rests, is_long = _rests(lengths, seq_len, long_documents)
        histogram += np.bincount(rests, minlength=seq_len + 1)
        num_documents += len(lengths)
        num_long += len(is_long)
        if long_documents == "split":
            long_starts.append(ends[is_long] - lengths[is_long])
            num_full.append((lengths[is_long] - 1) // seq_len)
        elif len(is_long):
            kept = seq_len if long_documents == "truncate" else 0
            num_lost += int((lengths[is_long] - kept).sum())
    histogram[0] = 0
    none = np.empty(0, np.int64)
    return Items(
        seq_len,
        histogram,
        _sorted_starts(shards(), histogram, seq_len, long_documents),
        np.concatenate([none, *long_starts]),
        np.cumsum(np.concatenate([none, *num_full])),
        num_documents,
        num_long,
        num_lost,
    )


def _blocks(shards: Iterable[NDArray[np.int64]]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Where documents end in the stream, and their lengths, as many at a time as the caches hold."""
    base = 0
    for shard in shards:
        for first in range(0, len(shard), _BLOCK):
            ends = shard[first : first + _BLOCK] + base
            lengths = np.empty_like(ends)
            lengths[0] = ends[0] - (shard[first - 1] if first else 0) - base
            np.subtract(ends[1:], ends[:-1], out=lengths[1:])
            yield ends, lengths
        base += int(shard[-1]) if len(shard) else 0


def _rests(
    lengths: NDArray[np.int64], seq_len: int, long_documents: LongDocuments
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The length of each document's item, 0 where it has none, and which documents are longer than a row."""
    is_long = np.flatnonzero(lengths > seq_len)
    rests = lengths
    if len(is_long):
        rests = lengths.copy()
        if long_documents == "split":
            rests[is_long] = (lengths[is_long] - 1) % seq_len + 1
        else:
            rests[is_long] = seq_len if long_documents == "truncate" else 0
    return rests, is_long


def _sorted_starts(
    shards: Iterable[NDArray[np.int64]],
    histogram: NDArray[np.int64],
    seq_len: int,
    long_documents: LongDocuments,
) -> NDArray[np.int64]:
    starts = np.empty(int(histogram.sum()), np.int64)
    free = np.cumsum(histogram) - histogram
    # Length and place in one small number: sorting those is several times faster than sorting places by length.
    bits = (_BLOCK - 1).bit_length()
    narrow: Any = np.uint32 if seq_len.bit_length() + bits <= 32 else np.uint64
    places = np.arange(_BLOCK, dtype=narrow)
    for ends, lengths in _blocks(shards):
        rests, is_long = _rests(lengths, seq_len, long_documents)
        item_starts = ends - lengths
        if long_documents == "split" and len(is_long):
            item_starts[is_long] = ends[is_long] - rests[is_long]
        keys = rests.astype(narrow)
        keys <<= narrow(bits)
        keys |= places[: len(keys)]
        keys.sort()
        order = keys & narrow((1 << bits) - 1)
        counts = np.bincount(rests, minlength=seq_len + 1)
        if counts[0]:
            # Documents that have no item come first.
            order = order[counts[0] :]
            counts[0] = 0
        # Where the items of each length go, less where they stand in this block.
        shift = free - (np.cumsum(counts) - counts)
        starts[np.repeat(shift, counts) + np.arange(len(order))] = item_starts[order]
        free += counts
    return starts
