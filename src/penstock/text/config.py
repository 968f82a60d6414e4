"""What `penstock prepare` can be told."""

import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

from penstock.errors import ConfigError

_UNITS: Final = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_BASE_BYTES: Final = 600 << 20
_WORKER_BYTES: Final = 700 << 20
_FEWEST_TOKENS: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareConfig:
    """Text in, verified token shards out."""

    input_files: tuple[str, ...]
    """Files, directories, globs, or "-" for standard input: txt, md, json, jsonl, csv, parquet, arrow, each also as
    .gz, .zst or .xz."""
    out_dir: Path
    """Where the dataset goes."""
    tokenization: str = "auto"
    """gpt2, byte, char, bpe:N (trained on a sample of the input), the path of a tokenizer.json, or a hub name.
    auto: gpt2, or that of the dataset when appending."""
    tokens_per_shard: int = 10_000_000
    """A shard is closed before it would exceed this. Documents stay whole: only one that is longer exceeds it."""
    val_fraction: float = 0.1
    """Share of documents for validation, chosen by a hash of their content; 0 for none."""
    token_dtype: Literal["auto", "uint16", "uint32"] = "auto"
    """auto: uint16 where the vocabulary fits."""
    normalize: bool = True
    """Unicode NFC, newlines, control characters, runs of blanks. Switch it off to keep code to the byte."""
    dedup: Literal["lines", "documents", "none"] = "lines"
    """Drop lines, or whole documents, that are equal to an earlier one."""
    near_dedup: bool = False
    """Also drop documents that share most of their text with an earlier one (MinHash)."""
    near_threshold: float = 0.8
    """Share of text in common from which documents are near-duplicates."""
    workers: int = 0
    """Processes; 0 for one per core. The result is the same for any number."""
    max_memory: str = "auto"
    """For all processes together, such as 4GB. Deduplication spills to disk to stay below it; workers are lowered."""
    text_column: str = "text"
    """Which field or column holds the text."""
    document_separator: str | None = None
    """Text files hold many documents with this between them; \\n and \\t are understood. Default: one a file."""
    input_format: Literal["text", "jsonl", "json", "csv"] = "text"
    """What standard input, and files with an unknown suffix, hold."""
    eos_token: str | None = None
    """The end-of-text token of a tokenizer that has none of the usual names."""
    append: bool = False
    """Add the inputs to the dataset in out_dir, deduplicated against it."""
    compress: bool = False
    """Shards as .bin.zst."""
    max_bad_fraction: float = 0.01
    """Stop if more than this share of records cannot be read."""
    seed: int = 0
    """Chooses another validation set."""
    unit_bytes: int = 32 << 20
    """Input that is read, and after a kill read again, at a time. Changes nothing in the shards."""

    def __post_init__(self) -> None:
        if not self.input_files:
            raise ConfigError("--input_files needs at least one file, directory, glob or '-'")
        if self.tokens_per_shard < _FEWEST_TOKENS:
            raise ConfigError(f"--tokens_per_shard must be positive, got {self.tokens_per_shard}")
        for name in ("val_fraction", "max_bad_fraction", "near_threshold"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"--{name} must be from 0 to 1, got {getattr(self, name)}")
        if self.val_fraction == 1:
            raise ConfigError("--val_fraction 1 would leave nothing to train on; the usual value is 0.1")
        if self.unit_bytes < 1:
            raise ConfigError(f"--unit_bytes must be positive, got {self.unit_bytes}")
        if self.workers < 0:
            raise ConfigError(f"--workers must not be negative, got {self.workers}; 0 means one per core")
        if not 0 <= self.seed < 1 << 64:
            raise ConfigError(f"--seed must be from 0 to 2**64 - 1, got {self.seed}")
        if self.document_separator == "":
            raise ConfigError("--document_separator must not be empty; leave it out for one document a file")
        if self.input_files.count("-") > 1:
            raise ConfigError("--input_files names standard input twice")
        self.memory_bytes()

    @property
    def separator(self) -> str | None:
        """The document separator with its escapes resolved."""
        if self.document_separator is None:
            return None
        escapes = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}
        return re.sub(r"\\[ntr\\]", lambda match: escapes[match[0]], self.document_separator)

    def memory_bytes(self) -> int:
        """The declared limit; "auto" grows with the number of workers."""
        if self.max_memory == "auto":
            return _BASE_BYTES + _WORKER_BYTES * self._wanted_workers()
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?|)b?", self.max_memory.strip().lower())
        if not match:
            raise ConfigError(f"--max_memory {self.max_memory!r}: expected a size such as 4GB or 900MiB")
        size = int(float(match[1]) * _UNITS[match[2]])
        least = _BASE_BYTES + _WORKER_BYTES // 2
        if size < least:
            raise ConfigError(f"--max_memory {self.max_memory}: one worker needs at least {least >> 20}MiB")
        return size

    def num_workers(self) -> int:
        """As many processes as asked for and as fit into the memory."""
        fit = max(1, (self.memory_bytes() - _BASE_BYTES) // (_WORKER_BYTES // 2))
        return min(self._wanted_workers(), fit)

    def dedup_bytes(self) -> int:
        """What each worker may use to find duplicates."""
        return max(32 << 20, (self.memory_bytes() - _BASE_BYTES) // self.num_workers() - _WORKER_BYTES // 2)

    def most_record_bytes(self) -> int:
        """The longest record that a worker can parse: its bytes, its text and a copy of each must fit."""
        return max(64 << 20, (self.memory_bytes() - _BASE_BYTES) // self.num_workers() // 5)

    def _wanted_workers(self) -> int:
        return self.workers or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def identity(self) -> dict[str, Any]:
        """The settings that decide the bytes of the result, and no others."""
        leave_out = {"out_dir", "workers", "max_memory", "append", "max_bad_fraction", "input_files", "unit_bytes"}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in leave_out}
