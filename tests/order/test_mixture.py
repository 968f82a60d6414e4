"""A mixture holds exactly its shares in every block, and no change of weights repeats or loses a row."""

from collections import Counter
from fractions import Fraction
from math import lcm

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.order.mixture import MixtureOrder, Weights, block_counts, mixture_order

KEYS = st.integers(0, 2**64 - 1)


@st.composite
def weights(draw: st.DrawFn, num_sources: int | None = None) -> tuple[float, ...]:
    """Weights that are short fractions, as people write them; some may be nothing."""
    count = num_sources or draw(st.integers(1, 5))
    parts = draw(st.lists(st.integers(0, 20), min_size=count, max_size=count).filter(any))
    return tuple(part / sum(parts) for part in parts)


def made(
    changes: list[Weights],
    *,
    num_rows: int | None,
    key: int = 1,
    block: int | None = None,
    most_rows: dict[int, int] | None = None,
) -> tuple[MixtureOrder, int]:
    return mixture_order(changes, most_rows=most_rows or {}, num_rows=num_rows, block=block, key=key)


@given(weights(), st.none() | st.integers(100, 2000))
@settings(max_examples=80)
def test_a_block_is_shared_out_whole_and_within_one_row_of_the_weights(
    shares: tuple[float, ...], block: int | None
) -> None:
    counts = block_counts(shares, block)
    size = sum(counts)
    assert block is None or size == block
    assert all(abs(count - share * size) < 1 for count, share in zip(counts, shares, strict=True))
    assert all((count > 0) == (share > 0) for count, share in zip(counts, shares, strict=True))


@given(weights())
@settings(max_examples=80)
def test_the_block_that_is_chosen_makes_short_fractions_exact(shares: tuple[float, ...]) -> None:
    counts = block_counts(shares)
    exact = [Fraction(share).limit_denominator(1000) for share in shares]
    assert sum(counts) % lcm(*(share.denominator for share in exact)) == 0
    assert [Fraction(count, sum(counts)) for count in counts] == exact


@pytest.mark.parametrize("shares", [(0.7, 0.2), (0.5, 0.6), (1.5, -0.5), (float("nan"), 1.0), (0.0, 0.0)])
def test_weights_that_do_not_sum_to_one_are_refused_and_shown(shares: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="sum to"):
        block_counts(shares)


def test_a_weight_too_small_for_the_block_names_the_block_that_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"weight 0\.0001 .* at least") as refused:
        block_counts((0.9999, 0.0001), 100)
    named = int(str(refused.value).split()[-1])
    assert 5000 < named < 11_000
    assert min(block_counts((0.9999, 0.0001), named)) == 1


@given(weights(), st.none() | st.integers(100, 300), KEYS, st.integers(0, 10**12))
@settings(max_examples=80)
def test_every_block_holds_exactly_its_share_of_each_source(
    shares: tuple[float, ...], block: int | None, key: int, far: int
) -> None:
    order, _ = made([Weights(0, shares)], num_rows=10**15, key=key, block=block)
    counts = np.array(block_counts(shares, block))
    size = int(counts.sum())
    for number in (0, 1, far):
        source, place = order.sources(np.arange(number * size, (number + 1) * size))
        assert (np.bincount(source, minlength=len(shares)) == counts).all()
        for which, count in enumerate(counts.tolist()):
            expected = np.arange(number * count, (number + 1) * count)
            assert (np.sort(place[source == which]) == expected).all()


def test_blocks_are_mixed_each_in_its_own_order() -> None:
    order, _ = made([Weights(0, (0.5, 0.5))], num_rows=2560)
    source, _ = order.sources(np.arange(2560))
    blocks = source.reshape(-1, 256)
    assert len({block.tobytes() for block in blocks}) == 10
    # Half a block holds about half of each: 64 with a standard deviation of 4.
    assert all(abs(int(block[:128].sum()) - 64) < 24 for block in blocks)


@st.composite
def edits(draw: st.DrawFn) -> list[Weights]:
    """Weights that change at any row, with more sources as time goes on."""
    num_sources = draw(st.integers(1, 3))
    row, changes = 0, []
    for _ in range(draw(st.integers(1, 4))):
        changes.append(Weights(row, draw(weights(num_sources))))
        row += draw(st.integers(1, 700))
        num_sources = draw(st.integers(num_sources, 4))
    return changes


def positive(change: Weights) -> list[int]:
    return [source for source, weight in enumerate(change.weights) if weight > 0]


@given(edits(), st.none() | st.integers(100, 300), KEYS)
@settings(max_examples=80)
def test_changes_of_weights_at_any_row_repeat_nothing(changes: list[Weights], block: int | None, key: int) -> None:
    num_rows = changes[-1].from_row + 1500
    order, total = made(changes, num_rows=num_rows, key=key, block=block)
    assert total == num_rows
    source, number = order.sources(np.arange(num_rows))
    seen = Counter(zip(source.tolist(), number.tolist(), strict=True))
    assert {pair: count for pair, count in seen.items() if count > 1} == {}


@given(edits(), st.none() | st.integers(100, 300), KEYS)
@settings(max_examples=80)
def test_changes_of_weights_at_any_row_lose_nothing(changes: list[Weights], block: int | None, key: int) -> None:
    last = changes[-1]
    # Until every source has given more whole blocks than earlier weights can have left half done.
    counts = block_counts(last.weights, block)
    num_rows = last.from_row + -(-1500 // min(filter(None, counts))) * sum(counts)
    order, _ = made(changes, num_rows=num_rows, key=key, block=block)
    source, number = order.sources(np.arange(num_rows))
    for which in positive(last):
        seen = np.unique(number[source == which])
        assert (seen == np.arange(len(seen))).all(), f"source {which} never shows {set(range(len(seen))) - set(seen)}"


@given(edits(), st.none() | st.integers(100, 300), KEYS, st.data())
@settings(max_examples=80)
def test_a_change_leaves_everything_before_it_as_it_was(
    changes: list[Weights], block: int | None, key: int, data: st.DataObject
) -> None:
    num_rows = changes[-1].from_row + 1000
    longer, _ = made(changes, num_rows=num_rows, key=key, block=block)
    kept = data.draw(st.integers(1, len(changes)))
    shorter, _ = made(changes[:kept], num_rows=num_rows, key=key, block=block)
    until = changes[kept].from_row if kept < len(changes) else num_rows
    before = np.arange(until)
    for one, other in zip(longer.sources(before), shorter.sources(before), strict=True):
        assert (one == other).all()


@given(edits(), KEYS, st.data())
@settings(max_examples=80)
def test_rows_used_are_counted_at_any_row(changes: list[Weights], key: int, data: st.DataObject) -> None:
    num_rows = changes[-1].from_row + 1000
    order, _ = made(changes, num_rows=num_rows, key=key)
    row = data.draw(st.integers(0, num_rows))
    source, _ = order.sources(np.arange(row))
    num_sources = max(len(change.weights) for change in changes)
    assert order.used(row) == tuple(np.bincount(source, minlength=num_sources).tolist())


@given(edits(), KEYS, st.data())
@settings(max_examples=60)
def test_any_rows_can_be_asked_for_in_any_order(changes: list[Weights], key: int, data: st.DataObject) -> None:
    num_rows = changes[-1].from_row + 1000
    order, _ = made(changes, num_rows=num_rows, key=key)
    source, number = order.sources(np.arange(num_rows))
    some = np.array(data.draw(st.lists(st.integers(0, num_rows - 1), max_size=20)), np.int64)
    found = order.sources(some)
    assert (found[0] == source[some]).all()
    assert (found[1] == number[some]).all()


def used_block_by_block(shares: tuple[float, ...], caps: dict[int, int], block: int | None) -> list[int]:
    """What each source gives until none is left: one block after the other, without those that have too little."""
    used = [0] * len(shares)
    left = list(shares)
    while sum(left) > 0:
        counts = block_counts([share / sum(left) for share in left], block)
        spent = [which for which, cap in caps.items() if counts[which] and used[which] + counts[which] > cap]
        for which in spent:
            left[which] = 0.0
        if not spent:
            used = [before + count for before, count in zip(used, counts, strict=True)]
    return used


@given(weights(), st.data(), KEYS, st.none() | st.integers(100, 300))
@settings(max_examples=80)
def test_a_source_with_a_cap_gives_no_more_and_the_others_share_its_place(
    shares: tuple[float, ...], data: st.DataObject, key: int, block: int | None
) -> None:
    caps = {which: data.draw(st.integers(0, 3000)) for which in range(len(shares))}
    expected = used_block_by_block(shares, caps, block)
    if not any(expected):
        with pytest.raises(ConfigError, match="no row"):
            made([Weights(0, shares)], num_rows=None, key=key, block=block, most_rows=caps)
        return
    order, total = made([Weights(0, shares)], num_rows=None, key=key, block=block, most_rows=caps)
    source, number = order.sources(np.arange(total))
    assert np.bincount(source, minlength=len(shares)).tolist() == expected == list(order.used(total))
    for which, cap in caps.items():
        mine = np.sort(number[source == which])
        assert (mine == np.arange(len(mine))).all()
        assert len(mine) <= cap


def test_a_source_that_leaves_is_replaced_in_proportion() -> None:
    order, total = made([Weights(0, (0.5, 0.25, 0.25))], num_rows=5120, most_rows={0: 256})
    assert total == 5120
    source, _ = order.sources(np.arange(total))
    assert np.bincount(source[:512]).tolist() == [256, 128, 128]
    assert np.bincount(source[512:]).tolist() == [0, 2304, 2304]


def test_a_mixture_that_would_never_end_or_has_too_little_is_refused() -> None:
    with pytest.raises(ConfigError, match="never ends"):
        made([Weights(0, (0.5, 0.5))], num_rows=None, most_rows={0: 1000})
    with pytest.raises(ConfigError, match="allow more epochs or fewer steps"):
        made([Weights(0, (0.5, 0.5))], num_rows=10_000, most_rows={0: 1000, 1: 1000})
    with pytest.raises(ConfigError, match="smaller block"):
        made([Weights(0, (0.5, 0.5))], num_rows=None, most_rows={0: 10, 1: 10})
    with pytest.raises(ConfigError, match="at least one dataset"):
        block_counts(())
