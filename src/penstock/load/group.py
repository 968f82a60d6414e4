"""Batches that lie in one block of memory, and what is made for all of them at once.

Shapes: R rows of the group, B rows of a batch, T tokens of a row.
"""

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

MASKED: Final = -100
"""The label of a position that has none: what torch's cross entropy ignores."""

Array = Any
"""A numpy array or a torch tensor, as the loader was asked for."""

Augment = Callable[[NDArray[Any], NDArray[Any], NDArray[np.int64]], tuple[NDArray[Any], NDArray[Any]]]
"""Input ids, labels and row numbers → other input ids and labels. Pure, so that a run stays a pure function."""


class Documented(Protocol):
    """What knows how some rows are made up. Positions count from the first of all its rows."""

    def masked_in(self, first: int, last: int) -> NDArray[np.int64]:
        """Positions without a label in rows `first` up to `last`, rising."""
        ...

    def bounds_in(self, first: int, last: int) -> NDArray[np.int64]:
        """Where the segments of these rows begin, padding included, and where the last one ends; from 0."""
        ...

    def documents_in(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lengths of these segments, and the document of each."""
        ...


class Group:
    """Some batches that follow each other. What is not asked for is not made."""

    def __init__(
        self,
        *,
        tokens: NDArray[Any],
        documented: Documented,
        first: int,
        micro: int,
        numbers: NDArray[np.int64],
        steps: list[int],
        cursors: list[int],
        keys: tuple[str, ...],
        wrap: Callable[[NDArray[Any]], Array],
        shift_labels: bool = True,
        augment: Augment | None = None,
    ) -> None:
        self.tokens = tokens
        """(R, T + 1): each row and the token after it."""
        self.micro = micro
        """B."""
        self.numbers, self.steps, self.cursors = numbers, steps, cursors
        """Of the rows in the plan; of the batches."""
        self.keys, self.wrap, self.shift_labels, self.augment = keys, wrap, shift_labels, augment
        self._documented, self._first = documented, first
        self.seq_len: int = tokens.shape[1] - 1

    def rows(self, number: int) -> slice:
        """The rows of a batch."""
        return slice(number * self.micro, (number + 1) * self.micro)

    @cached_property
    def inputs(self) -> tuple[list[Array], list[Array]]:
        """Ids and labels of all batches."""
        ids_RT = self.tokens[:, :-1]
        labels_RT = self.tokens[:, 1:] if self.shift_labels else ids_RT
        unsigned = labels_RT.dtype.kind == "u"
        if len(self.masked_labels) or unsigned:
            labels_RT = labels_RT.astype(np.int64 if unsigned else labels_RT.dtype, order="C")
            labels_RT.reshape(-1)[self.masked_labels] = MASKED
        if self.augment is None:
            return self._cut(ids_RT), self._cut(labels_RT)
        batches = [self.rows(number) for number in range(len(self.cursors))]
        both = [self.augment(ids_RT[rows], labels_RT[rows], self.numbers[rows]) for rows in batches]
        return [self.wrap(ids) for ids, _ in both], [self.wrap(labels) for _, labels in both]

    @cached_property
    def positions(self) -> list[Array]:
        """Of all batches, in int32."""
        bounds = self._bounds
        starts = np.repeat(bounds[:-1], bounds[1:] - bounds[:-1])
        return self._cut(np.subtract(_upward(len(starts)), starts, out=starts).reshape(len(self.tokens), -1))

    def bounds(self, number: int) -> NDArray[np.int32]:
        """Where the segments of one batch begin, and where the last one ends."""
        first, last = self._bound_numbers[number], self._bound_numbers[number + 1]
        return self._bounds[first : last + 1] - np.int32(number * self.micro * self.seq_len)

    def documents(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lengths and documents of the segments of one batch."""
        first = self._first + number * self.micro
        return self._documented.documents_in(first, first + self.micro)

    def masked(self, number: int) -> NDArray[np.int64]:
        """Positions of one batch that have no next token to learn."""
        first = self._first + number * self.micro
        found = self._documented.masked_in(first, first + self.micro)
        return found - first * self.seq_len if len(found) else found

    def masked_labels_of(self, number: int) -> NDArray[np.int64]:
        """Positions of one batch whose label is masked."""
        size = self.micro * self.seq_len
        first, last = np.searchsorted(self.masked_labels, [number * size, (number + 1) * size])
        return self.masked_labels[first:last] - number * size

    @cached_property
    def masked_labels(self) -> NDArray[np.int64]:
        """Positions of the group whose label is masked, rising.

        Labels that are not shifted are masked one further on, unless that is in another row; a filler's all are.
        """
        masked = self._documented.masked_in(self._first, self._first + len(self.tokens))
        if not len(masked):
            return masked
        masked = masked - self._first * self.seq_len
        if self.shift_labels:
            return masked
        fillers = np.flatnonzero(self.numbers < 0) * self.seq_len
        return np.sort(np.concatenate([fillers, masked[(masked + 1) % self.seq_len != 0] + 1]))

    @cached_property
    def _bounds(self) -> NDArray[np.int32]:
        return self._documented.bounds_in(self._first, self._first + len(self.tokens)).astype(np.int32)

    @cached_property
    def _bound_numbers(self) -> list[int]:
        edges = np.arange(len(self.cursors) + 1) * (self.micro * self.seq_len)
        numbers: list[int] = np.searchsorted(self._bounds, edges).tolist()
        return numbers

    def _cut(self, array_RT: NDArray[Any]) -> list[Array]:
        """One (B, T) for each batch."""
        return list(self.wrap(array_RT.reshape(len(self.cursors), self.micro, -1)))


@lru_cache(maxsize=4)
def _upward(length: int) -> NDArray[np.int32]:
    return np.arange(length, dtype=np.int32)


def itself(array: NDArray[Any]) -> NDArray[Any]:
    """For users of numpy."""
    return array
