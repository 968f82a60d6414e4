"""Fourth stage: units' ids → shards.

Which document goes into which shard follows from the documents' lengths and keys, in the order of the inputs. Copies
tokens; changes none.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.shards.manifest import Shard
from penstock.shards.writer import write_shard
from penstock.text.encode import EncodeJob, encode_unit


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents of one split in order, as columns."""

    file: NDArray[np.int64]
    """Which file of tokens; -1 for a document whose tokens lie in several places."""
    start: NDArray[np.int64]
    """Where its tokens start there; or which of the scattered documents it is."""
    num_tokens: NDArray[np.int64]
    source: NDArray[np.int64]
    record: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.file)

    def __getitem__(self, rows: "slice | NDArray[Any]") -> "Documents":
        return Documents(self.file[rows], self.start[rows], self.num_tokens[rows], self.source[rows], self.record[rows])


def joined_documents(parts: list[Documents]) -> Documents:
    """All of `parts`, one after the other."""
    names = ("file", "start", "num_tokens", "source", "record")
    empty = np.empty(0, np.int64)
    return Documents(*(np.concatenate([empty, *(getattr(part, name) for part in parts)]) for name in names))


@dataclass(slots=True)
class SplitQueue:
    """The documents of a split that are not in a shard yet, and the rule that closes shards."""

    tokens_per_shard: int
    first_document: int = 0
    num_shards: int = 0
    _waiting: list[Documents] = field(default_factory=list)
    _num_tokens: int = 0

    def add(self, documents: Documents) -> None:
        if len(documents):
            self._waiting.append(documents)
            self._num_tokens += int(documents.num_tokens.sum())

    def shards(self, *, final: bool) -> Iterator[tuple[int, int, Documents]]:
        """Shards that are full, and with `final` the last one too: number in the split, first document, documents."""
        if self._num_tokens <= self.tokens_per_shard and not final:
            return
        documents = joined_documents(self._waiting)
        ends = np.cumsum(documents.num_tokens)
        start = 0
        while start < len(documents):
            filled = int(ends[start - 1]) if start else 0
            # At least one document, however long; then as many as fit.
            stop = max(start + 1, int(np.searchsorted(ends, filled + self.tokens_per_shard, side="right")))
            if stop == len(documents) and not final:
                break
            yield self.num_shards, self.first_document, documents[start:stop]
            self.num_shards += 1
            self.first_document += stop - start
            start = stop
        rest = documents[start:]
        self._waiting = [rest] if len(rest) else []
        self._num_tokens = int(rest.num_tokens.sum())


@dataclass(frozen=True, kw_only=True, slots=True)
class AssembleJob:
    """One shard to write."""

    split: str
    number: int
    compressed: bool
    dtype: str
    runs: tuple[tuple[Path, int, int], ...]
    """Tokens to copy: file, start, count."""
    document_ends: NDArray[np.uint64]
    document_source: NDArray[np.uint32]
    document_record: NDArray[np.uint64]
    first_document: int
    tokens_path: Path
    index_path: Path
    lost: tuple[EncodeJob, ...] = ()
    """Units whose tokens an earlier run took away, or a crash: they are encoded again first."""


def token_runs(
    documents: Documents, files: dict[int, Path], scattered: list[list[tuple[Path, int, int]]]
) -> tuple[tuple[Path, int, int], ...]:
    """The stretches of tokens that make up `documents`, as few as there can be."""
    if not len(documents):
        return ()
    follows = (
        (documents.file[1:] == documents.file[:-1])
        & (documents.file[1:] >= 0)
        & (documents.start[1:] == documents.start[:-1] + documents.num_tokens[:-1])
    )
    firsts = np.concatenate([[0], np.flatnonzero(~follows) + 1])
    counts = np.add.reduceat(documents.num_tokens, firsts)
    runs: list[tuple[Path, int, int]] = []
    for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
        file, start = int(documents.file[first]), int(documents.start[first])
        runs += scattered[start] if file < 0 else [(files[file], start, count)]
    return tuple(runs)


def assemble_shard(job: AssembleJob) -> Shard:
    """Writes a shard and its index under the names given, and returns its line of the manifest."""
    for unit in job.lost:
        encode_unit(unit)
    dtype = np.dtype(job.dtype).newbyteorder("<")
    return write_shard(
        _tokens(job.runs, dtype),
        split=job.split,
        name=f"{job.split}/shard_{job.number:05d}.bin" + (".zst" if job.compressed else ""),
        dtype=dtype,
        document_ends=job.document_ends,
        document_source=job.document_source,
        document_record=job.document_record,
        first_document=job.first_document,
        tokens_path=job.tokens_path,
        index_path=job.index_path,
    )


def _tokens(runs: tuple[tuple[Path, int, int], ...], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    opened: Path | None = None
    mapped: NDArray[Any] = np.empty(0, dtype)
    for path, start, count in runs:
        if path != opened:
            opened, mapped = path, np.asarray(np.memmap(path, dtype, "r"))
        yield mapped[start : start + count]
