"""All rows of a run, in order, and who takes which.

Row numbers count the rows of the plan; those that are skipped keep their numbers. Places count the rows that are left:
a step is `batch_size` places, and a cursor is how many places are behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigError
from penstock.order.deal import by_cost, dealt
from penstock.order.mixture import MixtureOrder
from penstock.order.segments import RowSource, Segments, merged
from penstock.order.shuffle import Shuffle

FILLER = -1
"""The place of a row that is no row: it stands in so that every rank has the same number of rows."""


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of one dataset and the order of each pass over them."""

    rows: RowSource
    shuffle: Shuffle


@dataclass(frozen=True, slots=True)
class Located:
    """Rows of the plan as rows of datasets."""

    row: NDArray[np.int64]
    """Their numbers in the plan."""
    source: NDArray[np.int64]
    epoch: NDArray[np.int64]
    source_row: NDArray[np.int64]
    """Before shuffling: rows with near numbers lie near each other."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one rank takes in some micro-steps, one line each."""

    places: NDArray[np.int64]
    """FILLER where there is no row."""
    cursors: NDArray[np.int64]
    """How many places are behind once the micro-step is done, fillers included."""


class Schedule:
    """The order of a run. The same for every rank, world size and micro-batch."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        num_rows: int,
        batch_size: int,
        mixture: MixtureOrder | None = None,
        skip: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.sources = tuple(sources)
        self.batch_size = batch_size
        self.mixture = mixture
        self._all_rows = num_rows
        self.skip = merged_ranges(skip, num_rows)
        sizes = np.array([stop - start for start, stop in self.skip], np.int64)
        starts = np.array([start for start, _ in self.skip], np.int64)
        self._gap_places = starts - (np.cumsum(sizes) - sizes)
        self._gap_sizes = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.num_skipped = int(sizes.sum())
        self.num_rows = num_rows - self.num_skipped
        self._num_source_rows = [source.rows.num_rows for source in self.sources]

    @property
    def num_steps(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def numbered(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the rows at `places`."""
        if not self.skip:
            return places
        return places + self._gap_sizes[np.searchsorted(self._gap_places, places, side="right")]

    def located(self, places: NDArray[np.int64]) -> Located:
        """Where the rows at `places` come from."""
        rows = self.numbered(places)
        if self.mixture is None:
            source, number = np.zeros(len(rows), np.int64), rows
            epoch, index = self._epochs(number, self._num_source_rows[0])
            return Located(rows, source, epoch, self._shuffled(0, index, epoch))
        source, number = self.mixture.sources(rows)
        epoch, index = np.divmod(number, np.array(self._num_source_rows)[source])
        source_row = np.empty(len(rows), np.int64)
        for which in np.unique(source).tolist():
            here = np.flatnonzero(source == which)
            source_row[here] = self._shuffled(which, index[here], epoch[here])
        return Located(rows, source, epoch, source_row)

    def located_one(self, place: int) -> tuple[int, int, int]:
        """Source, pass and row of one place, in plain integers where there is one source."""
        if self.mixture is None:
            row = int(self.numbered(np.array([place]))[0]) if self.skip else place
            epoch, index = divmod(row, self._num_source_rows[0])
            return 0, epoch, self.sources[0].shuffle.row(index, epoch)
        found = self.located(np.array([place]))
        return int(found.source[0]), int(found.epoch[0]), int(found.source_row[0])

    def segments(self, located: Located) -> tuple[Segments, NDArray[np.int64]]:
        """What rows are made of, and the source of each segment."""
        pairs = located.source << 32 | located.epoch
        first = int(pairs[0]) if len(pairs) else 0
        if (pairs == first).all():
            found = self.sources[first >> 32].rows.segments(located.source_row, first & 0xFFFFFFFF)
            return found, np.full(len(found.row), first >> 32)
        parts: list[Segments] = []
        kinds = np.unique(pairs)
        for pair in kinds.tolist():
            here = np.flatnonzero(pairs == pair)
            rows = self.sources[pair >> 32].rows
            parts.append(rows.segments(located.source_row[here], pair & 0xFFFFFFFF).shifted(here))
        together, origin = merged(parts)
        return together, (kinds >> 32)[origin]

    def costs(self, located: Located) -> NDArray[np.float64] | None:
        """What each row costs; None if all cost the same."""
        costs = np.empty(len(located.row), np.float64)
        for which, source in enumerate(self.sources):
            here = np.flatnonzero(located.source == which) if len(self.sources) > 1 else slice(None)
            found = source.rows.costs(located.source_row[here])
            if found is None:
                return None
            costs[here] = found
        return costs

    def step_places(self, step: int) -> NDArray[np.int64]:
        """The places of a step, in the order in which they are taken, fillers last."""
        places: NDArray[np.int64] = self._steps_places(step, 1)[0]
        return places

    def _steps_places(self, step: int, num_steps: int) -> NDArray[np.int64]:
        """The same for some steps, one line each."""
        first, stop = step * self.batch_size, (step + num_steps) * self.batch_size
        places: NDArray[Any] = np.arange(first, min(stop, self.num_rows))
        costs = self.costs(self.located(places)) if len(places) else None
        if len(places) < stop - first:
            fillers = np.full(stop - first - len(places), FILLER)
            places = np.concatenate([places, fillers])
            costs = None if costs is None else np.concatenate([costs, np.zeros(len(fillers))])
        places = places.reshape(num_steps, -1)
        if costs is not None:
            places = np.take_along_axis(places, by_cost(costs.reshape(num_steps, -1)), axis=1)
        return places

    def taken(self, cursor: int, *, rank: int, world_size: int, micro_batch: int, least_rows: int) -> Taken:
        """What `rank` takes from `cursor` on: whole micro-steps, at least `least_rows` rows unless the run ends."""
        unit = world_size * micro_batch
        mine = dealt(rank, world_size=world_size, micro_batch=micro_batch)
        places: list[NDArray[np.int64]] = []
        cursors: list[NDArray[np.int64]] = []
        num_rows = 0
        while num_rows < least_rows and cursor < self.num_steps * self.batch_size:
            wanted = -(-(least_rows - num_rows) // micro_batch)
            chosen, ends = self._taken(cursor, mine, unit, wanted)
            places.append(chosen)
            cursors.append(ends)
            num_rows += chosen.size
            cursor = int(ends[-1])
        if not places:
            return Taken(np.empty((0, micro_batch), np.int64), np.empty(0, np.int64))
        return Taken(np.concatenate(places), np.concatenate(cursors))

    def _taken(
        self, cursor: int, mine: NDArray[np.int64], unit: int, wanted: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """About `wanted` micro-steps from `cursor` on: places, and cursors after each."""
        size = self.batch_size
        step, behind = divmod(cursor, size)
        if self.costs_differ:
            if behind == 0:
                num_steps = min(-(-wanted * unit // size), self.num_steps - step)
                chosen = self._steps_places(step, num_steps).reshape(-1, unit)[:, mine]
                return chosen, cursor + np.arange(1, len(chosen) + 1) * unit
            starts = np.arange(behind, size, unit)
            ordered = np.concatenate([self.step_places(step), np.full(unit, FILLER)])
            return ordered[starts[:, None] + mine], np.minimum(starts + unit, size) + step * size
        # The order inside a step is that of the rows: nothing has to be known of those of others.
        if behind % unit == 0:
            starts = np.arange(cursor, min(cursor + wanted * unit, self.num_steps * size), unit)
            chosen = starts[:, None] + mine
            if int(starts[-1]) + unit > self.num_rows:
                chosen[chosen >= self.num_rows] = FILLER
            return chosen, starts + unit
        # The rest of a step that another world size began may not divide: its last micro-step is filled up.
        starts = np.arange(behind, size, unit)
        offsets = starts[:, None] + mine
        chosen = offsets + step * size
        chosen[(offsets >= size) | (chosen >= self.num_rows)] = FILLER
        return chosen, np.minimum(starts + unit, size) + step * size

    @property
    def costs_differ(self) -> bool:
        return all(source.rows.whole_documents for source in self.sources)

    def _epochs(self, number: NDArray[np.int64], num_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._all_rows <= num_rows:
            return np.zeros(len(number), np.int64), number
        epoch, index = np.divmod(number, num_rows)
        return epoch, index

    def _shuffled(self, source: int, index: NDArray[np.int64], epoch: NDArray[np.int64]) -> NDArray[np.int64]:
        shuffle = self.sources[source].shuffle
        if not len(epoch):
            return index
        first = int(epoch[0])
        if (epoch == first).all():
            return shuffle.rows(index, first)
        rows = np.empty(len(index), np.int64)
        for number in np.unique(epoch).tolist():
            here = np.flatnonzero(epoch == number)
            rows[here] = shuffle.rows(index[here], number)
        return rows


def covered_rows(ranges: Sequence[tuple[int, int]]) -> int:
    """How many rows the ranges cover; those in two of them count once."""
    num_rows = reached = 0
    for start, stop in sorted(ranges):
        num_rows += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    return num_rows


def merged_ranges(ranges: Sequence[tuple[int, int]], end: int) -> tuple[tuple[int, int], ...]:
    """Ranges of rows in order, those that touch joined."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if not 0 <= start < stop <= end:
            raise ConfigError(f"skip ({start}, {stop}): expected 0 <= from < to <= {end}, the plan's number of rows")
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)
