"""Rows are dealt so that no rank waits for another, and a step that cannot be dealt is refused with one that can."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.errors import ConfigError
from penstock.order.best_fit import PackedRows
from penstock.order.deal import by_cost, dealt, imbalance, require_even
from penstock.order.items import sorted_items
from penstock.order.schedule import Schedule, Source
from penstock.order.shuffle import FullShuffle

CONTEXT = 32_768
NUM_RANKS = 64


def long_context_schedule(seed: int, batch_size: int) -> Schedule:
    """Whole documents packed into rows of 32k; lengths are log-normal, as those of web pages and books are."""
    rng = np.random.default_rng(seed)
    lengths = np.maximum(1, rng.lognormal(7.0, 1.6, 250_000)).astype(np.int64)
    ends = np.cumsum(lengths)
    items = sorted_items(lambda: [ends], seq_len=CONTEXT)
    rows = PackedRows(items, np.array([ends[-1]]), key=seed)
    shuffle = FullShuffle(rows.num_rows, key=seed)
    return Schedule([Source(rows, shuffle)], num_rows=rows.num_rows, batch_size=batch_size)


def step_costs(schedule: Schedule, step: int) -> NDArray[np.float64]:
    """What the rows of a step cost, as they come."""
    places = np.arange(step * schedule.batch_size, (step + 1) * schedule.batch_size)
    costs = schedule.costs(schedule.located(places))
    assert costs is not None
    return costs


def waiting(schedule: Schedule, step: int, *, micro_batch: int) -> float:
    """Time that the slowest rank takes over the mean in one step, from what each rank is really given."""
    loads = []
    for rank in range(NUM_RANKS):
        taken = schedule.taken(
            step * schedule.batch_size, rank=rank, world_size=NUM_RANKS, micro_batch=micro_batch, least_rows=1
        )
        micro_steps = schedule.batch_size // (NUM_RANKS * micro_batch)
        places = taken.places[:micro_steps]
        costs = schedule.costs(schedule.located(places.reshape(-1)))
        assert costs is not None
        loads.append(costs.reshape(places.shape).sum(axis=1))
    per_rank = np.stack(loads, axis=1)
    return float(per_rank.max(axis=1).sum() / per_rank.mean(axis=1).sum())


@pytest.mark.parametrize("micro_batch", [1, 2, 4, 8])
def test_no_rank_waits_at_32k_on_64_ranks_where_rows_as_they_come_would_make_them_wait(
    micro_batch: int,
) -> None:
    schedule = long_context_schedule(0, NUM_RANKS * 16)
    assert schedule.num_steps > 8
    both = [imbalance(step_costs(schedule, step), world_size=NUM_RANKS, micro_batch=micro_batch) for step in range(8)]
    level, as_they_come = np.mean(both, axis=0)
    assert level < 1.03
    assert as_they_come > 1.1
    assert as_they_come - 1 > 5 * (level - 1)
    dealt_really = np.mean([waiting(schedule, step, micro_batch=micro_batch) for step in range(8)])
    assert dealt_really == pytest.approx(level)


def test_rows_that_cost_the_same_are_level_however_they_are_dealt() -> None:
    assert imbalance(np.full(24, 7.0), world_size=4, micro_batch=3) == (1.0, 1.0)
    assert imbalance(np.zeros(24), world_size=4, micro_batch=3) == (1.0, 1.0)


@pytest.mark.parametrize("micro_batch", [2, 4, 6])
def test_dealing_back_and_forth_levels_rows_that_get_cheaper_step_by_step(micro_batch: int) -> None:
    costs = np.random.default_rng(0).permutation(4 * micro_batch * 3) + 1.0
    level, as_they_come = imbalance(costs, world_size=4, micro_batch=micro_batch)
    assert level == 1.0
    assert as_they_come > 1.1


@given(st.integers(1, 20), st.integers(1, 20))
@settings(max_examples=200)
def test_the_rows_of_a_micro_step_are_dealt_to_exactly_one_rank_each(world_size: int, micro_batch: int) -> None:
    hands = [dealt(rank, world_size=world_size, micro_batch=micro_batch) for rank in range(world_size)]
    assert {len(hand) for hand in hands} == {micro_batch}
    assert sorted(np.concatenate(hands).tolist()) == list(range(world_size * micro_batch))


@given(st.lists(st.integers(0, 5), max_size=30))
@settings(max_examples=200)
def test_the_dearest_come_first_and_equals_keep_their_places(costs: list[int]) -> None:
    order = by_cost(np.array(costs, float)).tolist()
    assert order == sorted(range(len(costs)), key=lambda row: (-costs[row], row))


@given(st.integers(1, 300), st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=250)
def test_a_step_that_does_not_divide_is_refused_and_what_is_named_instead_works(
    batch_size: int, world_size: int, micro_batch: int
) -> None:
    unit = world_size * micro_batch
    if batch_size % unit == 0:
        require_even(batch_size, world_size=world_size, micro_batch=micro_batch)
        return
    with pytest.raises(ConfigError) as refused:
        require_even(batch_size, world_size=world_size, micro_batch=micro_batch)
    message = str(refused.value)
    assert f"batch_size {batch_size} is not a multiple of world_size × micro_batch" in message
    advice = message.partition("; use ")[2]
    sizes, _, micros = advice.partition(", or micro_batch ")
    named = [int(size) for size in re.findall(r"\d+", sizes)]
    nearest = {batch_size // unit * unit, -(-batch_size // unit) * unit} - {0}
    assert set(named) == nearest
    for size in named:
        require_even(size, world_size=world_size, micro_batch=micro_batch)
    others = [int(micro) for micro in re.findall(r"\d+", micros)]
    assert bool(others) == (batch_size % world_size == 0)
    for micro in others:
        require_even(batch_size, world_size=world_size, micro_batch=micro)
