"""Which row comes when, and whose it is: every place exactly once, whoever carries it and however often they change."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.errors import ConfigError
from penstock.order.mixture import Weights, mixture_order
from penstock.order.schedule import FILLER, Schedule, Source, merged_ranges
from penstock.order.segments import Segments
from penstock.order.shuffle import FullShuffle, NoShuffle


@dataclass(frozen=True)
class FakeRows:
    """Rows that are one segment each. They cost what a table says, or all the same."""

    num_rows: int
    table: NDArray[np.float64] | None = None
    seq_len: int = 8

    @property
    def whole_documents(self) -> bool:
        return self.table is not None

    def segments(self, rows: NDArray[np.int64], epoch: int) -> Segments:
        # Which row and which pass can be read off a segment.
        many = len(rows)
        return Segments(np.arange(many), rows, np.full(many, epoch), np.full(many, 8), np.zeros(many, bool))

    def costs(self, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        return None if self.table is None else self.table[rows]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    num_rows = draw(st.integers(1, 80))
    seed = draw(st.integers(0, 2**32))
    uneven = draw(st.booleans())
    table = np.random.default_rng(seed).integers(1, 9, num_rows).astype(float) if uneven else None
    batch_size = draw(st.sampled_from([1, 2, 6, 12, 24]))
    epochs = draw(st.sampled_from([0.4, 1, 2, 2.7]))
    total = max(1, round(epochs * num_rows))
    skip = draw(st.lists(st.tuples(st.integers(0, total - 1), st.integers(1, 20)), max_size=3))
    ranges = [(start, min(start + size, total)) for start, size in skip]
    source = Source(FakeRows(num_rows, table), FullShuffle(num_rows, key=seed))
    return Schedule([source], num_rows=total, batch_size=batch_size, skip=ranges)


def divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


@st.composite
def crews(draw: st.DrawFn, batch_size: int) -> tuple[int, int]:
    """A world size and a micro-batch that divide a step."""
    world_size = draw(st.sampled_from(divisors(batch_size)))
    return world_size, draw(st.sampled_from(divisors(batch_size // world_size)))


@given(schedules())
@settings(max_examples=120)
def test_skipping_leaves_the_others_with_their_numbers_and_in_order(schedule: Schedule) -> None:
    total = schedule.num_rows + schedule.num_skipped
    left = [row for row in range(total) if not any(start <= row < stop for start, stop in schedule.skip)]
    assert schedule.numbered(np.arange(schedule.num_rows)).tolist() == left
    whole = Schedule(schedule.sources, num_rows=total, batch_size=schedule.batch_size)
    found, expected = schedule.located(np.arange(schedule.num_rows)), whole.located(np.array(left, np.int64))
    for name in ("row", "source", "epoch", "source_row"):
        assert (getattr(found, name) == getattr(expected, name)).all()


@given(schedules(), st.data())
@settings(max_examples=120)
def test_one_place_is_located_as_many_are(schedule: Schedule, data: st.DataObject) -> None:
    if not schedule.num_rows:
        return
    places = np.array(data.draw(st.lists(st.integers(0, schedule.num_rows - 1), min_size=1, max_size=8)))
    found = schedule.located(places)
    many = zip(found.source.tolist(), found.epoch.tolist(), found.source_row.tolist(), strict=True)
    assert list(many) == [schedule.located_one(place) for place in places.tolist()]


@given(st.integers(1, 50), st.integers(1, 4), st.integers(0, 2**32))
@settings(max_examples=120)
def test_every_pass_shows_every_row_once_in_an_order_of_its_own(num_rows: int, epochs: int, key: int) -> None:
    source = Source(FakeRows(num_rows), FullShuffle(num_rows, key=key))
    schedule = Schedule([source], num_rows=num_rows * epochs, batch_size=4)
    located = schedule.located(np.arange(num_rows * epochs))
    passes = located.source_row.reshape(epochs, num_rows)
    assert (np.sort(passes, axis=1) == np.arange(num_rows)).all()
    assert (located.epoch.reshape(epochs, num_rows) == np.arange(epochs)[:, None]).all()
    if num_rows > 20:
        assert len({one.tobytes() for one in passes}) == epochs


@given(schedules(), st.data())
@settings(max_examples=120)
def test_any_crew_shares_out_every_step_and_everyone_does_as_many_micro_steps(
    schedule: Schedule, data: st.DataObject
) -> None:
    world_size, micro_batch = data.draw(crews(schedule.batch_size))
    everyone = 10**9
    taken = [
        schedule.taken(0, rank=rank, world_size=world_size, micro_batch=micro_batch, least_rows=everyone)
        for rank in range(world_size)
    ]
    micro_steps = schedule.num_steps * schedule.batch_size // (world_size * micro_batch)
    for one in taken:
        assert one.places.shape == (micro_steps, micro_batch)
        assert (one.cursors == np.arange(1, micro_steps + 1) * world_size * micro_batch).all()
    together = np.stack([one.places for one in taken], axis=1).reshape(-1, schedule.batch_size)
    assert len(together) == schedule.num_steps
    for step, places in enumerate(together):
        first = step * schedule.batch_size
        expected = set(range(first, min(first + schedule.batch_size, schedule.num_rows)))
        assert set(places.tolist()) - {FILLER} == expected
        assert (places != FILLER).sum() == len(expected)


@given(schedules(), st.data())
@settings(max_examples=120)
def test_a_step_is_taken_in_one_order_whoever_takes_it(schedule: Schedule, data: st.DataObject) -> None:
    world_size, micro_batch = data.draw(crews(schedule.batch_size))
    unit = world_size * micro_batch
    for step in range(min(3, schedule.num_steps)):
        order = schedule.step_places(step).reshape(-1, unit)
        for rank in range(world_size):
            cursor = step * schedule.batch_size
            taken = schedule.taken(cursor, rank=rank, world_size=world_size, micro_batch=micro_batch, least_rows=1)
            assert set(taken.places[0].tolist()) <= set(order[0].tolist())
        real = order[order != FILLER]
        costs = schedule.costs(schedule.located(real))
        if costs is not None:
            assert (np.diff(costs) <= 0).all(), "the dearest do not come first"


def places_seen(schedule: Schedule, chance: Random) -> Counter[int]:
    """How often each place is seen in a run whose crew changes at random micro-steps."""
    seen: Counter[int] = Counter()
    cursor, size = 0, schedule.batch_size
    while True:
        # A checkpoint holds the number of rows behind, and no more than there are.
        cursor = cursor if cursor < schedule.num_rows else schedule.num_steps * size
        world_size = chance.choice(divisors(size))
        micro_batch = chance.choice(divisors(size // world_size))
        least = chance.choice([1, 1, 1, 5, 30])
        taken = [
            schedule.taken(cursor, rank=rank, world_size=world_size, micro_batch=micro_batch, least_rows=least)
            for rank in range(world_size)
        ]
        assert len({one.cursors.tobytes() for one in taken}) == 1, "ranks disagree on where they are"
        assert len({one.places.shape for one in taken}) == 1, "ranks take a different number of rows"
        cursors = taken[0].cursors
        if not len(cursors):
            del seen[FILLER]
            return seen
        assert least <= taken[0].places.size or cursors[-1] >= schedule.num_rows
        stop = chance.randint(1, min(6, len(cursors)))
        for one in taken:
            seen.update(one.places[:stop].reshape(-1).tolist())
        cursor = int(cursors[stop - 1])


@given(schedules(), st.integers(0, 2**32))
@settings(max_examples=300)
def test_crews_that_come_and_go_at_any_micro_step_see_every_place_exactly_once(schedule: Schedule, seed: int) -> None:
    assert places_seen(schedule, Random(seed)) == Counter(range(schedule.num_rows))


@given(st.integers(2, 60), st.integers(2, 60), st.sampled_from([4, 12]), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=40)
def test_crews_that_come_and_go_see_every_row_of_a_mixture_once_too(
    first: int, second: int, batch_size: int, uneven: bool, seed: int
) -> None:
    sources = [
        Source(FakeRows(rows, np.arange(rows) % 7 + 1.0 if uneven else None), NoShuffle()) for rows in (first, second)
    ]
    order, total = mixture_order([Weights(0, (0.5, 0.5))], most_rows={}, num_rows=150, block=10, key=3)
    schedule = Schedule(sources, num_rows=total, batch_size=batch_size, mixture=order, skip=[(20, 30), (7, 9)])
    assert places_seen(schedule, Random(seed)) == Counter(range(138))
    located = schedule.located(np.arange(138))
    segments, origin = schedule.segments(located)
    assert (segments.row == np.arange(138)).all()
    assert (segments.shard == located.source_row).all()
    assert (segments.start == located.epoch).all()
    assert (origin == located.source).all()


def test_nothing_is_known_of_other_steps() -> None:
    source = Source(FakeRows(1000, np.arange(1000) % 11 + 1.0), FullShuffle(1000, key=1))
    short = Schedule([source], num_rows=480, batch_size=48)
    long = Schedule([source], num_rows=1000, batch_size=48)
    for step in range(10):
        assert (short.step_places(step) == long.step_places(step)).all()


@pytest.mark.parametrize("bad", [(-1, 3), (3, 3), (5, 4), (0, 101)])
def test_a_range_that_cannot_be_skipped_is_refused(bad: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="expected 0 <= from < to <= 100"):
        merged_ranges([bad], 100)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 30)), max_size=8))
@settings(max_examples=120)
def test_ranges_are_joined_where_they_touch(some: list[tuple[int, int]]) -> None:
    ranges = [(start, min(start + size, 100)) for start, size in some]
    merged = merged_ranges(ranges, 100)
    covered = {row for start, stop in ranges for row in range(start, stop)}
    assert {row for start, stop in merged for row in range(start, stop)} == covered
    assert all(one[1] < other[0] for one, other in pairwise(merged))
