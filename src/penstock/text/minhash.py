"""Documents that are nearly the same.

One-permutation MinHash: each run of 24 bytes that starts a word is hashed once, and each of 128 bins keeps its
smallest hash. The share of bins in which two documents agree estimates how much text they share. Sixteen bands of
eight bins find the candidates, which are then compared on all bins. Deterministic: no random numbers at run time.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.text.dedup import Items

BINS: Final = 128
BANDS: Final = 16
EMPTY: Final = np.uint32(0xFFFFFFFF)
_SHINGLE_BYTES: Final = 24
_FEWEST: Final = 16
"""A document with fewer shingles says too little to be called a near-duplicate."""
_MIX: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))
_FINAL: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_IS_BLANK: Final = np.isin(np.arange(256), [9, 10, 13, 32])


@dataclass(frozen=True, slots=True)
class Signatures:
    """The smallest hash in every bin, a row for each document; EMPTY where no shingle fell."""

    bins: NDArray[np.uint32]
    num_shingles: NDArray[np.int64]


def signatures(texts: list[str]) -> Signatures:
    """The signature of each text. That of a text in pieces is the minimum over its pieces."""
    data = [text.encode().lower() for text in texts]
    sizes = np.array([len(one) for one in data], np.int64)
    buffer = np.frombuffer(b"".join(data) + bytes(_SHINGLE_BYTES + 8), np.uint8)
    ends = np.cumsum(sizes)
    is_blank = _IS_BLANK[buffer]
    starts_word = ~is_blank
    starts_word[1:] &= is_blank[:-1]
    starts_word[(ends - sizes)[sizes > 0]] = True
    places = np.flatnonzero(starts_word[: int(ends[-1]) if len(ends) else 0])
    document = np.searchsorted(ends, places, side="right")
    fits = places + _SHINGLE_BYTES <= ends[document] if len(places) else np.empty(0, bool)
    places, document = places[fits], document[fits]

    # Eight bytes at any place, read as one integer.
    words = np.ndarray((len(buffer) - 7,), "<u8", buffer, strides=(1,))
    hashes = np.zeros(len(places), np.uint64)
    for step, factor in zip(range(0, _SHINGLE_BYTES, 8), _MIX, strict=True):
        hashes = _mixed((hashes ^ words[places + step]) * factor)
    bins = np.full((len(texts), BINS), EMPTY, np.uint32)
    slot = document * BINS + (hashes >> np.uint64(57)).astype(np.int64)
    np.minimum.at(bins.reshape(-1), slot, (hashes >> np.uint64(24)).astype(np.uint32))
    return Signatures(bins, np.bincount(document, minlength=len(texts)).astype(np.int64))


def band_items(found: Signatures) -> Items:
    """What candidates are found by: one item for each band of each document that has enough text."""
    able = np.flatnonzero(found.num_shingles >= _FEWEST)
    dense = _dense(found.bins[able])
    rows = dense.reshape(len(able), BANDS, BINS // BANDS).astype(np.uint64)
    low = np.broadcast_to(np.arange(BANDS, dtype=np.uint64) * _MIX[0], rows.shape[:2]).copy()
    high = low ^ _MIX[1]
    for row in range(BINS // BANDS):
        low = _mixed((low ^ rows[:, :, row]) * _MIX[1])
        high = _mixed((high + rows[:, :, row]) * _MIX[2])
    number = np.repeat(able.astype(np.uint32), BANDS)
    return Items(low.reshape(-1), high.reshape(-1), number)


def similarity(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> NDArray[np.float64]:
    """The estimated share of shingles that the documents of each pair of rows have in common."""
    used = (a != EMPTY) | (b != EMPTY)
    equal = (a == b) & used
    return np.asarray(equal.sum(1) / np.maximum(used.sum(1), 1), np.float64)


def _dense(bins: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Empty bins borrow from the next full one, so that short documents can still meet in a band."""
    dense = bins.copy()
    for step in range(1, BINS):
        empty = dense == EMPTY
        if not empty.any():
            break
        borrowed = np.roll(bins, -step, axis=1)
        take = empty & (borrowed != EMPTY)
        dense[take] = borrowed[take] + np.uint32(step)
    return dense


def _mixed(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _FINAL[0]
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _FINAL[1]
    return hashes ^ (hashes >> np.uint64(33))
