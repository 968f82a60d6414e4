"""Second stage: which lines and documents of the whole corpus are duplicates.

Works on hashes only, a range of buckets at a time. The first occurrence in the order of the inputs is kept.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.text.dedup import Items, earlier_equals, joined_items, read_drops, read_items, write_drops
from penstock.text.gather import read_pieces
from penstock.text.minhash import BINS, similarity

_PAIRS_AT_ONCE = 1 << 14


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolveJob:
    """A range of buckets over all units."""

    buckets: range
    units: tuple[Path, ...]
    """For each unit, the path of its results without a suffix."""
    out: Path
    dead_documents: Path | None = None
    """Documents that are dropped already: their lines do not count."""


def resolve_equals(job: ResolveJob, suffix: str) -> None:
    """Writes which items, lines or documents, to drop because an earlier one is equal."""
    units, items = _all_items(job, suffix)
    later, _ = earlier_equals(items)
    # In the order of the corpus, so that they lie together unit by unit.
    later.sort()
    write_drops(job.out, units[later], items.number[later], len(job.units))


def resolve_near(job: ResolveJob, threshold: float) -> NDArray[np.int64]:
    """Pairs of documents that are nearly the same: rows of unit, document, unit, document."""
    units, items = _all_items(job, ".near-items")
    later, first = earlier_equals(items)
    # Besides the first of its bucket, each is compared with the one before it: buckets can hold two families.
    order = np.lexsort((later, first))
    neighbours = np.flatnonzero(first[order][1:] == first[order][:-1])
    right = np.concatenate([later, later[order][neighbours + 1]])
    left = np.concatenate([first, later[order][neighbours]])
    pairs = np.stack([units[left], items.number[left], units[right], items.number[right]], axis=1).astype(np.int64)
    pairs = np.unique(pairs, axis=0)
    maps = [_signatures(path) for path in job.units]
    good = np.zeros(len(pairs), bool)
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        some = pairs[start : start + _PAIRS_AT_ONCE]
        a = np.stack([maps[unit][document] for unit, document in some[:, :2]])
        b = np.stack([maps[unit][document] for unit, document in some[:, 2:]])
        good[start : start + _PAIRS_AT_ONCE] = similarity(a, b) >= threshold
    return pairs[good]


def near_duplicates(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The documents to drop, as rows of unit and document: all but the first of each family of near-duplicates."""
    documents, flat = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    edges = flat.reshape(-1, 2)
    family = np.arange(len(documents))
    # Rows of `documents` are in the order of the corpus, so the smallest label is the first document.
    while True:
        smallest = np.minimum(family[edges[:, 0]], family[edges[:, 1]])
        before = family.copy()
        np.minimum.at(family, edges[:, 0], smallest)
        np.minimum.at(family, edges[:, 1], smallest)
        family = family[family]
        if np.array_equal(before, family):
            later: NDArray[np.int64] = documents[family != np.arange(len(documents))]
            return later


def _all_items(job: ResolveJob, suffix: str) -> tuple[NDArray[np.int64], Items]:
    found: list[Items] = []
    sizes: list[int] = []
    for number, path in enumerate(job.units):
        whole = Path(f"{path}{suffix}.open")
        items = read_items(whole if whole.exists() else Path(f"{path}{suffix}"), job.buckets)
        if job.dead_documents is not None and suffix == ".line-items":
            items = _of_living(items, path, read_drops([job.dead_documents], number))
        found.append(items)
        sizes.append(len(items))
    return np.repeat(np.arange(len(sizes)), sizes), joined_items(found)


def _of_living(items: Items, path: Path, dead: NDArray[np.uint32]) -> Items:
    if not len(dead):
        return items
    pieces = read_pieces(Path(f"{path}.pieces"))
    piece_of_line = np.searchsorted(np.cumsum(pieces.num_lines), items.number, side="right")
    alive = ~np.isin(pieces.documents[piece_of_line], dead)
    return Items(items.low[alive], items.high[alive], items.number[alive])


def _signatures(path: Path) -> NDArray[np.uint32]:
    file = Path(f"{path}.signatures")
    if file.stat().st_size == 0:
        return np.empty((0, BINS), np.uint32)
    return np.memmap(file, np.uint32, "r").reshape(-1, BINS)
