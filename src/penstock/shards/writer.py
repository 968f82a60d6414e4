"""Tokens → a shard and its index.

Writes under the partial names that it is given and renames nothing: the caller decides when a shard is done.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from blake3 import blake3
from numpy.typing import NDArray

from penstock.shards.atomic import disk_full_as_error
from penstock.shards.index import HASH_BYTES, Index, index_bytes
from penstock.shards.layout import BLOCK_BYTES
from penstock.shards.manifest import Shard

_ZSTD_LEVEL = 3


def write_shard(
    runs: Iterable[NDArray[Any]],
    *,
    split: str,
    name: str,
    dtype: np.dtype[Any],
    document_ends: NDArray[np.uint64],
    document_source: NDArray[np.uint32],
    document_record: NDArray[np.uint64],
    first_document: int,
    tokens_path: Path,
    index_path: Path,
    block_bytes: int = BLOCK_BYTES,
) -> Shard:
    """The manifest's line for the shard whose tokens are `runs` laid end to end.

    The bytes depend on the tokens and documents alone, not on how they were cut into runs. Memory is a few blocks.
    """
    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL) if name.endswith(".zst") else None
    whole = blake3()
    hashes: list[bytes] = []
    frame_ends: list[int] = []
    stored = 0
    num_bytes = 0
    pending = bytearray()
    with disk_full_as_error(tokens_path), open(tokens_path, "wb") as file:

        def flush(block: memoryview) -> None:
            nonlocal stored
            whole.update(block)
            hashes.append(blake3(block).digest())
            frame = block if compressor is None else compressor.compress(block)
            stored += file.write(frame)
            frame_ends.append(stored)

        for run in runs:
            data = np.ascontiguousarray(run, dtype).view(np.uint8).data
            num_bytes += len(data)
            if pending:
                take = min(block_bytes - len(pending), len(data))
                pending += data[:take]
                data = data[take:]
                if len(pending) == block_bytes:
                    flush(memoryview(bytes(pending)))
                    pending.clear()
            whole_blocks = len(data) // block_bytes * block_bytes
            for start in range(0, whole_blocks, block_bytes):
                flush(data[start : start + block_bytes])
            pending += data[whole_blocks:]
        if pending:
            flush(memoryview(bytes(pending)))

    num_tokens = num_bytes // dtype.itemsize
    assert num_tokens == (int(document_ends[-1]) if len(document_ends) else 0), "documents and tokens disagree"
    index = index_bytes(
        Index(
            token_bytes=dtype.itemsize,
            block_bytes=block_bytes,
            num_tokens=num_tokens,
            first_document=first_document,
            document_ends=document_ends,
            document_source=document_source,
            document_record=document_record,
            block_hashes=np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, HASH_BYTES),
            frame_ends=np.array(frame_ends, np.uint64) if compressor else None,
        )
    )
    with disk_full_as_error(index_path):
        index_path.write_bytes(index)
    return Shard(
        split=split,
        name=name,
        num_tokens=num_tokens,
        num_documents=len(document_ends),
        hash=whole.hexdigest(),
        index_hash=blake3(index).hexdigest(),
        index_bytes=len(index),
        stored_bytes=stored,
    )
