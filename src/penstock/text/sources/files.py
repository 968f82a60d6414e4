"""The words after `--input_files` → a list of files, always in the same order.

Looks at names and sizes; reads no content.
"""

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError, InputError

STDIN: Final = "-"
KINDS: Final = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd", ".xz": "xz"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """One input file as it was found."""

    path: str
    """As the user named it; documents carry it as their source."""
    kind: str
    compression: str | None
    num_bytes: int
    mtime_ns: int


def found_files(
    inputs: tuple[str, ...], *, default_kind: str = "text", stdin_spool: Path | None = None
) -> list[SourceFile]:
    """The files that `inputs` (files, directories, globs, "-") stand for.

    In the order given; directories and globs in the order of their paths; each file once. Files named outright may
    have any suffix (`default_kind` then says what they hold); in a directory only known suffixes count.
    """
    if not inputs:
        raise ConfigError("--input_files needs at least one file, directory, glob or '-'")
    files: dict[str, SourceFile] = {}
    for word in inputs:
        for path in _expanded(word):
            real = str(stdin_spool) if word == STDIN else path
            if path in files:
                continue
            try:
                path.encode()
            except UnicodeEncodeError as error:
                raise InputError(
                    f"{os.fsencode(path)!r}: the name is not UTF-8, so documents could not carry it as their source; "
                    "rename the file"
                ) from error
            kind, compression = kind_of(path, default_kind=default_kind)
            status = os.stat(real)
            files[path] = SourceFile(
                path=path,
                kind=kind,
                compression=compression,
                num_bytes=status.st_size,
                mtime_ns=status.st_mtime_ns,
            )
    if not any(file.num_bytes for file in files.values()):
        names = ", ".join(list(files)[:3])
        raise InputError(f"{names}: empty; there is no text to prepare")
    return list(files.values())


def kind_of(path: str, *, default_kind: str = "text") -> tuple[str, str | None]:
    """What a file holds and how it is compressed, by its name."""
    stem, suffix = os.path.splitext(path.lower())
    compression = COMPRESSIONS.get(suffix)
    if compression:
        stem, suffix = os.path.splitext(stem)
    return KINDS.get(suffix, default_kind), compression


def _expanded(word: str) -> list[str]:
    if word == STDIN:
        return [word]
    if os.path.isdir(word):
        inside = sorted(_known_files(word))
        if not inside:
            known = " ".join(KINDS)
            raise InputError(f"{word}: no text in this directory; looked for {known}, also with .gz, .zst or .xz")
        return inside
    if os.path.exists(word):
        if not os.path.isfile(word):
            raise InputError(f"{word}: not a regular file; pipe it in as `penstock prepare --input_files - < {word}`")
        return [word]
    matches = sorted(path for path in glob.glob(word, recursive=True) if os.path.isfile(path))
    if not matches:
        what = "matches no file" if glob.has_magic(word) else "no such file or directory"
        raise InputError(f"{word}: {what}; paths are relative to {os.getcwd()}")
    return matches


def _known_files(directory: str) -> list[str]:
    found: list[str] = []
    for parent, directories, names in os.walk(directory):
        # Hidden directories hold caches and checkouts, not a corpus.
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            kind, _ = kind_of(name, default_kind="")
            if kind and not name.startswith("."):
                found.append(os.path.join(parent, name))
    return found
