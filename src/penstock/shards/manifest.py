"""`dataset_metadata.json`: what a dataset is, and how to tell that its bytes are right.

A manifest is data from anywhere: every field is checked before it is used, and no name in it leaves the dataset's
directory. Writing it is the last step of preparing: a directory without one is not a dataset.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.errors import DatasetError, ManifestError
from penstock.shards.atomic import replacing
from penstock.shards.digest import digest, have_digests
from penstock.shards.layout import MANIFEST, checked_plain_name, checked_shard_name

FORMAT: Final = "penstock"
FORMAT_VERSION: Final = 1
_MOST: Final = 1 << 62


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """One line of the manifest: a file of tokens."""

    split: str
    name: str
    num_tokens: int
    num_documents: int
    hash: str
    """BLAKE3 of the tokens as little-endian bytes, uncompressed: what `b3sum` prints for a plain shard."""
    index_hash: str
    index_bytes: int
    stored_bytes: int
    """Size of the file as it lies on disk, compressed or not."""

    @property
    def compressed(self) -> bool:
        return self.name.endswith(".zst")


@dataclass(frozen=True, kw_only=True, slots=True)
class SideFile:
    """A file beside the shards that the manifest vouches for."""

    file: str
    hash: str
    num_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerInfo:
    """Which tokenizer made the ids."""

    name: str
    hash: str
    """BLAKE3 of everything that decides an id: vocabulary, merges, rules, EOS."""
    backend: str
    version: str
    vocab_size: int
    lossless: bool
    """Whether decoding gives back the text to the byte."""
    state: SideFile


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Everything about a dataset except its tokens. A value: two datasets with equal tokens have equal fingerprints."""

    token_dtype: str
    tokenizer: TokenizerInfo
    eos_id: int
    eos_token: str
    eos_policy: str = "after_each_document"
    tokens_per_shard: int
    block_bytes: int
    shards: tuple[Shard, ...]
    sources: SideFile
    num_sources: int
    stages: tuple[Mapping[str, Any], ...] = ()
    """What went in, came out and was dropped, stage by stage, one list of stages for each preparation."""
    config: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    stated_fingerprint: str = ""
    """What the file said, where there was nothing to check it with."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.token_dtype).newbyteorder("<")

    @property
    def fingerprint(self) -> str:
        """Changes when, and only when, a token, a document's end, or the meaning of an id changes."""
        if self.stated_fingerprint:
            return self.stated_fingerprint
        parts = [self.token_dtype, self.tokenizer.hash, str(self.eos_id)]
        parts += [f"{shard.split} {shard.hash} {shard.index_hash}" for shard in self.shards]
        return digest("\n".join(parts).encode()).hex()

    def of(self, split: str) -> tuple[Shard, ...]:
        """The shards of one split, in order."""
        return tuple(shard for shard in self.shards if shard.split == split)

    def num_tokens(self, split: str) -> int:
        return sum(shard.num_tokens for shard in self.shards if shard.split == split)

    def num_documents(self, split: str) -> int:
        return sum(shard.num_documents for shard in self.shards if shard.split == split)

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(shard.split for shard in self.shards))


def manifest_text(manifest: Manifest) -> str:
    """The file's text: readable from the top, one line for each shard."""
    fields = asdict(manifest)
    shards = fields.pop("shards")
    del fields["stated_fingerprint"]
    head = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "fingerprint": manifest.fingerprint,
        "splits": {
            split: {
                "num_tokens": manifest.num_tokens(split),
                "num_documents": manifest.num_documents(split),
                "num_shards": len(manifest.of(split)),
            }
            for split in manifest.splits
        },
        **fields,
    }
    rows = ",\n".join("    " + json.dumps(row) for row in shards)
    body = json.dumps(head, indent=2, ensure_ascii=False)
    return body.removesuffix("\n}") + ',\n  "shards": [' + (f"\n{rows}\n  " if rows else "") + "]\n}\n"


def write_manifest(manifest: Manifest, directory: Path) -> None:
    """From here on `directory` is this dataset."""
    with replacing(directory / MANIFEST) as file:
        file.write(manifest_text(manifest).encode())


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the dataset in `directory`, checked."""
    path = directory / MANIFEST
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if (directory / ".prepare").is_dir():
            raise DatasetError(
                f"{directory}: preparation is not finished; run the same `penstock prepare` again"
            ) from error
        what = "has no" if directory.is_dir() else "is not there, so neither is its"
        raise DatasetError(f"{directory}: {what} {MANIFEST}; make one with `penstock prepare`") from error
    return parsed_manifest(data, where=str(path))


def parsed_manifest(data: bytes, *, where: str) -> Manifest:
    """The manifest in `data`, or a `ManifestError` that names the field: never a half-checked value."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{where}: not JSON ({error}); prepare or pull the dataset again") from error
    top = _Fields(raw, where)
    if top.text("format") != FORMAT:
        raise ManifestError(f"{where}: format is {raw['format']!r}, expected {FORMAT!r}")
    version = top.count("format_version")
    if version != FORMAT_VERSION:
        raise ManifestError(f"{where}: format version {version}, this Penstock reads {FORMAT_VERSION}; upgrade it")
    dtype = top.text("token_dtype")
    if dtype not in ("uint16", "uint32"):
        raise ManifestError(f"{where}: token_dtype is {dtype!r}, expected 'uint16' or 'uint32'")
    tokenizer = top.inner("tokenizer")
    manifest = Manifest(
        token_dtype=dtype,
        tokenizer=TokenizerInfo(
            name=tokenizer.text("name"),
            hash=tokenizer.text("hash"),
            backend=tokenizer.text("backend"),
            version=tokenizer.text("version"),
            vocab_size=tokenizer.count("vocab_size"),
            lossless=tokenizer.flag("lossless"),
            state=_side_file(tokenizer.inner("state")),
        ),
        eos_id=top.count("eos_id"),
        eos_token=top.text("eos_token"),
        eos_policy=top.text("eos_policy"),
        tokens_per_shard=top.count("tokens_per_shard"),
        block_bytes=top.count("block_bytes"),
        shards=tuple(
            _shard(_Fields(row, f"{where}: shard {i}"), np.dtype(dtype).itemsize) for i, row in top.items("shards")
        ),
        sources=_side_file(top.inner("sources")),
        num_sources=top.count("num_sources"),
        stages=tuple(_Fields(row, f"{where}: stage {i}").raw for i, row in top.items("stages")),
        config=top.inner("config").raw,
        warnings=tuple(str(row) for _, row in top.items("warnings")),
        stated_fingerprint="" if have_digests() else top.hexdigest("fingerprint"),
    )
    names = [shard.name for shard in manifest.shards]
    if len(set(names)) != len(names):
        raise ManifestError(f"{where}: a shard is named twice")
    if top.text("fingerprint") != manifest.fingerprint:
        raise ManifestError(
            f"{where}: the fingerprint does not fit the shards it lists, so the file was edited or damaged; "
            "prepare or pull the dataset again"
        )
    return manifest


def _shard(row: "_Fields", token_bytes: int) -> Shard:
    split = row.text("split")
    shard = Shard(
        split=split,
        name=checked_shard_name(row.raw.get("name"), split=split, where=row.where),
        num_tokens=row.count("num_tokens"),
        num_documents=row.count("num_documents"),
        hash=row.hexdigest("hash"),
        index_hash=row.hexdigest("index_hash"),
        index_bytes=row.count("index_bytes"),
        stored_bytes=row.count("stored_bytes"),
    )
    if not shard.compressed and shard.stored_bytes != shard.num_tokens * token_bytes:
        raise ManifestError(f"{row.where}: {shard.num_tokens} tokens cannot take {shard.stored_bytes} bytes")
    return shard


def _side_file(row: "_Fields") -> SideFile:
    name = checked_plain_name(row.raw.get("file"), where=row.where)
    return SideFile(file=name, hash=row.hexdigest("hash"), num_bytes=row.count("num_bytes"))


class _Fields:
    """A JSON object whose fields are asked for by type; a wrong one is an error that names it."""

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, dict):
            raise ManifestError(f"{where}: expected an object, got {type(raw).__name__}")
        self.raw: dict[str, Any] = raw
        self.where = where

    def _wrong(self, key: str, expected: str) -> ManifestError:
        got = repr(self.raw[key])[:80] if key in self.raw else "nothing"
        return ManifestError(f"{self.where}: {key} must be {expected}, got {got}; prepare or pull the dataset again")

    def text(self, key: str) -> str:
        value = self.raw.get(key)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def count(self, key: str) -> int:
        value = self.raw.get(key)
        if type(value) is not int or not 0 <= value < _MOST:
            raise self._wrong(key, "a whole number that is not negative")
        return value

    def flag(self, key: str) -> bool:
        value = self.raw.get(key)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def hexdigest(self, key: str) -> str:
        value = self.raw.get(key)
        if not isinstance(value, str) or len(value) != 64 or set(value) - set("0123456789abcdef"):
            raise self._wrong(key, "64 hexadecimal digits")
        return value

    def inner(self, key: str) -> "_Fields":
        value = self.raw.get(key)
        if not isinstance(value, dict):
            raise self._wrong(key, "an object")
        return _Fields(value, f"{self.where}: {key}")

    def items(self, key: str) -> "enumerate[object]":
        value = self.raw.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        return enumerate(value)
