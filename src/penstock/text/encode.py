"""Third stage: clean text → ids, one unit at a time, from files to a file.

What was found to be a duplicate is left out here. The split is not decided yet, only the key that decides it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import polars as pl
import polars_hash as plh
import pyarrow as pa
import pyarrow.ipc
import xxhash
from numpy.typing import NDArray

from penstock.shards.atomic import replacing
from penstock.text.dedup import read_drops
from penstock.text.gather import UnitJob, block_lines, read_pieces, require_lines, tally_fields, text_bytes, unit_blocks
from penstock.text.lines import Lines, without_spare_blanks
from penstock.text.pieces import KEY_CHARACTERS, PieceEncoder
from penstock.text.sources.block import BEGINS, ENDS, MIDLINE, WHOLE, Tally
from penstock.text.tokenizers import Tokenizer, tokenizer_from_state
from penstock.text.work import write_mark

_LONG_CHARACTERS: Final = 1 << 20
"""A longer document is encoded in pieces, so that the tokenizer's memory stays bounded."""
_HANDFUL_CHARACTERS: Final = 1 << 18
"""What the tokenizer gets at a time: more falls out of the caches."""
_FEW_TOKENS: Final = 128
_LONG_ON_AVERAGE: Final = 1000
_DEAD: Final = ("near_duplicate", "duplicate_document")
"""Why a whole document is left out."""
DOCUMENT_COLUMNS: Final = (
    ("num_tokens", "<i8"),
    ("key", "<u8"),
    ("record", "<i8"),
    ("source", "<i8"),
    ("place", "<i8"),
)
TOKEN_FILES: Final = (".tokens", ".val-tokens")
"""Validation documents lie in a file of their own, so that the other can go as soon as its shards are written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodeJob:
    """A unit, and what to do with its text."""

    unit: UnitJob
    gathered: bool
    """Whether the first stage left clean lines; otherwise the files are read here."""
    tokenizer_state: Path
    backend: str | None
    dtype: str
    seed: int
    val_fraction: float
    directory: Path
    key: str
    dropped_lines: tuple[Path, ...] = ()
    dropped_documents: Path | None = None
    near_duplicates: Path | None = None

    def path(self, suffix: str) -> Path:
        return self.directory / f"{self.key}{suffix}"


@dataclass(slots=True)
class FinalBlock:
    """Pieces as they will be encoded; None where nothing is left of one."""

    texts: list[str | None]
    parts: NDArray[np.uint8]
    records: NDArray[np.int64]
    source: int
    reasons: list[str]
    """Why a piece has no text, where it has none."""


def split_keys(texts: list[str], seed: int) -> NDArray[np.uint64]:
    """What decides the split of each document: a hash of its content, or of its first 262,144 characters."""
    heads = [text if len(text) <= KEY_CHARACTERS else text[:KEY_CHARACTERS] for text in texts]
    if sum(map(len, heads)) > _LONG_ON_AVERAGE * len(heads):
        return np.fromiter((xxhash.xxh3_64_intdigest(head.encode(), seed) for head in heads), np.uint64, len(heads))
    # The same hash in one go: for short documents, calls would cost more than hashing.
    frame: Any = pl.DataFrame({"text": pl.Series(heads, dtype=pl.String)})
    keys: NDArray[np.uint64] = frame.select(plh.col("text").nchash.xxh3_64(seed=seed)).to_series().to_numpy()
    return keys


def falls_into_val(keys: NDArray[np.uint64], val_fraction: float) -> NDArray[np.bool_]:
    """The split: the same key, and so the same content, always falls on the same side."""
    return keys < np.uint64(min(int(val_fraction * 2**64), 2**64 - 1))


_loaded: dict[Path, Tokenizer] = {}


def remember_tokenizer(state: Path, tokenizer: Tokenizer) -> None:
    """Work in this process uses `tokenizer` for `state` and does not load it again."""
    _loaded.clear()
    _loaded[state] = tokenizer


def loaded_tokenizer(state: Path, backend: str | None) -> Tokenizer:
    """The tokenizer, loaded once in each process."""
    if state not in _loaded:
        remember_tokenizer(state, tokenizer_from_state(state, backend=backend))
    return _loaded[state]


def encode_unit(job: EncodeJob) -> dict[str, Any]:
    """Encodes a unit. Its mark says what came out."""
    tokenizer = loaded_tokenizer(job.tokenizer_state, job.backend)
    tallies: list[Tally] = []
    counts: dict[str, int] = {}
    if job.gathered:
        require_lines(job.unit)
    blocks = _gathered_blocks(job, counts) if job.gathered else _read_blocks(job.unit, tallies, counts)
    train, val = (job.path(suffix) for suffix in TOKEN_FILES)
    with replacing(train, durable=False) as file, replacing(val, durable=False) as val_file:
        out = _UnitEncoder(tokenizer, (file, val_file), job, counts)
        for block in blocks:
            out.add(block)
        out.finish()
    with replacing(job.path(".documents"), durable=False) as file:
        for name, dtype in DOCUMENT_COLUMNS:
            file.write(np.concatenate([np.empty(0, dtype), *out.columns[name]]).astype(dtype).tobytes())
    mark = {
        "num_documents": sum(map(len, out.columns["key"])),
        "tallies": [tally_fields(tally) for tally in tallies],
        "sources": [part.source for part in job.unit.unit.parts],
        "counts": counts,
        "open": out.open,
        # Not among the mark's files: they are taken away once their shards are written.
        "token_bytes": [train.stat().st_size, val.stat().st_size],
    }
    return write_mark(job.path(".encoded"), mark, [job.path(".documents")])


def read_documents(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of a unit's documents."""
    data = path.read_bytes()
    size = len(data) // (8 * len(DOCUMENT_COLUMNS))
    columns = {}
    for at, (name, dtype) in enumerate(DOCUMENT_COLUMNS):
        columns[name] = np.frombuffer(data, dtype, size, 8 * size * at)
    return columns


class _UnitEncoder:
    """Writes ids in the order of the documents, and remembers the documents."""

    def __init__(
        self, tokenizer: Tokenizer, files: tuple[IO[bytes], IO[bytes]], job: EncodeJob, counts: dict[str, int]
    ) -> None:
        self._tokenizer, self._files, self._job, self._counts = tokenizer, files, job, counts
        self._dtype = np.dtype(job.dtype)
        self.columns: dict[str, list[NDArray[Any]]] = {name: [] for name, _ in DOCUMENT_COLUMNS}
        self.open: dict[str, Any] | None = None
        self._pieces: PieceEncoder | None = None
        self._where = (0, 0)
        self._begun_here = True
        self._unknown = getattr(tokenizer, "unknown_id", None)

    def add(self, block: FinalBlock) -> None:
        """The next pieces: whole documents a handful at a time, others one by one."""
        handful: list[str] = []
        size = 0
        for at, (text, part) in enumerate(zip(block.texts, block.parts.tolist(), strict=True)):
            if part == WHOLE and text and len(text) <= _LONG_CHARACTERS:
                handful.append(text)
                size += len(text)
                if size >= _HANDFUL_CHARACTERS:
                    self._add_whole(handful, block, slice(at + 1 - len(handful), at + 1))
                    handful, size = [], 0
                continue
            if handful:
                self._add_whole(handful, block, slice(at - len(handful), at))
                handful, size = [], 0
            self._add_piece(block, at)
        if handful:
            self._add_whole(handful, block, slice(len(block.texts) - len(handful), len(block.texts)))

    def _add_whole(self, texts: list[str], block: FinalBlock, where: slice) -> None:
        ids, offsets = self._tokenizer.encode(texts)
        sizes = np.diff(offsets) + 1
        keys = split_keys(texts, self._job.seed)
        val = falls_into_val(keys, self._job.val_fraction)
        if len(ids) > _FEW_TOKENS * len(texts):
            outs = [np.empty(int(sizes[~val].sum()), self._dtype), np.empty(int(sizes[val].sum()), self._dtype)]
            filled = [0, 0]
            for start, stop, place in zip(offsets[:-1].tolist(), offsets[1:].tolist(), val.tolist(), strict=True):
                out, at = outs[place], filled[place]
                end = at + stop - start
                out[at:end] = ids[start:stop]
                out[end] = self._tokenizer.eos_id
                filled[place] = end + 1
        else:
            with_eos = np.insert(ids, offsets[1:], self._tokenizer.eos_id)
            in_val = np.repeat(val, sizes)
            outs = [with_eos[~in_val], with_eos[in_val]]
        for place, out in enumerate(outs):
            self._write(out, place)
        self._remember(sizes, keys, block.records[where], block.source, val)
        _add(self._counts, "encoded_bytes", sum(len(text) if text.isascii() else len(text.encode()) for text in texts))

    def _add_piece(self, block: FinalBlock, at: int) -> None:
        text, part = block.texts[at], int(block.parts[at])
        if part == WHOLE and not text:
            self._count_dropped(block.reasons[at])
            return
        if part & BEGINS or self._pieces is None:
            self._begun_here = bool(part & BEGINS)
            self._pieces = PieceEncoder(
                self._tokenizer, self._write, normalize=self._job.unit.normalize, begins=self._begun_here
            )
            self._where = (int(block.records[at]), block.source)
        self._pieces.feed(text, midline=bool(part & MIDLINE))
        if part & ENDS:
            if self._begun_here:
                if self._pieces.end():
                    self._remember_pieces(self._pieces)
                else:
                    self._count_dropped(block.reasons[at])
            else:
                self._pieces.end()
                self._leave(ends=True, tail="")
            self._pieces = None

    def finish(self) -> None:
        """No more text comes: a document that has not ended goes on in the next unit."""
        if self._pieces is not None:
            self._leave(ends=False, tail=self._pieces.leave_open())

    def _leave(self, *, ends: bool, tail: str) -> None:
        pieces = self._pieces
        assert pieces is not None
        self._remember_pieces(pieces)
        self.open = {
            "begins": self._begun_here,
            "ends": ends,
            "head": pieces.head or "",
            "tail": tail,
            "all_head": pieces.all_head,
            "empty": pieces.empty,
            "prefix": pieces.prefix,
        }

    def _remember_pieces(self, pieces: PieceEncoder) -> None:
        record, source = self._where
        _add(self._counts, "encoded_bytes", pieces.num_bytes)
        keys = split_keys([pieces.prefix], self._job.seed)
        self._remember(np.array([pieces.num_tokens]), keys, np.array([record]), source, np.zeros(1, np.int64))

    def _remember(
        self, sizes: NDArray[Any], keys: NDArray[Any], records: NDArray[Any], source: int, place: NDArray[Any]
    ) -> None:
        self.columns["num_tokens"].append(sizes)
        self.columns["key"].append(keys)
        self.columns["record"].append(records)
        self.columns["source"].append(np.full(len(sizes), source, np.int64))
        self.columns["place"].append(place)

    def _count_dropped(self, reason: str) -> None:
        name = f"dropped_documents:{reason}"
        self._counts[name] = self._counts.get(name, 0) + 1

    def _write(self, ids: NDArray[Any], place: int = 0) -> None:
        if self._unknown is not None:
            unknown = int(np.count_nonzero(ids == self._unknown))
            self._counts["unknown_characters"] = self._counts.get("unknown_characters", 0) + unknown
        self._files[place].write(np.ascontiguousarray(ids, self._dtype).view(np.uint8).data)


def _read_blocks(job: UnitJob, tallies: list[Tally], counts: dict[str, int]) -> Iterator[FinalBlock]:
    """Without a first stage: read, clean, done."""
    counts.update(read_documents=0, read_bytes=0)
    for source, block in unit_blocks(job, tallies):
        counts["read_documents"] += int(np.count_nonzero(block.parts & BEGINS))
        counts["read_bytes"] += text_bytes(block)
        texts: list[str | None] = [*block.texts]
        if job.normalize:
            texts = block_lines(block, normalize=True).joined()
        yield FinalBlock(texts, block.parts, block.records, source, ["empty"] * len(texts))


def _gathered_blocks(job: EncodeJob, counts: dict[str, int]) -> Iterator[FinalBlock]:
    """After the first stage: its clean lines, without the duplicates."""
    unit = job.unit
    pieces = read_pieces(unit.path(".pieces"))
    dropped_lines = np.sort(read_drops(job.dropped_lines, unit.unit.number)).astype(np.int64)
    reasons = np.full(len(pieces.parts), "", object)
    reasons[pieces.num_lines == 0] = "empty"
    for path, reason in zip((job.near_duplicates, job.dropped_documents), _DEAD, strict=True):
        if path is not None:
            reasons[np.isin(pieces.documents, read_drops([path], unit.unit.number))] = reason
    first_line = first_piece = 0
    with pa.memory_map(str(unit.path(".lines"))) as source:
        for batch in pa.ipc.open_stream(source):
            text = pl.Series("text", pl.from_arrow(batch.column(0)))
            num_pieces = int(np.searchsorted(pieces.block, pieces.block[first_piece], side="right")) - first_piece
            rows = slice(first_piece, first_piece + num_pieces)
            lines = Lines(text, pieces.num_lines[rows])
            keep = np.ones(len(text), bool)
            start, stop = np.searchsorted(dropped_lines, [first_line, first_line + len(text)])
            keep[dropped_lines[start:stop] - first_line] = False
            texts, why = _left(lines, keep, reasons[rows], pieces.parts[rows], unit.normalize, counts)
            why_none = [str(reason) or why for reason in reasons[rows]]
            source_number = int(pieces.sources[first_piece])
            yield FinalBlock(texts, pieces.parts[rows], pieces.records[rows], source_number, why_none)
            first_line += len(text)
            first_piece += num_pieces


def _left(
    lines: Lines,
    keep: NDArray[np.bool_],
    reasons: NDArray[Any],
    parts: NDArray[np.uint8],
    normalize: bool,
    counts: dict[str, int],
) -> tuple[list[str | None], str]:
    """What is left of the pieces without dropped lines and documents, and why nothing is where nothing is."""
    alive = lines
    for reason in _DEAD:
        if (dead := reasons == reason).any():
            gone = np.repeat(dead, lines.counts)
            _add(counts, f"dropped_bytes:{reason}", lines.kept(gone).num_bytes)
            keep = keep & ~gone
            alive = lines.kept(~np.repeat(np.isin(reasons, _DEAD), lines.counts))
    if keep.all():
        return lines.joined(), "empty"
    kept = lines.kept(keep)
    _add(counts, "dropped_lines:duplicate_lines", len(alive.text) - len(kept.text))
    if normalize:
        kept = without_spare_blanks(kept, parts)
    _add(counts, "dropped_bytes:duplicate_lines", alive.num_bytes - kept.num_bytes)
    return kept.joined(), "duplicate_lines"


def _add(counts: dict[str, int], name: str, more: int) -> None:
    counts[name] = counts.get(name, 0) + more
