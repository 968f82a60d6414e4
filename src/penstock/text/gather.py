"""First stage, when anything has to be compared across the corpus: files → clean lines and their hashes.

One unit at a time, from files to files; knows nothing of other units.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import xxhash
from numpy.typing import NDArray

from penstock.shards.atomic import replacing
from penstock.shards.reader import ShardSet
from penstock.text.clean import cleaned
from penstock.text.dedup import Items, joined_items, write_items
from penstock.text.lines import Lines, comparable, digests, split_lines
from penstock.text.minhash import BINS, EMPTY, Signatures, band_items, signatures
from penstock.text.sources.block import BEGINS, BLOCK_BYTES, ENDS, MIDLINE, WHOLE, Block, Tally, whole
from penstock.text.sources.files import SourceFile
from penstock.text.sources.plain import in_pieces
from penstock.text.sources.reading import ReadOptions, read_part
from penstock.text.sources.units import Unit
from penstock.text.tokenizers import tokenizer_from_state
from penstock.text.work import read_mark, write_mark

LINES_SCHEMA: Final = pa.schema([("text", pa.large_string())])


@dataclass(frozen=True, kw_only=True, slots=True)
class OldShard:
    """A shard of the dataset that is added to: its documents are compared with, not written again."""

    directory: Path
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitJob:
    """Everything a worker needs to know about a unit."""

    unit: Unit
    files: tuple[tuple[SourceFile, str], ...]
    """For each part of the unit, its file and where that really lies."""
    options: ReadOptions
    normalize: bool
    directory: Path
    """Where results go."""
    key: str
    """Fingerprint of the input and of the settings: the results' name."""
    old: OldShard | None = None
    compare_lines: bool = False
    compare_documents: bool = False
    compare_near: bool = False
    collect_characters: bool = False

    def path(self, suffix: str) -> Path:
        return self.directory / f"{self.key}{suffix}"


@dataclass(slots=True)
class PieceTable:
    """How the pieces of a unit follow each other: one row a piece."""

    block: list[int] = field(default_factory=list)
    num_lines: list[NDArray[np.int64]] = field(default_factory=list)
    parts: list[NDArray[np.uint8]] = field(default_factory=list)
    records: list[NDArray[np.int64]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)


def unit_blocks(job: UnitJob, tallies: list[Tally]) -> Iterator[tuple[int, Block]]:
    """The documents of a unit as they are in the files, with the source of each block. Fills `tallies`, one a part."""
    if job.old is not None:
        tallies.append(Tally())
        yield from ((0, piece) for block in _old_blocks(job.old) for piece in in_pieces(block))
        return
    for part, (file, path) in zip(job.unit.parts, job.files, strict=True):
        tally = Tally()
        tallies.append(tally)
        for block in read_part(file, path, part, job.options, tally):
            yield from ((part.source, piece) for piece in in_pieces(block))


def block_lines(block: Block, *, normalize: bool) -> Lines:
    """The lines of a block, clean if they are to be."""
    return cleaned(block.texts, block.parts) if normalize else split_lines(block.texts)


def text_bytes(block: Block) -> int:
    """UTF-8 bytes of the documents in a block, the newlines at which they were cut included."""
    glue = int(np.count_nonzero(block.parts & (ENDS | MIDLINE) == 0))
    return glue + sum(len(text) if text.isascii() else len(text.encode()) for text in block.texts)


def gather_unit(job: UnitJob) -> dict[str, Any]:
    """Reads, cleans and hashes a unit. Its mark says what was seen."""
    tallies: list[Tally] = []
    table = PieceTable()
    line_items: list[Items] = []
    documents = _Documents(job)
    characters: set[str] = set()
    counts = {"read_documents": 0, "read_bytes": 0}
    num_lines, after_midline, previous = 0, False, -1
    lines_path = job.path(".lines")
    with replacing(lines_path, durable=False) as file, pa.ipc.new_stream(file, LINES_SCHEMA) as writer:
        for number, (source, block) in enumerate(unit_blocks(job, tallies)):
            counts["read_documents"] += int(np.count_nonzero(block.parts & BEGINS))
            counts["read_bytes"] += text_bytes(block)
            lines = block_lines(block, normalize=job.normalize and job.old is None)
            writer.write_batch(pa.record_batch([lines.text.to_arrow()], schema=LINES_SCHEMA))
            table.block.append(number)
            table.num_lines.append(lines.counts)
            table.parts.append(block.parts)
            table.records.append(block.records)
            table.sources.append(source)
            if job.compare_lines:
                cut = after_midline and source == previous
                can = comparable(lines, block.parts, clean=job.normalize, after_midline=cut)
                places = np.flatnonzero(can)
                low, high = digests(lines.text.filter(pl.Series(can)))
                line_items.append(Items(low, high, (places + num_lines).astype(np.uint32)))
            if job.compare_documents or job.compare_near or job.collect_characters:
                texts = [text or "" for text in lines.joined()]
                documents.add(texts, lines.counts, block.parts)
                if job.collect_characters:
                    characters.update(*texts, "\n")
            num_lines += len(lines.text)
            after_midline, previous = bool(block.parts[-1] & MIDLINE), source

    files: list[Path] = []
    write_pieces(job.path(".pieces"), table)
    files.append(job.path(".pieces"))
    if job.compare_lines:
        write_items(job.path(".line-items"), joined_items(line_items))
        files.append(job.path(".line-items"))
    files += documents.write(job)
    mark = {
        "tallies": [tally_fields(tally) for tally in tallies],
        "sources": [part.source for part in job.unit.parts],
        "num_lines": num_lines,
        # Not among the mark's files: it is taken away once the unit is encoded.
        "lines_bytes": lines_path.stat().st_size,
        "characters": "".join(sorted(characters)),
        "begins": bool(table.parts[0][0] & BEGINS) if table.parts else True,
        "ends": bool(table.parts[-1][-1] & ENDS) if table.parts else True,
        "counts": counts,
    }
    return write_mark(job.path(".gathered"), mark, files)


def require_lines(job: UnitJob) -> None:
    """A unit whose clean text is gone, because it was encoded before, is read again."""
    mark = read_mark(job.path(".gathered"))
    lines = job.path(".lines")
    if mark is None or not lines.exists() or lines.stat().st_size != mark["lines_bytes"]:
        gather_unit(job)


def tally_fields(tally: Tally) -> dict[str, Any]:
    """A tally as JSON."""
    return {name: getattr(tally, name) for name in Tally.__dataclass_fields__}


class _Documents:
    """Hashes of whole documents, numbered in their unit from 0."""

    def __init__(self, job: UnitJob) -> None:
        self._exact, self._near = job.compare_documents, job.compare_near
        self._low: list[int] = []
        self._high: list[int] = []
        self._number: list[int] = []
        self._bins: list[NDArray[np.uint32]] = []
        self._shingles: list[NDArray[np.int64]] = []
        self._rows = 0
        self._count = 0
        self._hash: Any = None
        self._glue = ""
        self._hashed = False

    def add(self, texts: list[str], num_lines: NDArray[np.int64], parts: NDArray[np.uint8]) -> None:
        numbers = []
        for text, lines, part in zip(texts, num_lines.tolist(), parts.tolist(), strict=True):
            if part & BEGINS or self._count == 0:
                self._count += 1
                self._hash, self._glue, self._hashed = xxhash.xxh3_128(), "", bool(part & BEGINS)
            numbers.append(self._count - 1)
            if self._exact and self._hashed and lines:
                self._hash.update((self._glue + text).encode())
                self._glue = "" if part & MIDLINE else "\n"
            if self._exact and part & ENDS and self._hashed and (lines or part != WHOLE):
                value = self._hash.intdigest()
                self._low.append(value & 0xFFFFFFFFFFFFFFFF)
                self._high.append(value >> 64)
                self._number.append(self._count - 1)
        if self._near:
            found = signatures(texts)
            # Pieces of one document, in this block or across blocks, are one document: the minimum is its signature.
            which = np.array(numbers)
            if self._bins and which[0] == self._rows - 1:
                self._bins[-1][-1] = np.minimum(self._bins[-1][-1], found.bins[0])
                self._shingles[-1][-1] += found.num_shingles[0]
                found = Signatures(found.bins[1:], found.num_shingles[1:])
                which = which[1:]
            if len(which):
                starts = np.flatnonzero(np.diff(which, prepend=which[0] - 1))
                self._bins.append(np.minimum.reduceat(found.bins, starts, axis=0))
                self._shingles.append(np.add.reduceat(found.num_shingles, starts))
                self._rows += len(starts)

    def write(self, job: UnitJob) -> list[Path]:
        files: list[Path] = []
        if self._exact:
            items = Items(
                np.array(self._low, np.uint64), np.array(self._high, np.uint64), np.array(self._number, np.uint32)
            )
            write_items(job.path(".document-items"), items)
            files.append(job.path(".document-items"))
        if self._near:
            bins = np.concatenate([np.full((0, BINS), EMPTY, np.uint32), *self._bins])
            shingles = np.concatenate([np.empty(0, np.int64), *self._shingles])
            write_items(job.path(".near-items"), band_items(Signatures(bins, shingles)))
            with replacing(job.path(".signatures"), durable=False) as file:
                file.write(bins.tobytes())
            files += [job.path(".near-items"), job.path(".signatures")]
        return files


def write_pieces(path: Path, table: PieceTable) -> None:
    """The piece table as one file of plain columns."""
    sizes = [len(parts) for parts in table.parts]
    with replacing(path, durable=False) as file:
        file.write(np.array([sum(sizes)], "<i8").tobytes())
        file.write(np.repeat(table.block, sizes).astype("<i8").tobytes())
        file.write(np.concatenate([np.empty(0, np.int64), *table.num_lines]).astype("<i8").tobytes())
        file.write(np.concatenate([np.empty(0, np.int64), *table.records]).astype("<i8").tobytes())
        file.write(np.repeat(table.sources, sizes).astype("<i8").tobytes())
        file.write(np.concatenate([np.empty(0, np.uint8), *table.parts]).tobytes())


@dataclass(frozen=True, slots=True)
class Pieces:
    """The piece table of a unit, as columns."""

    block: NDArray[np.int64]
    num_lines: NDArray[np.int64]
    records: NDArray[np.int64]
    sources: NDArray[np.int64]
    parts: NDArray[np.uint8]

    @property
    def documents(self) -> NDArray[np.int64]:
        """Which document of the unit, from 0, each piece belongs to; one that began elsewhere is the first."""
        numbers = np.cumsum(self.parts & BEGINS != 0)
        return numbers - int(numbers[0]) if len(numbers) else numbers


def read_pieces(path: Path) -> Pieces:
    """The piece table in the file `path`."""
    data = path.read_bytes()
    size = int(np.frombuffer(data, "<i8", 1)[0])
    block, num_lines, records, sources = np.frombuffer(data, "<i8", 4 * size, 8).reshape(4, size)
    return Pieces(block, num_lines, records, sources, np.frombuffer(data, np.uint8, size, 8 + 32 * size))


def _old_blocks(old: OldShard) -> Iterator[Block]:
    """The documents of a finished shard as text again."""
    dataset = ShardSet(old.directory)
    tokenizer = tokenizer_from_state(old.directory / dataset.manifest.tokenizer.state.file)
    reader = dataset.reader(next(shard for shard in dataset.manifest.shards if shard.name == old.name))
    texts: list[str] = []
    size = first = 0
    for number in range(reader.index.num_documents):
        texts.append(tokenizer.decode(reader.document(number)[:-1]))
        size += len(texts[-1])
        if size >= BLOCK_BYTES:
            yield whole(texts, first)
            texts, size, first = [], 0, number + 1
    if texts:
        yield whole(texts, first)
