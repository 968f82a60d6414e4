"""A keyed permutation is a bijection at every length, the same one element at a time or all at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.order.permute import derived_key, mixed, mixed_many, permuted, permuted_one

KEYS = st.integers(0, 2**64 - 1)
BIG = st.integers(2, 2**53 - 1) | st.integers(1, 52).flatmap(lambda bits: st.integers(2**bits - 1, 2**bits + 1))


@pytest.mark.parametrize("key", [0, 1, 2**64 - 1, derived_key(0, "rows"), derived_key(1, "rows")])
def test_every_place_is_taken_exactly_once_at_every_length_up_to_600(key: int) -> None:
    for length in range(1, 601):
        places = permuted(np.arange(length), length=length, key=key)
        assert (np.sort(places) == np.arange(length)).all(), length


@given(length=st.integers(601, 20_000), key=KEYS)
@settings(max_examples=120)
def test_every_place_is_taken_exactly_once_at_longer_lengths(length: int, key: int) -> None:
    places = permuted(np.arange(length), length=length, key=key)
    assert (np.bincount(places, minlength=length) == 1).all()


@given(length=BIG, key=KEYS, seed=st.integers(0, 2**32))
@settings(max_examples=150)
def test_no_two_of_many_places_collide_at_any_length(length: int, key: int, seed: int) -> None:
    index = np.unique(np.random.default_rng(seed).integers(0, length, 2000))
    places = permuted(index, length=length, key=key)
    assert len(np.unique(places)) == len(index)
    assert places.min() >= 0
    assert places.max() < length


@given(length=BIG | st.integers(1, 70), key=KEYS, seed=st.integers(0, 2**32))
@settings(max_examples=150)
def test_one_at_a_time_is_the_same_as_all_at_once(length: int, key: int, seed: int) -> None:
    index = np.append(np.random.default_rng(seed).integers(0, length, 20), [0, length - 1])
    one_by_one = [permuted_one(place, length=length, key=key) for place in index.tolist()]
    assert permuted(index, length=length, key=key).tolist() == one_by_one
    assert permuted(int(index[0]), length=length, key=key).tolist() == one_by_one[:1]


@given(
    columns=st.lists(st.tuples(BIG | st.integers(1, 5), KEYS, st.integers(0, 2**53)), min_size=1, max_size=40),
)
@settings(max_examples=120)
def test_each_element_may_have_a_length_and_a_key_of_its_own(columns: list[tuple[int, int, int]]) -> None:
    lengths = np.array([length for length, _, _ in columns])
    keys = np.array([key for _, key, _ in columns], np.uint64)
    index = np.array([place % length for length, _, place in columns])
    expected = [
        permuted_one(place, length=length, key=key)
        for place, length, key in zip(index.tolist(), lengths.tolist(), keys.tolist(), strict=True)
    ]
    assert permuted(index, length=lengths, key=keys).tolist() == expected
    one_key = int(keys[0])
    same_key = [
        permuted_one(place, length=length, key=one_key)
        for place, length in zip(index.tolist(), lengths.tolist(), strict=True)
    ]
    assert permuted(index, length=lengths, key=one_key).tolist() == same_key


def test_nothing_permuted_is_nothing() -> None:
    none = np.empty(0, np.int64)
    assert len(permuted(none, length=10, key=3)) == 0
    assert len(permuted(none, length=none, key=none.astype(np.uint64))) == 0


def test_the_argument_is_left_alone() -> None:
    index = np.arange(1000, dtype=np.uint64)
    permuted(index, length=1000, key=5)
    assert (index == np.arange(1000)).all()


@given(key=KEYS, values=st.lists(st.integers(0, 2**40), min_size=1, max_size=20))
@settings(max_examples=120)
def test_many_keys_are_derived_as_one_is(key: int, values: list[int]) -> None:
    expected = [mixed(key, value) for value in values]
    assert mixed_many(key, values).tolist() == expected
    assert mixed_many(np.full(len(values), key, np.uint64), np.array(values)).tolist() == expected


def test_keys_below_one_key_never_meet() -> None:
    keys = mixed_many(derived_key(7, "rows"), np.arange(300_000))
    assert len(np.unique(keys)) == len(keys)


@given(st.lists(st.integers() | st.text(max_size=5), min_size=1, max_size=4))
@settings(max_examples=120)
def test_a_key_depends_on_every_part_and_its_kind(parts: list[int | str]) -> None:
    key = derived_key(*parts)
    assert 0 <= key < 2**64
    assert key == derived_key(*parts)
    assert key != derived_key(*parts, 0)
    for at, part in enumerate(parts):
        other: int | str = f"{part}" if isinstance(part, int) else part + "x"
        assert derived_key(*parts[:at], other, *parts[at + 1 :]) != key
