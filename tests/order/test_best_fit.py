"""Rows of whole documents: every token once in every pass, in other packs in another."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.order import items as items_module
from penstock.order.best_fit import PackedRows, runs
from penstock.order.items import Items, LongDocuments, sorted_items
from penstock.order.segments import TOKEN_COST

Shards = list[list[int]]
"""The lengths of the documents of each shard."""

SHARDS = st.lists(st.lists(st.integers(1, 60) | st.integers(1, 5), max_size=25), min_size=1, max_size=5).filter(any)
WAYS = st.sampled_from(["split", "truncate", "drop"])


def ends_of(shards: Shards) -> Callable[[], list[NDArray[np.int64]]]:
    return lambda: [np.cumsum(np.array(lengths, np.int64)) for lengths in shards]


def items_of(shards: Shards, seq_len: int, long_documents: LongDocuments = "split") -> Items:
    return sorted_items(ends_of(shards), seq_len=seq_len, long_documents=long_documents)


def rows_of(shards: Shards, seq_len: int, long_documents: LongDocuments = "split", key: int = 1) -> PackedRows:
    tokens = np.array([sum(lengths) for lengths in shards], np.int64)
    return PackedRows(items_of(shards, seq_len, long_documents), tokens, key=key)


def documents_of(shards: Shards) -> list[tuple[int, int]]:
    """Start in the stream and length of every document."""
    lengths = [length for one in shards for length in one]
    starts = np.cumsum(lengths) - lengths
    return list(zip(starts.tolist(), lengths, strict=True))


@given(SHARDS, st.integers(1, 40), WAYS)
@settings(max_examples=150)
def test_items_account_for_every_token(shards: Shards, seq_len: int, way: LongDocuments) -> None:
    items = items_of(shards, seq_len, way)
    documents = documents_of(shards)
    total = sum(length for _, length in documents)
    long = [(start, length) for start, length in documents if length > seq_len]
    assert items.num_documents == len(documents)
    assert items.num_long == len(long)
    assert items.num_tokens + items.num_lost_tokens == total
    expected_loss = {
        "split": 0,
        "truncate": sum(length - seq_len for _, length in long),
        "drop": sum(length for _, length in long),
    }
    assert items.num_lost_tokens == expected_loss[way]
    if way != "split":
        assert items.num_full_pieces == 0


@given(SHARDS, st.integers(1, 40), WAYS)
@settings(max_examples=150)
def test_items_are_the_documents_sorted_by_length_and_then_by_place(
    shards: Shards, seq_len: int, way: LongDocuments
) -> None:
    items = items_of(shards, seq_len, way)
    expected: list[tuple[int, int]] = []
    full: list[int] = []
    for start, length in documents_of(shards):
        if length <= seq_len:
            expected.append((length, start))
        elif way == "split":
            pieces = -(-length // seq_len)
            full += [start + piece * seq_len for piece in range(pieces - 1)]
            expected.append((length - (pieces - 1) * seq_len, start + (pieces - 1) * seq_len))
        elif way == "truncate":
            expected.append((seq_len, start))
    lengths = np.repeat(np.arange(seq_len + 1), items.histogram).tolist()
    assert list(zip(lengths, items.starts.tolist(), strict=True)) == sorted(expected)
    ends = items.long_ends.tolist()
    counts = np.diff(ends, prepend=0).tolist() if ends else []
    starts = items.long_starts.tolist()
    found = [start + piece * seq_len for start, count in zip(starts, counts, strict=True) for piece in range(count)]
    assert found == full


@given(SHARDS, st.integers(1, 40), WAYS, st.integers(1, 9))
@settings(max_examples=100)
def test_items_are_the_same_however_many_documents_are_sorted_at_once(
    shards: Shards, seq_len: int, way: LongDocuments, at_once: int
) -> None:
    expected = items_of(shards, seq_len, way)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(items_module, "_BLOCK", at_once)
        found = items_of(shards, seq_len, way)
    for name in Items.__slots__:
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def test_a_row_may_be_longer_than_16_bits_can_count() -> None:
    shards = [[70_000, 3, 65_536, 65_537], [1, 200_000]]
    rows = rows_of(shards, 100_000)
    total = sum(map(sum, shards))
    assert covered(rows, shards, 0) == Counter(range(total))
    assert rows.items.histogram.nonzero()[0].tolist() == [1, 3, 65_536, 65_537, 70_000, 100_000]


def covered(rows: PackedRows, shards: Shards, epoch: int, which: NDArray[np.int64] | None = None) -> Counter[int]:
    """How often each token of the stream is in the rows of a pass. Checks that rows hold together on the way."""
    asked = np.arange(rows.num_rows) if which is None else which
    found = rows.segments(asked, epoch)
    assert (np.diff(found.row) >= 0).all()
    assert (found.length > 0).all()
    filled = np.bincount(found.row, weights=found.length, minlength=len(asked))
    assert (filled <= rows.seq_len).all()
    assert (filled > 0).all()
    sizes = np.array([sum(lengths) for lengths in shards])
    assert (found.start >= 0).all()
    assert (found.start + found.length + found.goes_on <= sizes[found.shard]).all(), "past the end of its shard"
    bases = np.cumsum(sizes) - sizes
    return Counter(runs(bases[found.shard] + found.start, found.length).tolist())


@given(SHARDS, st.integers(1, 40), st.integers(0, 2**64 - 1), st.integers(0, 5))
@settings(max_examples=150)
def test_every_pass_shows_every_token_exactly_once(shards: Shards, seq_len: int, key: int, epoch: int) -> None:
    rows = rows_of(shards, seq_len, key=key)
    total = sum(map(sum, shards))
    assert rows.num_tokens == total
    assert covered(rows, shards, epoch) == Counter(range(total))


@given(SHARDS, st.integers(1, 40), st.sampled_from(["truncate", "drop"]), st.integers(0, 5))
@settings(max_examples=100)
def test_what_is_cut_off_or_dropped_is_shown_by_no_pass(
    shards: Shards, seq_len: int, way: LongDocuments, epoch: int
) -> None:
    rows = rows_of(shards, seq_len, way)
    kept = seq_len if way == "truncate" else 0
    expected: Counter[int] = Counter()
    for start, length in documents_of(shards):
        expected.update(range(start, start + (length if length <= seq_len else kept)))
    assert covered(rows, shards, epoch) == expected


@given(SHARDS, st.integers(1, 40))
@settings(max_examples=100)
def test_a_segment_is_a_document_or_a_piece_of_one_and_only_full_pieces_go_on(shards: Shards, seq_len: int) -> None:
    rows = rows_of(shards, seq_len)
    found = rows.segments(np.arange(rows.num_rows), 0)
    sizes = np.array([sum(lengths) for lengths in shards])
    starts = (np.cumsum(sizes) - sizes)[found.shard] + found.start
    document_starts = np.array([start for start, _ in documents_of(shards)])
    document_ends = document_starts + [length for _, length in documents_of(shards)]
    which = np.searchsorted(document_ends, starts, side="right")
    assert (starts + found.length <= document_ends[which]).all(), "a segment runs into the next document"
    assert ((starts - document_starts[which]) % seq_len == 0).all()
    assert ((starts + found.length < document_ends[which]) == found.goes_on).all()
    assert (found.length[found.goes_on] == seq_len).all()


@given(SHARDS, st.integers(1, 40), st.data())
@settings(max_examples=100)
def test_any_rows_can_be_asked_for_in_any_order(shards: Shards, seq_len: int, data: st.DataObject) -> None:
    rows = rows_of(shards, seq_len)
    which = np.array(data.draw(st.lists(st.integers(0, rows.num_rows - 1), max_size=10)), np.int64)
    together = rows.segments(which, 2)
    costs = rows.costs(which)
    for place, row in enumerate(which.tolist()):
        alone = rows.segments(np.array([row]), 2)
        here = together.row == place
        for name in ("shard", "start", "length", "goes_on"):
            assert (getattr(together, name)[here] == getattr(alone, name)).all()
        assert costs[place] == (TOKEN_COST * alone.length + alone.length.astype(float) ** 2).sum()


def packs(rows: PackedRows, epoch: int) -> set[tuple[tuple[int, int], ...]]:
    found = rows.segments(np.arange(rows.num_rows), epoch)
    pieces = list(zip(found.shard.tolist(), found.start.tolist(), strict=True))
    cuts = np.searchsorted(found.row, np.arange(rows.num_rows + 1)).tolist()
    return {tuple(sorted(pieces[a:b])) for a, b in pairwise(cuts) if b - a > 1}


@pytest.mark.parametrize("seed", range(5))
def test_another_pass_has_other_packs_and_the_same_rows_by_length(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shards = [np.clip(rng.lognormal(3, 1, 1000).astype(int), 1, 400).tolist() for _ in range(3)]
    rows = rows_of(shards, 256, key=seed)
    first, second = packs(rows, 0), packs(rows, 1)
    # Documents that are the only ones of their length meet again.
    assert len(first & second) < 0.15 * len(first)
    assert packs(rows, 0) == first
    assert packs(rows_of(shards, 256, key=seed + 1000), 0) != first
    every = np.arange(rows.num_rows)
    a, b = rows.segments(every, 0), rows.segments(every, 1)
    assert (a.row == b.row).all()
    assert (a.length == b.length).all()


def test_packing_wastes_little_on_natural_lengths() -> None:
    lengths = np.clip(np.random.default_rng(1).lognormal(6, 1, 20_000).astype(int), 1, None).tolist()
    rows = rows_of([lengths], 2048)
    assert rows.num_rows <= -(-sum(lengths) // 2048) * 1.01
