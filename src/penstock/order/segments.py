"""Rows as stretches of the token stream: what the kinds of rows have in common.

A row is made of segments, each inside one shard; what is left of the row after the last one is padding. The stream of a
dataset is all of its shards' tokens end to end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

TOKEN_COST: Final = 12 * 4096.0
"""What the matrix products for one token cost, where attention over a document of n tokens costs n²: twelve times the
model's width. This is that of a model of seven billion weights."""


@dataclass(frozen=True, slots=True)
class Segments:
    """The stretches that some rows are made of, in the order of the rows."""

    row: NDArray[np.int64]
    """Which of the rows that were asked for, from 0."""
    shard: NDArray[np.int64]
    start: NDArray[np.int64]
    """Where in its shard it begins."""
    length: NDArray[np.int64]
    goes_on: NDArray[np.bool_]
    """Whether the token after its last one is the label of that one."""

    def shifted(self, rows: NDArray[np.int64]) -> "Segments":
        """The same segments, of the rows numbered `rows`."""
        return Segments(rows[self.row], self.shard, self.start, self.length, self.goes_on)


def merged(parts: Sequence[Segments]) -> tuple[Segments, NDArray[np.int64]]:
    """Segments of different rows in the order of the rows, and which of `parts` each comes from."""
    row = np.concatenate([part.row for part in parts])
    order = np.argsort(row, kind="stable")
    origin = np.repeat(np.arange(len(parts)), [len(part.row) for part in parts])
    together = Segments(
        row[order],
        np.concatenate([part.shard for part in parts])[order],
        np.concatenate([part.start for part in parts])[order],
        np.concatenate([part.length for part in parts])[order],
        np.concatenate([part.goes_on for part in parts])[order],
    )
    return together, origin[order]


class RowSource(Protocol):
    """The rows of one pass over one dataset, before they are shuffled."""

    @property
    def num_rows(self) -> int: ...

    @property
    def seq_len(self) -> int: ...

    @property
    def whole_documents(self) -> bool:
        """Whether a segment is a document, or a piece of one, and nothing else."""
        ...

    def segments(self, rows: NDArray[np.int64], epoch: int) -> Segments:
        """What `rows` are made of in that pass."""
        ...

    def costs(self, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """What each row costs: its tokens, weighed, plus the squares of segment lengths. None if all cost the same."""
        ...
