"""Files → work units: pieces of the input that can be done, and redone, on their own.

A unit is a byte range, a run of row groups, or a handful of small files. Units follow from the files alone, never
from the number of workers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.ipc

from penstock.errors import InputError
from penstock.text.sources.files import SourceFile
from penstock.text.sources.tables import last_record_end

_MOST_FILES: Final = 2048
_CSV_STEP: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of one file. What `start` and `stop` count depends on the kind: bytes, row groups or batches."""

    source: int
    """Which file, by its place in the list of sources."""
    start: int = 0
    stop: int | None = None
    """None: to the end."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What one worker does at a time."""

    number: int
    parts: tuple[Part, ...]
    num_bytes: int


def work_units(
    files: list[SourceFile],
    paths: list[str],
    *,
    unit_bytes: int,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> list[Unit]:
    """Every byte of every file in exactly one unit. `paths` say where each file really lies.

    csv files are read through once for this, to find newlines outside quotes; `on_bytes` is told how far.
    """
    units: list[Unit] = []
    small: list[Part] = []
    small_bytes = 0

    def flush() -> None:
        nonlocal small, small_bytes
        if small:
            units.append(Unit(len(units), tuple(small), small_bytes))
        small, small_bytes = [], 0

    for number, (file, path) in enumerate(zip(files, paths, strict=True)):
        if file.num_bytes <= unit_bytes or file.compression:
            if small_bytes + file.num_bytes > unit_bytes or len(small) >= _MOST_FILES:
                flush()
            small.append(Part(number))
            small_bytes += file.num_bytes
            continue
        flush()
        cuts = _cuts(file, path, unit_bytes, on_bytes)
        for start, stop, num_bytes in cuts:
            units.append(Unit(len(units), (Part(number, start, stop),), num_bytes))
    flush()
    return units


def _cuts(
    file: SourceFile, path: str, unit_bytes: int, on_bytes: Callable[[int], None]
) -> list[tuple[int, int | None, int]]:
    """Stretches of a large file: start, stop, bytes."""
    if file.kind in ("text", "jsonl"):
        return [
            (at, min(at + unit_bytes, file.num_bytes), min(unit_bytes, file.num_bytes - at))
            for at in range(0, file.num_bytes, unit_bytes)
        ]
    if file.kind == "csv":
        return _csv_cuts(path, unit_bytes, on_bytes)
    try:
        if file.kind == "parquet":
            from pyarrow import parquet

            metadata = parquet.read_metadata(path)
            sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
            return _grouped(sizes, file.num_bytes, unit_bytes)
        if file.kind == "arrow":
            with pa.memory_map(path) as source:
                num_batches = pa.ipc.open_file(source).num_record_batches
            return _grouped([file.num_bytes // max(num_batches, 1)] * num_batches, file.num_bytes, unit_bytes)
    except (pa.ArrowException, OSError) as error:
        if file.kind == "parquet":
            first = (str(error).splitlines() or ["unknown"])[0]
            raise InputError(f"{file.path}: damaged or truncated parquet ({first}); fetch it again") from error
    # JSON values and arrow streams can only be read from their start.
    return [(0, None, file.num_bytes)]


def _grouped(sizes: list[int], num_bytes: int, unit_bytes: int) -> list[tuple[int, int | None, int]]:
    cuts: list[tuple[int, int | None, int]] = []
    total = max(sum(sizes), 1)
    start = size = 0
    for number, more in enumerate(sizes):
        if size and size + more > unit_bytes:
            cuts.append((start, number, size * num_bytes // total))
            start, size = number, 0
        size += more
    cuts.append((start, len(sizes), size * num_bytes // total))
    return cuts


def _csv_cuts(path: str, unit_bytes: int, on_bytes: Callable[[int], None]) -> list[tuple[int, int | None, int]]:
    cuts: list[tuple[int, int | None, int]] = []
    with open(path, "rb") as file:
        start = at = 0
        pending = b""
        while data := file.read(_CSV_STEP):
            on_bytes(len(data))
            pending += data
            end = last_record_end(pending)
            at, pending = at + end, pending[end:]
            if at - start >= unit_bytes:
                cuts.append((start, at, at - start))
                start = at
        stop = at + len(pending)
        if stop > start:
            cuts.append((start, stop, stop - start))
    return cuts
