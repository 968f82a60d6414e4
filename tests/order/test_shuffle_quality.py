"""A shuffled epoch looks shuffled to tests that a linear congruential order and an order on disk fail."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.order.permute import derived_key, permuted
from penstock.order.shuffle import FullShuffle

Order = NDArray[np.int64]

SIGMAS = 6.0
"""A random order is further out than this about once in half a billion times."""
KEYS = st.integers(0, 2**64 - 1)
LENGTHS = (2048, 3000, 4096, 10_007, 65_536, 100_000)


def deviations(order: Order) -> dict[str, float]:
    """How far `order` is from a uniformly random one, in standard deviations, by what was looked at."""
    length = len(order)
    index = np.arange(length)
    found: dict[str, float] = {}
    # Steps from one row to the next: of `length` random steps, 1 - 1/e are different ones.
    for gap in (1, 2, 3):
        steps = np.unique((order[gap:] - order[:-gap]) % length)
        mean, variance = (1 - np.exp(-1)) * length, (np.exp(-1) - 2 * np.exp(-2)) * length
        found[f"different steps to the row {gap} further on"] = float((len(steps) - mean) / np.sqrt(variance))
    # The second difference is constant in every order that is quadratic in the index.
    curves = np.unique((order[2:] - 2 * order[1:-1] + order[:-2]) % length)
    found["different second differences"] = float((len(curves) - mean) / np.sqrt(variance))
    # Where rows land: a 16 × 16 board of from and to, every field expected to hold as many.
    board = np.bincount(index * 16 // length * 16 + order * 16 // length, minlength=256)
    found["evenness of from and to"] = _chi_square(board, length / 256, freedom=15 * 15)
    # The parts of two neighbours, and the low bits that a linear order walks through in turn.
    pairs = np.bincount(order[:-1] * 16 // length * 16 + order[1:] * 16 // length, minlength=256)
    found["evenness of pairs"] = _chi_square(pairs, (length - 1) / 256, freedom=15 * 15)
    low = np.bincount(order[:-1] % 16 * 16 + order[1:] % 16, minlength=256)
    found["evenness of pairs of low bits"] = _chi_square(low, (length - 1) / 256, freedom=15 * 15)
    correlation = float(np.corrcoef(index, order)[0, 1])
    found["correlation with the order on disk"] = correlation * np.sqrt(length - 1)
    serial = float(np.corrcoef(order[:-1], order[1:])[0, 1])
    found["correlation of neighbours"] = serial * np.sqrt(length - 1)
    fixed = int((order == index).sum())
    found["rows that stay where they are"] = max(0.0, fixed - 12.0)
    return found


def _chi_square(counts: NDArray[np.int64], expected: float, *, freedom: int) -> float:
    statistic = float(((counts - expected) ** 2 / expected).sum())
    # Only too uneven and far too even count: without replacement, evenness comes a little easier.
    return (statistic - freedom) / np.sqrt(2 * freedom)


def flaws(order: Order) -> list[str]:
    """What gives `order` away as not random."""
    return [f"{what}: {far:.1f} sigma" for what, far in deviations(order).items() if abs(far) > SIGMAS]


def ours(length: int, key: int) -> Order:
    return permuted(np.arange(length), length=length, key=key)


@pytest.mark.parametrize("length", LENGTHS)
def test_our_order_has_no_flaw_under_many_keys(length: int) -> None:
    for number in range(6):
        assert flaws(ours(length, derived_key(number, "quality"))) == []


@given(length=st.integers(2048, 30_000), key=KEYS)
@settings(max_examples=60)
def test_our_order_has_no_flaw_at_any_length(length: int, key: int) -> None:
    assert flaws(ours(length, key)) == []


@given(length=st.integers(2048, 30_000), seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_a_true_shuffle_has_no_flaw_either(length: int, seed: int) -> None:
    assert flaws(np.random.default_rng(seed).permutation(length)) == []


@given(length=st.integers(2048, 30_000), factor=st.integers(2, 2**40), shift=st.integers(0, 2**40))
@settings(max_examples=200)
def test_a_linear_congruential_order_is_found_out(length: int, factor: int, shift: int) -> None:
    factor %= length
    while np.gcd(factor, length) != 1:
        factor += 1
    order = (np.arange(length) * factor + shift) % length
    assert (np.sort(order) == np.arange(length)).all()
    assert flaws(order)


@pytest.mark.parametrize(
    "disguise",
    [
        lambda order: order,
        lambda order: order[::-1],
        lambda order: np.roll(order, len(order) // 3),
        lambda order: order.reshape(-1, 16).T.reshape(-1),
        lambda order: order ^ 0b1010101,
    ],
    ids=["as on disk", "backwards", "rolled", "strided", "with bits flipped"],
)
def test_an_order_that_is_not_shuffled_is_found_out(disguise: Callable[[Order], Order]) -> None:
    assert flaws(disguise(np.arange(1 << 14)))


def orders_under_random_keys(length: int, num_keys: int) -> NDArray[np.int64]:
    keys = np.random.default_rng(length).integers(0, 2**64, num_keys, np.uint64)
    index = np.tile(np.arange(length), num_keys)
    landed = permuted(index, length=np.full(len(index), length), key=np.repeat(keys, length))
    return landed.reshape(num_keys, length)


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_every_order_of_a_few_rows_comes_up(length: int) -> None:
    found = {tuple(order) for order in orders_under_random_keys(length, 5000).tolist()}
    assert found == set(permutations(range(length)))


@pytest.mark.parametrize("length", [*range(2, 20), 31, 32, 33])
def test_a_row_is_about_as_likely_to_land_anywhere_however_few_there_are(length: int) -> None:
    """A network over a few bits is not perfectly even: no place is a fifth more likely than it should be."""
    num_keys = 1000 * length
    landed = orders_under_random_keys(length, num_keys)
    counts = np.array([np.bincount(column, minlength=length) for column in landed.T])
    # A thousand expected in each: chance alone makes a difference of 130 once in ten thousand fields.
    assert counts.max() < 1000 * 1.2 + 130
    assert counts.min() > 1000 / 1.2 - 130


def unrelated(first: Order, second: Order) -> bool:
    """Whether two orders of the same rows have no more in common than two random ones."""
    length = len(first)
    common = int((first == second).sum())
    from_one_to_the_other = np.empty(length, np.int64)
    from_one_to_the_other[first] = second
    return common < 16 and flaws(from_one_to_the_other) == []


@given(length=st.integers(2048, 10_000), key=KEYS, bit=st.integers(0, 63))
@settings(max_examples=60)
def test_keys_that_differ_in_one_bit_give_unrelated_orders(length: int, key: int, bit: int) -> None:
    assert unrelated(ours(length, key), ours(length, key ^ 1 << bit))


@given(length=st.integers(2048, 10_000), key=KEYS, epoch=st.integers(0, 1000))
@settings(max_examples=60)
def test_two_epochs_have_unrelated_orders(length: int, key: int, epoch: int) -> None:
    shuffle = FullShuffle(length, key=key)
    index = np.arange(length)
    assert unrelated(shuffle.rows(index, epoch), shuffle.rows(index, epoch + 1))


def test_related_orders_are_found_out() -> None:
    order = ours(5000, 1)
    assert not unrelated(order, order)
    assert not unrelated(order, (order + 7) % 5000)
    assert not unrelated(order, (order * 7) % 5000)


@pytest.mark.parametrize("length", [2048, 5000, 65_536])
def test_a_pass_asked_for_again_is_the_same(length: int) -> None:
    index = np.arange(length)
    first = FullShuffle(length, key=9).rows(index, 3)
    shuffle = FullShuffle(length, key=9)
    shuffle.rows(index, 4)
    assert (shuffle.rows(index, 3) == first).all()
    assert [shuffle.row(at, 3) for at in range(0, length, 97)] == first[::97].tolist()
