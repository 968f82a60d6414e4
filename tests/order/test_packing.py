"""Packing a histogram gives the bins that packing item by item gives."""

import time
from bisect import bisect_left, insort
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.order.packing import BinClasses, packed_classes


def plain_best_fit(lengths: list[int], capacity: int) -> list[list[int]]:
    """Best-fit-decreasing as a textbook has it: the longest first, each into the fullest bin that has room for it."""
    bins: list[list[int]] = []
    rooms: list[tuple[int, int]] = []
    for length in sorted(lengths, reverse=True):
        at = bisect_left(rooms, (length, -1))
        if at == len(rooms):
            bins.append([])
            room, number = capacity, len(bins) - 1
        else:
            room, number = rooms.pop(at)
        bins[number].append(length)
        insort(rooms, (room - length, number))
    return bins


def unpacked(classes: BinClasses) -> list[list[tuple[int, int]]]:
    """Every bin as the items in it: their length, and their number among those of that length."""
    bins: list[list[tuple[int, int]]] = []
    for number, count in enumerate(classes.num_bins.tolist()):
        entries = range(int(classes.entry_starts[number]), int(classes.entry_starts[number + 1]))
        for place in range(count):
            items = []
            for entry in entries:
                per_bin = int(classes.entry_per_bin[entry])
                first = int(classes.entry_first[entry]) + place * per_bin
                items += [(int(classes.entry_length[entry]), item) for item in range(first, first + per_bin)]
            bins.append(items)
    return bins


def check(histogram: NDArray[np.int64], capacity: int) -> None:
    classes = packed_classes(histogram, capacity)
    bins = unpacked(classes)
    lengths = np.repeat(np.arange(len(histogram)), histogram).tolist()
    expected = plain_best_fit(lengths, capacity)
    assert classes.total_bins == len(bins) == len(expected)
    assert all(bins), "an empty bin"
    assert all(sum(length for length, _ in one) <= capacity for one in bins), "an overfull bin"
    every = Counter(item for one in bins for item in one)
    wanted = {(length, number) for length, count in enumerate(histogram.tolist()) for number in range(count)}
    assert set(every) == wanted, "items lost or made up"
    assert set(every.values()) <= {1}, "items placed twice"
    # Not only as many bins: as full, too. Which of two equally full bins gets an item is nobody's business.
    assert Counter(sum(length for length, _ in one) for one in bins) == Counter(map(sum, expected))


@st.composite
def histograms(draw: st.DrawFn) -> tuple[NDArray[np.int64], int]:
    """Many lengths with a few items each, or a few lengths with many."""
    capacity = draw(st.integers(1, 64))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    density, most = draw(st.sampled_from([0.05, 0.3, 1.0])), draw(st.sampled_from([1, 3, 30]))
    histogram = rng.integers(1, most + 1, capacity + 1) * (rng.random(capacity + 1) < density)
    histogram[0] = 0
    return histogram, capacity


@given(histograms())
@settings(max_examples=700)
def test_packing_a_histogram_is_packing_item_by_item(case: tuple[NDArray[np.int64], int]) -> None:
    check(*case)


@pytest.mark.parametrize("seed", range(6))
def test_it_also_is_for_thousands_of_documents_of_natural_lengths(seed: int) -> None:
    rng = np.random.default_rng(seed)
    capacity = int(rng.integers(200, 3000))
    lengths = np.clip(rng.lognormal(5, 1.2, 5000).astype(int), 1, capacity)
    check(np.bincount(lengths, minlength=capacity + 1), capacity)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 1000])
def test_it_also_is_for_items_of_one_length(length: int, count: int) -> None:
    histogram = np.zeros(18, np.int64)
    histogram[length] = count
    check(histogram, 17)


def test_no_items_take_no_bins() -> None:
    classes = packed_classes(np.zeros(9, np.int64), 8)
    assert classes.total_bins == 0
    assert classes.entry_starts.tolist() == [0]


def test_the_same_histogram_gives_the_same_bins_in_the_same_order() -> None:
    histogram = np.random.default_rng(0).integers(0, 50, 129)
    histogram[0] = 0
    one, other = packed_classes(histogram, 128), packed_classes(histogram.copy(), 128)
    for name in BinClasses.__slots__:
        assert (getattr(one, name) == getattr(other, name)).all()


def test_a_hundred_million_items_take_seconds_because_nobody_walks_over_them() -> None:
    rng = np.random.default_rng(0)
    capacity = 2048
    sample = np.clip(rng.lognormal(6, 1, 1_000_000).astype(int), 1, capacity)
    histogram = np.bincount(sample, minlength=capacity + 1) * 100
    started = time.perf_counter()
    classes = packed_classes(histogram, capacity)
    took = time.perf_counter() - started
    placed = np.zeros(capacity + 1, np.int64)
    per_entry = np.repeat(classes.num_bins, np.diff(classes.entry_starts)) * classes.entry_per_bin
    np.add.at(placed, classes.entry_length, per_entry)
    assert (placed == histogram).all()
    assert took < 5
    tokens = int((histogram * np.arange(capacity + 1)).sum())
    assert classes.total_bins <= -(-tokens // capacity) * 1.01
