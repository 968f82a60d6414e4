"""Rows cut from the token stream every `seq_len` tokens.

A row never crosses from one shard into the next, so each needs one shard only; a shard's last row may be short.
Every token is in exactly one row.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.order.segments import Segments


class ChunkRows:
    """The rows of a dataset whose shards have `shard_tokens` tokens."""

    whole_documents = False

    def __init__(self, shard_tokens: Sequence[int] | NDArray[np.int64], seq_len: int) -> None:
        self.seq_len = seq_len
        self._tokens = np.asarray(shard_tokens, np.int64)
        num_rows = -(-self._tokens // seq_len)
        self._row_ends = np.cumsum(num_rows)
        self._row_starts = self._row_ends - num_rows
        self._ends_list: list[int] = self._row_ends.tolist()

    @property
    def num_rows(self) -> int:
        return int(self._row_ends[-1]) if len(self._row_ends) else 0

    @property
    def num_tokens(self) -> int:
        return int(self._tokens.sum())

    def segments(self, rows: NDArray[np.int64], epoch: int) -> Segments:
        """One segment a row. The label of its last token is the token after it, unless the shard ends there."""
        if len(self._tokens) == 1:
            shard, start, size = np.zeros(len(rows), np.int64), rows * self.seq_len, self._tokens[0]
        else:
            shard = np.searchsorted(self._row_ends, rows, side="right")
            start = (rows - self._row_starts[shard]) * self.seq_len
            size = self._tokens[shard]
        left = size - start
        return Segments(np.arange(len(rows)), shard, start, np.minimum(left, self.seq_len), left > self.seq_len)

    def segment(self, row: int) -> tuple[int, int, int]:
        """Shard, start and length of one row's segment, in plain integers."""
        shard = bisect_right(self._ends_list, row)
        start = (row - int(self._row_starts[shard])) * self.seq_len
        return shard, start, min(int(self._tokens[shard]) - start, self.seq_len)

    def costs(self, rows: NDArray[np.int64]) -> None:
        """All rows cost the same: attention runs over the whole row."""
        return None
