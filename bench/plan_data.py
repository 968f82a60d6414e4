"""What plans are measured on: a dataset of a trillion tokens that takes no room, and the ends of many documents.

The dataset is whole in every respect: its shards are sparse files of zeros, and every size and hash in its indexes and
manifest is that of those zeros.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from contenders import WORK
from documents import Documents
from load_data import write_dataset
from measure import read_through
from numpy.typing import NDArray

from penstock.shards.digest import digest
from penstock.shards.index import HASH_BYTES, Index, index_bytes
from penstock.shards.layout import BLOCK_BYTES, index_name, shard_name
from penstock.shards.manifest import Shard

TOKEN_BYTES: Final = 2
DOCUMENTS_PER_SHARD: Final = 4
NUM_ENDS_FILES: Final = 100
_VERSION: Final = 1


def zero_dataset(num_shards: int, tokens_per_shard: int) -> Path:
    """A dataset of zeros, made if it is not there. A zero is also what ends its documents."""
    directory = WORK / f"zeros-{num_shards}x{tokens_per_shard // 10**6}M"

    def make() -> None:
        write_dataset(
            directory / "dataset",
            lambda into: _zero_shards(into, num_shards, tokens_per_shard),
            tokens_per_shard=tokens_per_shard,
            eos_id=0,
            about="bench/plan_data.py",
        )

    _cached(directory, {"num_shards": num_shards, "tokens_per_shard": tokens_per_shard}, make)
    return directory / "dataset"


def ends_files(num_documents: int, documents: Documents) -> Path:
    """A directory with the ends of documents, one file of int64 for each shard, made if it is not there."""
    directory = WORK / f"ends-{num_documents // 10**6}M"

    def make() -> None:
        for number in range(NUM_ENDS_FILES):
            lengths = documents.lengths(num_documents // NUM_ENDS_FILES, seed=number)
            np.cumsum(lengths).tofile(directory / f"shard_{number:05d}.ends")

    _cached(directory, {"num_documents": num_documents, "documents": asdict(documents)}, make)
    for path in directory.iterdir():
        read_through(path)
    return directory


def _zero_shards(into: Path, num_shards: int, tokens_per_shard: int) -> tuple[Shard, ...]:
    (into / "train").mkdir()
    num_bytes = tokens_per_shard * TOKEN_BYTES
    whole, hashes = _zero_hashes(num_bytes)
    ends = np.arange(1, DOCUMENTS_PER_SHARD + 1, dtype=np.uint64) * np.uint64(tokens_per_shard // DOCUMENTS_PER_SHARD)
    ends[-1] = tokens_per_shard
    shards: list[Shard] = []
    for number in range(num_shards):
        name = shard_name("train", number)
        index = index_bytes(
            Index(
                token_bytes=TOKEN_BYTES,
                block_bytes=BLOCK_BYTES,
                num_tokens=tokens_per_shard,
                first_document=number * DOCUMENTS_PER_SHARD,
                document_ends=ends,
                document_source=np.zeros(len(ends), np.uint32),
                document_record=np.arange(1, len(ends) + 1, dtype=np.uint64),
                block_hashes=hashes,
            )
        )
        with open(into / name, "wb") as file:
            file.truncate(num_bytes)
        (into / index_name(name)).write_bytes(index)
        shards.append(
            Shard(
                split="train",
                name=name,
                num_tokens=tokens_per_shard,
                num_documents=len(ends),
                hash=whole,
                index_hash=digest(index).hex(),
                index_bytes=len(index),
                stored_bytes=num_bytes,
            )
        )
    return tuple(shards)


def _zero_hashes(num_bytes: int) -> tuple[str, NDArray[np.uint8]]:
    """The hash of so many zeros, and those of their blocks."""
    num_whole, rest = divmod(num_bytes, BLOCK_BYTES)
    blocks = [digest(bytes(BLOCK_BYTES))] * num_whole + ([digest(bytes(rest))] if rest else [])
    return digest(bytes(num_bytes)).hex(), np.frombuffer(b"".join(blocks), np.uint8).reshape(-1, HASH_BYTES)


def _cached(directory: Path, wanted: dict[str, Any], make: Callable[[], None]) -> None:
    """Runs `make` in the empty `directory`, unless it was already done with the same settings."""
    wanted = wanted | {"version": _VERSION}
    mark = directory / "made.json"
    if mark.exists() and json.loads(mark.read_text("utf-8")) == wanted:
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    make()
    mark.write_text(json.dumps(wanted), "utf-8")
