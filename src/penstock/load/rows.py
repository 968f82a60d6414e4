"""Rows of a plan → tokens in one block of memory.

Looks up where many rows lie at once, then copies them a few at a time, while they are still in the caches.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.load.dataset import Dataset
from penstock.load.plan import Plan
from penstock.order.best_fit import runs
from penstock.order.schedule import FILLER
from penstock.order.segments import Segments

_NONE: Final = np.empty(0, np.int64)
NO_DOCUMENT: Final = -1
"""The document of padding."""


class PlacedRows:
    """Where some rows lie: their segments in shards, row by row, and what in them has no label."""

    def __init__(
        self,
        maker: "RowMaker",
        numbers: NDArray[np.int64],
        segments: Segments,
        source: NDArray[np.int64] | None,
    ) -> None:
        self._maker = maker
        self.numbers = numbers
        """In the plan; FILLER for a row that is none."""
        self.lengths = segments.length
        """Of each segment."""
        self.sources: list[int] | None = None if source is None else source.tolist()
        """Which dataset each segment is from, where there is more than one."""
        self.shards: list[int] = segments.shard.tolist()
        self.starts: list[int] = (segments.start * maker.token_bytes).tolist()
        """In its shard, in bytes."""
        self.even = len(segments.row) == len(numbers) and bool(segments.goes_on.all())
        """Whether every row is simply one stretch of tokens and the one after it."""
        if self.even:
            self.stops: list[int] = ((segments.start + (maker.seq_len + 1)) * maker.token_bytes).tolist()
            """Where each segment ends, in bytes, the label of its last token included where that is the next token."""
            self.first_segment: Sequence[int] = range(len(numbers) + 1)
            """Of each row; one more at the end."""
        else:
            self._place_uneven(segments, maker.seq_len)

    def masked_in(self, first: int, last: int) -> NDArray[np.int64]:
        """The masked positions of rows `first` up to `last`."""
        if self.even or self.masked_starts[first] == self.masked_starts[last]:
            return _NONE
        return self.masked[self.masked_starts[first] : self.masked_starts[last]]

    def bounds_in(self, first: int, last: int) -> NDArray[np.int64]:
        """Where the segments of rows `first` up to `last` begin, these rows end to end, and where the last one ends."""
        if not self._maker.whole_documents:
            ends = np.cumsum(self.documents_in(first, last)[0])
            return np.concatenate([[0], ends])
        seq_len = self._maker.seq_len
        if self.even:
            return np.arange(0, (last - first + 1) * seq_len, seq_len)
        bounds = self.bounds[self.first_bound[first] : self.first_bound[last] + 1]
        return bounds - first * seq_len

    def documents_in(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lengths and documents of the segments of rows `first` up to `last`, padding included."""
        lengths: list[NDArray[np.int64]] = []
        numbers: list[NDArray[np.int64]] = []
        for row in range(first, last):
            for at in range(self.first_segment[row], self.first_segment[row + 1]):
                source = self.sources[at] if self.sources else 0
                dataset = self._maker.datasets[source]
                found, sizes = dataset.documents(
                    self.shards[at], self.starts[at] // self._maker.token_bytes, int(self.lengths[at])
                )
                lengths.append(sizes)
                numbers.append(found + self._maker.first_documents[source])
            if not self.even and (room := int(self.room[row])):
                lengths.append(np.array([room]))
                numbers.append(np.array([NO_DOCUMENT]))
        return np.concatenate(lengths), np.concatenate(numbers)

    def _place_uneven(self, segments: Segments, seq_len: int) -> None:
        num_rows, goes_on = len(self.numbers), segments.goes_on
        self.stops = ((segments.start + segments.length + goes_on) * self._maker.token_bytes).tolist()
        first_segment = np.searchsorted(segments.row, np.arange(num_rows + 1))
        self.first_segment = first_segment.tolist()
        counts = np.diff(first_segment)
        ends = np.concatenate([[0], np.cumsum(segments.length)])
        has_next = np.append(goes_on, False)[first_segment[1:] - 1] & (counts > 0)
        self.room = seq_len - (ends[first_segment[1:]] - ends[first_segment[:-1]])
        """Padding in each row."""
        self.padding: list[int] = ((self.room + 1 - has_next) * self._maker.token_bytes).tolist()
        """Bytes to be filled up in each row, the token after it included."""
        self.num_uneven: list[int] = np.concatenate([[0], np.cumsum((counts != 1) | ~has_next)]).tolist()
        """How many of the rows before each are not even."""
        # Padding is a segment too.
        first_bound = first_segment + np.concatenate([[0], np.cumsum(self.room > 0)])
        lengths = np.empty(int(first_bound[-1]), np.int64)
        lengths[np.arange(len(segments.row)) + (first_bound[:-1] - first_segment[:-1])[segments.row]] = segments.length
        short = np.flatnonzero(self.room)
        lengths[first_bound[short + 1] - 1] = self.room[short]
        self.bounds = np.concatenate([[0], np.cumsum(lengths)])
        """Where segments begin, padding included, all rows end to end; one more at the end."""
        self.first_bound: list[int] = first_bound.tolist()
        """Of each row; one more at the end."""
        last = segments.row * seq_len + ends[1:] - ends[first_segment[:-1]][segments.row] - 1
        padding = runs(np.arange(1, num_rows + 1) * seq_len - self.room, self.room)
        self.masked: NDArray[np.int64] = np.sort(np.concatenate([last[~goes_on], padding]))
        """Positions without a label, all rows end to end."""
        self.masked_starts: list[int] = np.searchsorted(self.masked, np.arange(num_rows + 1) * seq_len).tolist()
        """Where the masked positions of each row begin; one more at the end."""


class RowMaker:
    """Makes the rows of one plan."""

    def __init__(self, plan: Plan, dtype: np.dtype[Any]) -> None:
        self._schedule = plan.schedule
        self.datasets: tuple[Dataset, ...] = plan.datasets
        self._width = plan.seq_len + 1
        self.dtype = dtype
        self._stored_dtype = plan.datasets[0].dtype
        self.token_bytes = self._stored_dtype.itemsize
        self._padding = np.full(self._width, plan.eos_id, self._stored_dtype).view(np.uint8).data
        self.seq_len = plan.seq_len
        self.whole_documents = plan.rows == "best_fit"
        documents = [dataset.num_documents for dataset in self.datasets]
        self.first_documents = (np.cumsum(documents) - documents).tolist()

    def placed(self, places: NDArray[np.int64]) -> PlacedRows:
        """Where the rows at `places` of the plan lie. FILLER is a row of padding."""
        real = np.flatnonzero(places != FILLER)
        everything = len(real) == len(places)
        located = self._schedule.located(places if everything else places[real])
        segments, source = self._schedule.segments(located)
        numbers = located.row
        if not everything:
            segments = segments.shifted(real)
            numbers = np.full(len(places), FILLER)
            numbers[real] = located.row
        return PlacedRows(self, numbers, segments, source if len(self.datasets) > 1 else None)

    def tokens(self, rows: PlacedRows, first: int, last: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The tokens of rows `first` up to `last`, and after each row the label of its last token."""
        pieces = self._pieces(rows, rows.first_segment[first], rows.first_segment[last])
        if not rows.even and rows.num_uneven[last] != rows.num_uneven[first]:
            pieces = self._filled_up(rows, first, last, pieces)
        # Joining bytes and casting all of them at once is faster than anything that numpy does piece by piece.
        stored = np.frombuffer(bytearray().join(pieces), self._stored_dtype).reshape(last - first, self._width)
        if out is None:
            return stored.astype(self.dtype, copy=False)
        np.copyto(out, stored)
        return out

    def _pieces(self, rows: PlacedRows, first: int, last: int) -> list[memoryview]:
        where = slice(first, last)
        shards, starts, stops = rows.shards[where], rows.starts[where], rows.stops[where]
        if rows.sources is None:
            stored = self.datasets[0].stored
            return [stored[shard][start:stop] for shard, start, stop in zip(shards, starts, stops, strict=True)]
        every = [dataset.stored for dataset in self.datasets]
        return [
            every[source][shard][start:stop]
            for source, shard, start, stop in zip(rows.sources[where], shards, starts, stops, strict=True)
        ]

    def _filled_up(self, rows: PlacedRows, first: int, last: int, pieces: list[memoryview]) -> list[memoryview]:
        filled: list[memoryview] = []
        begin = rows.first_segment[first]
        for row in range(first, last):
            filled += pieces[rows.first_segment[row] - begin : rows.first_segment[row + 1] - begin]
            if room := rows.padding[row]:
                filled.append(self._padding[:room])
        return filled
