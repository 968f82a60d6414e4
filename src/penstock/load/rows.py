"""Rows of a plan → tokens in one block of memory.

Looks up where many rows lie at once, then copies them a few at a time, while they are still in the caches.
"""

from bisect import bisect_left
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
        self._padded: list[int] = []
        """Rows that have to be filled up, rising."""
        if len(segments.row) == len(numbers) and not maker.whole_documents:
            self._place_chunks(segments)
        else:
            self._place_pieces(segments, source)

    def masked_in(self, first: int, last: int) -> NDArray[np.int64]:
        """The masked positions of rows `first` up to `last`."""
        if not len(self._masked):
            return _NONE
        seq_len = self._maker.seq_len
        begin, end = np.searchsorted(self._masked, [first * seq_len, last * seq_len])
        return self._masked[begin:end]

    def is_padded(self, first: int, last: int) -> bool:
        """Whether one of the rows `first` up to `last` has to be filled up."""
        at = bisect_left(self._padded, first)
        return at < len(self._padded) and self._padded[at] < last

    def bounds_in(self, first: int, last: int) -> NDArray[np.int64]:
        """Where the segments of rows `first` up to `last` begin, these rows end to end, and where the last one ends."""
        if not self._maker.whole_documents:
            ends = np.cumsum(self.documents_in(first, last)[0])
            return np.concatenate([[0], ends])
        bounds = self._bounds[self._first_bound[first] : self._first_bound[last] + 1]
        return bounds - first * self._maker.seq_len

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
            if room := self.room.get(row, 0):
                lengths.append(np.array([room]))
                numbers.append(np.array([NO_DOCUMENT]))
        return np.concatenate(lengths), np.concatenate(numbers)

    def _place_chunks(self, segments: Segments) -> None:
        """One segment a row, and few of them short."""
        maker = self._maker
        self.first_segment: Sequence[int] = range(len(self.numbers) + 1)
        """Of each row; one more at the end."""
        self.stops: list[int] = ((segments.start + segments.length + segments.goes_on) * maker.token_bytes).tolist()
        """Where each segment ends, in bytes, the label of its last token included where that is the next token."""
        short = np.flatnonzero(~segments.goes_on)
        self._padded = short.tolist()
        self.room: dict[int, int] = dict(
            zip(self._padded, (maker.seq_len - segments.length[short]).tolist(), strict=True)
        )
        """Padding, where a row has any."""
        self.padding: dict[int, int] = {row: (room + 1) * maker.token_bytes for row, room in self.room.items()}
        """Bytes to be filled up in a row, the token after it included."""
        first = short * maker.seq_len + segments.length[short] - 1
        self._masked = runs(first, (short + 1) * maker.seq_len - first)

    def _place_pieces(self, segments: Segments, source: NDArray[np.int64] | None) -> None:
        """Any number of segments in a row, none in a filler."""
        seq_len, token_bytes = self._maker.seq_len, self._maker.token_bytes
        num_rows, goes_on = len(self.numbers), segments.goes_on
        first_segment = np.searchsorted(segments.row, np.arange(num_rows + 1))
        self.first_segment = first_segment.tolist()
        counts = np.diff(first_segment)
        ends = np.concatenate([[0], np.cumsum(segments.length)])
        room = seq_len - (ends[first_segment[1:]] - ends[first_segment[:-1]])
        stops = segments.start + segments.length + goes_on
        # After a full row comes a token whose label is masked, so any will do: the next in the shard, if there is one.
        full = np.flatnonzero((room == 0) & (counts > 0))
        lasts = first_segment[full + 1] - 1
        inside = stops[lasts] < self._maker.shard_tokens(
            segments.shard[lasts], None if source is None else source[lasts]
        )
        stops[lasts[inside & ~goes_on[lasts]]] += 1
        self.stops = (stops * token_bytes).tolist()
        needs = np.ones(num_rows, bool)
        needs[full[inside | goes_on[lasts]]] = False
        short, filled = np.flatnonzero(room), np.flatnonzero(needs)
        self._padded = filled.tolist()
        self.room = dict(zip(short.tolist(), room[short].tolist(), strict=True))
        self.padding = dict(zip(self._padded, ((room[filled] + 1) * token_bytes).tolist(), strict=True))
        # Padding is a segment too.
        self._first_bound = first_segment + np.concatenate([[0], np.cumsum(room > 0)])
        lengths = np.empty(int(self._first_bound[-1]), np.int64)
        shift = self._first_bound[:-1] - first_segment[:-1]
        lengths[np.arange(len(segments.row)) + shift[segments.row]] = segments.length
        lengths[self._first_bound[short + 1] - 1] = room[short]
        self._bounds = np.concatenate([[0], np.cumsum(lengths)])
        last = segments.row * seq_len + ends[1:] - ends[first_segment[:-1]][segments.row] - 1
        padding = runs(np.arange(1, num_rows + 1) * seq_len - room, room)
        self._masked = np.sort(np.concatenate([last[~goes_on], padding]))


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

    def shard_tokens(self, shard: NDArray[np.int64], source: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """How many tokens these shards have; `source`: whose they are, where there are several datasets."""
        if source is None:
            return self.datasets[0].shard_tokens[shard]
        firsts = np.cumsum([0, *(len(dataset.shards) for dataset in self.datasets)])
        return np.concatenate([dataset.shard_tokens for dataset in self.datasets])[firsts[source] + shard]

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
        if rows.is_padded(first, last):
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
            if room := rows.padding.get(row, 0):
                filled.append(self._padding[:room])
        return filled
