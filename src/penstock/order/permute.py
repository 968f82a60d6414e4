"""Where things land when they are shuffled.

Arithmetic: the same arguments give the same answer on any machine, any element can be asked for alone, and nothing
is stored. A Feistel network over the next power of two, walked until it lands inside the range.
"""

import hashlib
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MASK: Final = (1 << 64) - 1
_ROUNDS: Final = 6
_STEP: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB
_HALF: Final = np.uint64(32)
_LEAST_BITS: Final = 2


def derived_key(*parts: int | str) -> int:
    """A 64-bit key for one purpose: different parts, different and unrelated keys."""
    data = "\x00".join(f"{type(part).__name__}:{part}" for part in parts).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def mixed(key: int, value: int) -> int:
    """The key number `value` below `key`."""
    bits = (key + (value + 1) * _STEP) & _MASK
    bits = ((bits ^ (bits >> 30)) * _FIRST) & _MASK
    bits = ((bits ^ (bits >> 27)) * _SECOND) & _MASK
    return bits ^ (bits >> 31)


def mixed_many(key: ArrayLike, values: ArrayLike) -> NDArray[np.uint64]:
    """`mixed` of many values, or of many keys, or both."""
    # At least one dimension: scalars would warn where they wrap around, which is meant.
    bits = np.asarray(key, np.uint64) + (np.array(values, np.uint64, ndmin=1) + np.uint64(1)) * np.uint64(_STEP)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(_FIRST)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(_SECOND)
    result: NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return result


def permuted(index: ArrayLike, *, length: int | NDArray[Any], key: int | NDArray[Any]) -> NDArray[np.int64]:
    """Where each `index` lands among `length`, which is below 2**53.

    A bijection on range(length) for every key: each place is taken exactly once. `length` and `key` may be arrays, one
    element for each index.
    """
    places = np.array(index, np.uint64, ndmin=1)
    lengths = np.asarray(length, np.uint64)
    keys = np.asarray(key, np.uint64)
    if lengths.ndim == 0 and int(lengths) <= 1:
        return places.astype(np.int64)
    if lengths.ndim:
        # What has nowhere to go stays where it is.
        moving = np.flatnonzero(lengths > 1)
        if len(moving) < len(places):
            chosen = keys[moving] if keys.ndim else keys
            if len(moving):
                places[moving] = permuted(places[moving], length=lengths[moving], key=chosen).astype(np.uint64)
            return places.astype(np.int64)
    right_bits, left_bits = _halves(lengths)
    places = _rounds(places, right_bits, left_bits, keys)
    outside = np.flatnonzero(places >= lengths)
    while len(outside):
        some = [value[outside] if value.ndim else value for value in (right_bits, left_bits, keys, lengths)]
        walked = _rounds(places[outside], some[0], some[1], some[2])
        places[outside] = walked
        outside = outside[walked >= some[3]]
    return places.astype(np.int64)


def permuted_one(index: int, *, length: int, key: int) -> int:
    """`permuted` of one index, in plain integers: a few microseconds."""
    if length <= 1:
        return index
    bits = max(_LEAST_BITS, (length - 1).bit_length())
    right_bits = bits >> 1
    left_bits = bits - right_bits
    keys = [mixed(key, number) for number in range(_ROUNDS)]
    place = index
    while True:
        left, right = place >> right_bits, place & ((1 << right_bits) - 1)
        for number in range(0, _ROUNDS, 2):
            left ^= _scrambled_one(right, keys[number]) >> (64 - left_bits)
            right ^= _scrambled_one(left, keys[number + 1]) >> (64 - right_bits)
        place = left << right_bits | right
        if place < length:
            return place


def _halves(lengths: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """How many bits the right and the left half of a place have."""
    bits = np.frexp((lengths - np.uint64(1)).astype(np.float64))[1].astype(np.uint64)
    bits = np.maximum(bits, np.uint64(_LEAST_BITS))
    right = bits >> np.uint64(1)
    return right, bits - right


def _rounds(
    places: NDArray[np.uint64], right_bits: NDArray[np.uint64], left_bits: NDArray[np.uint64], keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    left = places >> right_bits
    right = places & ((np.uint64(1) << right_bits) - np.uint64(1))
    left_shift, right_shift = np.uint64(64) - left_bits, np.uint64(64) - right_bits
    round_keys: list[Any] = [mixed_many(keys, number) for number in range(_ROUNDS)] if keys.ndim else _keys(int(keys))
    for number in range(0, _ROUNDS, 2):
        left ^= _scrambled(right, round_keys[number]) >> left_shift
        right ^= _scrambled(left, round_keys[number + 1]) >> right_shift
    result: NDArray[np.uint64] = left << right_bits | right
    return result


@lru_cache(maxsize=64)
def _keys(key: int) -> list[np.uint64]:
    return [np.uint64(mixed(key, number)) for number in range(_ROUNDS)]


def _scrambled(half: NDArray[np.uint64], key: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """64 bits that depend on all of `half` and `key`; the highest depend on them most."""
    bits = half ^ key
    bits *= np.uint64(_FIRST)
    bits ^= bits >> _HALF
    bits *= np.uint64(_SECOND)
    return bits


def _scrambled_one(half: int, key: int) -> int:
    bits = ((half ^ key) * _FIRST) & _MASK
    bits ^= bits >> 32
    return (bits * _SECOND) & _MASK
