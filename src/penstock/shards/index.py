"""The `.idx` beside every shard: where documents end, where they came from, and the hash of every block.

Little-endian throughout. A header of 64 bytes, then five columns one after the other; the size of the file follows
from the header, and anything else is refused. Reads nothing but numbers: an index cannot name a file.
"""

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ManifestError
from penstock.shards.layout import block_count

MAGIC: Final = b"PENSTIDX"
VERSION: Final = 1
HASH_BYTES: Final = 32
_HEADER: Final = struct.Struct("<8sIIQQQIIQQ")
_ZSTD: Final = 1
_MOST: Final = 1 << 48
"""No count in an honest index comes near this; past it, sizes would overflow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """What is known of one shard besides its tokens."""

    token_bytes: int
    block_bytes: int
    num_tokens: int
    first_document: int
    """How many documents of the same split stand in the shards before this one."""
    document_ends: NDArray[np.uint64]
    """Where each document ends, in tokens, its EOS included."""
    document_source: NDArray[np.uint32]
    """Which line of the sources file each document came from, from 0."""
    document_record: NDArray[np.uint64]
    """Which record (line, row or document) of that source it was, from 1."""
    block_hashes: NDArray[np.uint8]
    """BLAKE3 of every block of the uncompressed tokens, one row each."""
    frame_ends: NDArray[np.uint64] | None = None
    """For a compressed shard: where the zstd frame of each block ends, in stored bytes."""

    @property
    def num_documents(self) -> int:
        return len(self.document_ends)


def index_bytes(index: Index) -> bytes:
    """The bytes of the file."""
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        index.block_bytes,
        index.num_tokens,
        index.num_documents,
        len(index.block_hashes),
        index.token_bytes,
        0 if index.frame_ends is None else _ZSTD,
        index.first_document,
        0,
    )
    columns = [
        index.document_ends.astype("<u8").tobytes(),
        index.document_record.astype("<u8").tobytes(),
        b"" if index.frame_ends is None else index.frame_ends.astype("<u8").tobytes(),
        index.block_hashes.tobytes(),
        index.document_source.astype("<u4").tobytes(),
    ]
    return header + b"".join(columns)


def parsed_index(data: bytes, *, where: str) -> Index:
    """The index in `data`, or an error: never numbers that do not fit together."""
    if len(data) < _HEADER.size or data[:8] != MAGIC:
        raise ManifestError(
            f"{where}: not a shard index (expected it to start with {MAGIC!r}); prepare or pull it again"
        )
    _, version, block_bytes, num_tokens, num_documents, num_blocks, token_bytes, flags, first_document, reserved = (
        _HEADER.unpack_from(data)
    )
    if version != VERSION:
        raise ManifestError(f"{where}: index version {version}, this Penstock reads {VERSION}; upgrade it")
    sane = token_bytes in (2, 4) and block_bytes > 0 and block_bytes % 4 == 0 and flags in (0, _ZSTD) and reserved == 0
    sane = sane and max(num_tokens, num_documents, first_document) < _MOST
    if not sane or num_blocks != block_count(num_tokens * token_bytes, block_bytes):
        raise ManifestError(f"{where}: the header's numbers do not fit together; prepare or pull it again")
    frames = num_blocks if flags & _ZSTD else 0
    expected = _HEADER.size + 20 * num_documents + 8 * frames + HASH_BYTES * num_blocks
    if len(data) != expected:
        raise ManifestError(f"{where}: {len(data)} bytes, expected {expected}; prepare or pull it again")

    at = _HEADER.size
    ends = np.frombuffer(data, "<u8", num_documents, at)
    at += ends.nbytes
    record = np.frombuffer(data, "<u8", num_documents, at)
    at += record.nbytes
    frame_ends = np.frombuffer(data, "<u8", frames, at)
    at += frame_ends.nbytes
    hashes = np.frombuffer(data, np.uint8, HASH_BYTES * num_blocks, at).reshape(num_blocks, HASH_BYTES)
    at += hashes.nbytes
    source = np.frombuffer(data, "<u4", num_documents, at)
    last = int(ends[-1]) if num_documents else 0
    if last != num_tokens or not _rises(ends):
        raise ManifestError(f"{where}: document ends do not rise to the shard's {num_tokens} tokens")
    if not _rises(frame_ends):
        raise ManifestError(f"{where}: compressed frames do not follow one another")
    return Index(
        token_bytes=token_bytes,
        block_bytes=block_bytes,
        num_tokens=num_tokens,
        first_document=first_document,
        document_ends=ends,
        document_source=source,
        document_record=record,
        block_hashes=hashes,
        frame_ends=frame_ends if flags & _ZSTD else None,
    )


def _rises(ends: NDArray[np.uint64]) -> bool:
    return len(ends) == 0 or bool(ends[0] > 0 and np.all(ends[1:] > ends[:-1]))
