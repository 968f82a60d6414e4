"""Who compares what: the second stage, from the units' hashes to files that say what is left out.

Near-duplicates first: a line must not go for the sake of one that goes with its document.
"""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import xxhash

from penstock.engines import Crew
from penstock.text.config import PrepareConfig
from penstock.text.dedup import (
    BUCKETS,
    ITEM_BYTES,
    WORKING_BYTES,
    Items,
    bucket_ranges,
    bucket_sizes,
    read_drops,
    write_drops,
    write_items,
)
from penstock.text.gather import UnitJob, read_pieces, require_lines
from penstock.text.resolve import ResolveJob, near_duplicates, resolve_equals, resolve_near
from penstock.text.sources.block import MIDLINE
from penstock.text.work import read_mark, write_mark
from penstock.types import Progress

_FEWEST_ITEMS, _MOST_ITEMS = 1 << 16, 1 << 20


@dataclass(slots=True)
class Drops:
    """Where it is written what is left out."""

    lines: tuple[Path, ...] = ()
    documents: Path | None = None
    near: Path | None = None

    def paths(self) -> list[Path]:
        return [*self.lines, *(path for path in (self.documents, self.near) if path is not None)]


class DuplicateSearch:
    """Compares all units with each other. What it finds is kept in `directory`, and found there by a later run."""

    def __init__(
        self,
        config: PrepareConfig,
        jobs: list[UnitJob],
        marks: dict[int, dict[str, Any]],
        engine: Executor,
        num_workers: int,
        progress: Progress,
        directory: Path,
    ) -> None:
        self._config, self._jobs, self._marks = config, jobs, marks
        self._engine, self._num_workers, self._progress = engine, num_workers, progress
        self._directory = directory

    def drops(self) -> Drops:
        """What is left out of the corpus."""
        mark_path = self._directory / "resolved"
        if (mark := read_mark(mark_path)) is not None:
            return self._from_mark(mark)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        drops = Drops()
        if self._config.near_dedup:
            drops.near = self._directory / "near"
            compared = self._compared(".near-items", resolve_near, None, self._config.near_threshold)
            pairs = [np.empty((0, 4), np.int64), *(pair for _, pair in compared)]
            rows = near_duplicates(np.concatenate(pairs))
            write_drops(drops.near, rows[:, 0], rows[:, 1].astype(np.uint32), len(self._jobs))
        if self._config.dedup == "documents":
            self._hash_open_documents()
            drops.documents = self._directory / "documents"
            self._write_documents(self._equals(".document-items", drops.near), drops.documents)
        if self._config.dedup == "lines":
            drops.lines = self._equals(".line-items", drops.near)
        names = {
            "lines": [path.name for path in drops.lines],
            "documents": drops.documents.name if drops.documents else None,
            "near": drops.near.name if drops.near else None,
        }
        write_mark(mark_path, names, drops.paths())
        return drops

    def _from_mark(self, mark: dict[str, Any]) -> Drops:
        return Drops(
            lines=tuple(self._directory / name for name in mark["lines"]),
            documents=self._directory / mark["documents"] if mark["documents"] else None,
            near=self._directory / mark["near"] if mark["near"] else None,
        )

    def _equals(self, suffix: str, dead: Path | None) -> tuple[Path, ...]:
        return tuple(sorted(job.out for job, _ in self._compared(suffix, resolve_equals, dead, suffix)))

    def _compared(
        self, suffix: str, function: Callable[..., Any], dead: Path | None, *more: Any
    ) -> Iterator[tuple[ResolveJob, Any]]:
        """Runs `function` over ranges of buckets that together hold every item."""
        sizes = sum((bucket_sizes(job.path(suffix)) for job in self._jobs), np.zeros(BUCKETS, np.int64))
        most = max(_FEWEST_ITEMS, self._config.dedup_bytes() // WORKING_BYTES)
        # Enough ranges that no worker idles, and small enough for the caches.
        most = min(most, _MOST_ITEMS, max(_FEWEST_ITEMS, int(sizes.sum()) // (2 * self._num_workers) + 1))
        crew = Crew(self._engine, self._num_workers)
        units = tuple(job.directory / job.key for job in self._jobs)
        self._progress.stage(f"comparing {suffix[1:].removesuffix('-items')}s", int(sizes.sum()) * ITEM_BYTES)
        for number, buckets in enumerate(bucket_ranges(sizes, most)):
            out = self._directory / f"{suffix[1:]}-{number:04d}"
            job = ResolveJob(buckets=buckets, units=units, out=out, dead_documents=dead)
            crew.add(job, function, job, *more)
        for done in crew.finished():
            buckets = done.tag.buckets
            self._progress.advance(int(sizes[buckets.start : buckets.stop].sum()) * ITEM_BYTES)
            yield done.tag, done.result

    def _hash_open_documents(self) -> None:
        """Documents over several units are hashed here, piece after piece, and count for the unit they begin in."""
        state: Any = None
        first: UnitJob | None = None
        glue = ""
        for job in self._jobs:
            mark = self._marks[job.unit.number]
            if mark["begins"] and mark["ends"]:
                continue
            if mark["begins"]:
                state, first, glue = xxhash.xxh3_128(), job, ""
            for text, midline in _piece_texts(job):
                state.update((glue + text).encode())
                glue = "" if midline else "\n"
            if mark["ends"] and first is not None:
                value = state.intdigest()
                low, high = np.uint64(value & 0xFFFFFFFFFFFFFFFF), np.uint64(value >> 64)
                item = Items(np.array([low]), np.array([high]), np.zeros(1, np.uint32))
                # Such a unit holds nothing else, so that its own file of hashes is empty.
                write_items(first.path(".document-items.open"), item)

    def _write_documents(self, paths: tuple[Path, ...], out: Path) -> None:
        """One file of dropped documents; a document over several units is dropped in all of them."""
        units: list[int] = []
        numbers: list[int] = []
        carried = False
        for job in self._jobs:
            mark = self._marks[job.unit.number]
            dropped = read_drops(paths, job.unit.number).tolist()
            if not mark["begins"] and carried:
                dropped.append(0)
            if not (mark["begins"] and mark["ends"]):
                carried = not mark["ends"] and 0 in dropped
            units += [job.unit.number] * len(dropped)
            numbers += dropped
        write_drops(out, np.array(units, np.int64), np.array(numbers, np.uint32), len(self._jobs))


def _piece_texts(job: UnitJob) -> Iterator[tuple[str, bool]]:
    """The clean text of each piece of a unit that has any, and whether the next follows without a newline."""
    require_lines(job)
    pieces = read_pieces(job.path(".pieces"))
    row = 0
    with pa.memory_map(str(job.path(".lines"))) as source:
        for number, batch in enumerate(pa.ipc.open_stream(source)):
            texts = batch.column(0).to_pylist()
            at = 0
            while row < len(pieces.block) and pieces.block[row] == number:
                count = int(pieces.num_lines[row])
                if count:
                    yield "\n".join(texts[at : at + count]), bool(pieces.parts[row] & MIDLINE)
                at, row = at + count, row + 1
