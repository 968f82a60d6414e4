"""Which source each row of a mixture comes from.

Rows come in blocks; every block holds the same number of rows of each source, in an order of its own. Weights may
change from a given row on: each source goes on where it was, so nothing repeats.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigError
from penstock.order.permute import mixed, mixed_many, permuted

_LEAST_BLOCK: Final = 256
_MOST_BLOCK: Final = 1 << 12
_FINEST: Final = 10**6
_SLACK: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows with the same weights."""

    first_row: int
    counts: tuple[int, ...]
    """Rows of each source in a block."""
    before: tuple[int, ...]
    """Rows of each source in all stretches before this one."""

    @property
    def block(self) -> int:
        return sum(self.counts)


def block_counts(weights: Sequence[float], block: int | None = None) -> tuple[int, ...]:
    """How many rows of a block each source gets: exactly its weight where that is a short fraction."""
    if not weights:
        raise ConfigError("a mixture needs at least one dataset")
    if any(not weight >= 0 for weight in weights) or abs(sum(weights) - 1) > _SLACK:
        shown = ", ".join(f"{weight:g}" for weight in weights)
        raise ConfigError(f"weights must not be negative and must sum to 1; {shown} sum to {sum(weights):g}")
    exact = [Fraction(weight).limit_denominator(_FINEST) for weight in weights]
    if block is None:
        unit = lcm(*(share.denominator for share in exact))
        block = unit * -(-_LEAST_BLOCK // unit) if unit <= _MOST_BLOCK else _MOST_BLOCK
    counts = [int(share * block) for share in exact]
    # Largest remainders get what rounding down left over.
    by_remainder = sorted(range(len(exact)), key=lambda source: (counts[source] - exact[source] * block, source))
    for source in by_remainder[: block - sum(counts)]:
        counts[source] += 1
    for source, weight in enumerate(weights):
        if weight > 0 and counts[source] == 0:
            raise ConfigError(
                f"weight {weight:g} is less than one row in a block of {block}; use a larger block, at least "
                f"{int(1 / weight) + 1}"
            )
    return tuple(counts)


class MixtureOrder:
    """The sources of all rows of a mixture."""

    def __init__(self, stretches: Sequence[Stretch], *, key: int) -> None:
        self.stretches = tuple(stretches)
        self._key = key
        self._firsts = [stretch.first_row for stretch in stretches]

    def sources(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each row its source, and how many rows of that source come before it."""
        source = np.empty(len(rows), np.int64)
        number = np.empty(len(rows), np.int64)
        which = np.searchsorted(self._firsts, rows, side="right") - 1
        for at in np.unique(which).tolist():
            here = np.flatnonzero(which == at)
            source[here], number[here] = self._in_stretch(at, rows[here])
        return source, number

    def used(self, row: int) -> tuple[int, ...]:
        """How many of the rows before `row` come from each source."""
        at = max(0, bisect_right(self._firsts, row) - 1)
        stretch = self.stretches[at]
        block, rest = divmod(row - stretch.first_row, stretch.block)
        first = stretch.first_row + block * stretch.block
        found, _ = self._in_stretch(at, np.arange(first, first + rest))
        partial = np.bincount(found, minlength=len(stretch.counts)).tolist()
        return tuple(
            before + block * count + more
            for before, count, more in zip(stretch.before, stretch.counts, partial, strict=True)
        )

    def _in_stretch(self, at: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        stretch = self.stretches[at]
        block, place = np.divmod(rows - stretch.first_row, stretch.block)
        # Rows of a source are numbered in the order in which they come, so that a stretch that ends inside a block has
        # used the first of them: what follows goes on where it ended.
        blocks, which = np.unique(block, return_inverse=True)
        sources, ranks = self._drawn(at, blocks)
        source = sources[which, place]
        counts = np.array(stretch.counts, np.int64)
        number = np.array(stretch.before)[source] + block * counts[source] + ranks[which, place]
        return source, number

    def _drawn(self, at: int, blocks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each place of each block its source, and how many rows of that source come before it in the block."""
        stretch = self.stretches[at]
        size = stretch.block
        keys = mixed_many(mixed(self._key, stretch.first_row), blocks)
        places = np.tile(np.arange(size), len(blocks))
        drawn = permuted(places, length=size, key=np.repeat(keys, size)).reshape(len(blocks), size)
        sources = np.searchsorted(np.cumsum(stretch.counts), drawn, side="right")
        ranks = np.empty_like(sources)
        for source in range(len(stretch.counts)):
            mine = sources == source
            ranks[mine] = (np.cumsum(mine, axis=1) - 1)[mine]
        return sources, ranks


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of all sources from a row on."""

    from_row: int
    weights: tuple[float, ...]


def mixture_order(
    changes: Sequence[Weights],
    *,
    most_rows: Mapping[int, int],
    num_rows: int | None,
    block: int | None,
    key: int,
) -> tuple[MixtureOrder, int]:
    """The order that `changes` of weights give, and how many rows it has.

    `most_rows` caps sources: one that has no more rows for a whole block leaves, and the others share its place.
    Without `num_rows`, the order ends when no source is left.
    """
    num_sources = max(len(change.weights) for change in changes)
    stretches: list[Stretch] = []
    row, before = 0, (0,) * num_sources
    for number, change in enumerate(changes):
        following = changes[number + 1].from_row if number + 1 < len(changes) else num_rows
        weights = [*change.weights, *[0.0] * (num_sources - len(change.weights))]
        while following is None or row < following:
            weights, counts = _affordable(weights, before, most_rows, block)
            if counts is None:
                break
            stretch = Stretch(row, counts, before)
            stretches.append(stretch)
            blocks = min(
                ((cap - before[source]) // counts[source] for source, cap in most_rows.items() if counts[source]),
                default=None,
            )
            until = None if blocks is None else row + blocks * stretch.block
            if until is None and following is None:
                raise ConfigError(
                    "this mixture never ends: give the plan max_steps, or every source a limit with max_epochs"
                )
            row = min(end for end in (until, following) if end is not None)
            before = MixtureOrder(stretches, key=key).used(row)
        if following is not None and row < following:
            raise ConfigError(
                f"the mixture has {row:,} rows before its sources reach their max_epochs, {following:,} are asked for; "
                "allow more epochs or fewer steps"
            )
    if not stretches:
        raise ConfigError("a mixture has no row: no dataset has enough rows for one block; use a smaller block")
    return MixtureOrder(stretches, key=key), row


def _affordable(
    weights: list[float], before: tuple[int, ...], most_rows: Mapping[int, int], block: int | None
) -> tuple[list[float], tuple[int, ...] | None]:
    """Weights without the sources that cannot give a whole block any more, and what each gives to a block."""
    while sum(weights) > 0:
        total = sum(weights)
        weights = [weight / total for weight in weights]
        counts = block_counts(weights, block)
        spent = [
            source for source, cap in most_rows.items() if counts[source] and cap - before[source] < counts[source]
        ]
        if not spent:
            return weights, counts
        weights = [0.0 if source in spent else weight for source, weight in enumerate(weights)]
    return weights, None
