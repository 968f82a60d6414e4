"""Where things are inside a dataset, and which names a manifest may use.

Pure: opens no files.
"""

import re
from pathlib import Path
from typing import Final

from penstock.errors import ManifestError

MANIFEST: Final = "dataset_metadata.json"
TOKENIZER_STATE: Final = "tokenizer_state.json"
SOURCES: Final = "sources.jsonl"
BLOCK_BYTES: Final = 1 << 20
"""Bytes of tokens under one hash, and in one zstd frame of a compressed shard."""
SPLITS: Final = ("train", "val")

_SHARD_NAME: Final = re.compile(r"(?P<split>[a-z][a-z0-9_]{0,31})/shard_(?P<number>\d{5,12})\.bin(?P<zstd>\.zst)?")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def shard_name(split: str, number: int, *, compressed: bool = False) -> str:
    """The path of a shard inside its dataset, as manifests write it."""
    return f"{split}/shard_{number:05d}.bin" + (".zst" if compressed else "")


def index_name(name: str) -> str:
    """The path of the index that belongs to a shard."""
    return name.removesuffix(".zst").removesuffix(".bin") + ".idx"


def shard_number(name: str) -> int:
    """The number in a shard's name."""
    match = _SHARD_NAME.fullmatch(name)
    assert match is not None, name
    return int(match["number"])


def checked_shard_name(name: object, *, split: str, where: str) -> str:
    """`name`, if it is a shard of `split` inside the dataset's own directory."""
    match = _SHARD_NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None or match["split"] != split:
        raise ManifestError(
            f"{where}: a shard of {split!r} cannot be named {name!r}; expected {split}/shard_NNNNN.bin "
            "inside the dataset. Do not use this dataset: its manifest was damaged or made to mislead"
        )
    return match[0]


def checked_plain_name(name: object, *, where: str) -> str:
    """`name`, if it is a file directly inside the dataset's own directory."""
    if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name):
        raise ManifestError(f"{where}: {name!r} is not the name of a file inside the dataset")
    return name


def block_count(num_bytes: int, block_bytes: int = BLOCK_BYTES) -> int:
    """How many blocks `num_bytes` take."""
    return -(-num_bytes // block_bytes)


def is_dataset(directory: Path) -> bool:
    """Whether a finished dataset is there: the manifest is written last."""
    return (directory / MANIFEST).is_file()
