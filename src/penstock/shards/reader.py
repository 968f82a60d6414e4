"""A dataset on disk → tokens.

Opens shards when they are first touched, so that ten thousand of them cost one manifest. Checks sizes on opening;
`penstock.shards.verify` checks every byte.
"""

import json
import mmap
from bisect import bisect_right
from collections import OrderedDict
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ChecksumError, DatasetError, MissingExtra
from penstock.shards.digest import digest
from penstock.shards.index import Index, parsed_index
from penstock.shards.layout import index_name
from penstock.shards.manifest import Manifest, Shard, read_manifest

_BLOCKS_KEPT = 16
"""Decompressed blocks that an open compressed shard remembers."""


class ShardReader:
    """One shard: its tokens and its documents. Compressed shards are read block by block.

    The sizes of its files are checked on opening; its index is read when it is first needed.
    """

    def __init__(self, directory: Path, shard: Shard, dtype: np.dtype[Any]) -> None:
        self.path = directory / shard.name
        self.shard = shard
        self._dtype = dtype
        self._index_path = directory / index_name(shard.name)
        _check_size(self.path, shard.stored_bytes)
        _check_size(self._index_path, shard.index_bytes)
        self._stored = _mapped(self.path, shard.stored_bytes)
        self._blocks: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()

    @cached_property
    def index(self) -> Index:
        """Where documents end and come from, and the hashes of blocks."""
        index = parsed_index(self._index_path.read_bytes(), where=str(self._index_path))
        if (index.num_tokens, index.num_documents) != (self.shard.num_tokens, self.shard.num_documents):
            raise DatasetError(
                f"{self.path}: its index counts {index.num_tokens} tokens, the manifest {self.shard.num_tokens}; "
                "prepare or pull it again"
            )
        if index.token_bytes != self._dtype.itemsize:
            raise DatasetError(
                f"{self.path}: its index has {index.token_bytes} bytes a token, the manifest {self._dtype}"
            )
        return index

    @property
    def whole(self) -> NDArray[Any] | None:
        """All tokens as a view of the file, or None where the shard is compressed."""
        return None if self.shard.compressed else self._stored.view(self._dtype)

    def require_unchanged(self, *, all_blocks: bool = False) -> None:
        """Refuses a shard that is not the manifest's: looks at its index, and at its first and last block or at all."""
        self.require_index_unchanged()
        self._require_blocks(all_blocks=all_blocks)

    def require_index_unchanged(self) -> None:
        """Refuses an index that is not the manifest's."""
        got = digest(self._index_path.read_bytes()).hex()
        if got != self.shard.index_hash:
            raise ChecksumError(
                f"{self._index_path}: hashes to {got[:12]}, the manifest says {self.shard.index_hash[:12]}; it changed "
                "since the dataset was made: prepare or pull it again"
            )

    def _require_blocks(self, *, all_blocks: bool) -> None:
        num_blocks = len(self.index.block_hashes)
        for number in range(num_blocks) if all_blocks else sorted({0, num_blocks - 1} - {-1}):
            if digest(self.block(number)) != self.index.block_hashes[number].tobytes():
                raise ChecksumError(
                    f"{self.path}: block {number} is not what the manifest says; the file changed since the dataset "
                    "was made: prepare or pull it again"
                )

    def tokens(self, start: int, stop: int) -> NDArray[Any]:
        """Tokens `start` up to `stop`. A view of the file where the shard is not compressed."""
        if not 0 <= start <= stop <= self.shard.num_tokens:
            raise IndexError(f"tokens {start}:{stop} of {self.path}, which has {self.shard.num_tokens}")
        if not self.shard.compressed:
            size = self._dtype.itemsize
            return self._stored[start * size : stop * size].view(self._dtype)
        size, block = self._dtype.itemsize, self.index.block_bytes
        first, last = start * size // block, -(-stop * size // block)
        parts = [self.block(i) for i in range(first, last)]
        data = np.concatenate(parts) if parts else np.empty(0, np.uint8)
        offset = start * size - first * block
        return data[offset : offset + (stop - start) * size].view(self._dtype)

    def document(self, number: int) -> NDArray[Any]:
        """The tokens of the document `number` of this shard, its EOS included."""
        ends = self.index.document_ends
        return self.tokens(int(ends[number - 1]) if number else 0, int(ends[number]))

    def block(self, number: int) -> NDArray[np.uint8]:
        """The bytes of one block, decompressed, not verified."""
        size = self.index.block_bytes
        total = self.index.num_tokens * self._dtype.itemsize
        expected = min(size, total - number * size)
        if not self.shard.compressed:
            return self._stored[number * size : number * size + expected]
        if number in self._blocks:
            self._blocks.move_to_end(number)
            return self._blocks[number]
        ends = self.index.frame_ends
        if ends is None:
            raise DatasetError(f"{self.path}: is compressed, but its index has no frames; prepare or pull it again")
        frame = self._stored[int(ends[number - 1]) if number else 0 : int(ends[number])]
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtra(f"{self.path}: is compressed: pip install zstandard") from error
        try:
            # The declared size bounds what is written: a frame that claims more is refused, not inflated.
            if zstandard.frame_content_size(frame.tobytes()[:32]) != expected:
                raise zstandard.ZstdError("wrong size in the frame's header")
            data = zstandard.ZstdDecompressor().decompress(frame.tobytes())
        except zstandard.ZstdError as error:
            raise ChecksumError(f"{self.path}: block {number} does not decompress ({error}); pull it again") from error
        block = np.frombuffer(data, np.uint8)
        self._blocks[number] = block
        if len(self._blocks) > _BLOCKS_KEPT:
            self._blocks.popitem(last=False)
        return block


class ShardSet:
    """A dataset in a directory: its manifest, and its shards when they are asked for."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.manifest: Manifest = read_manifest(self.directory)
        self._open: dict[str, ShardReader] = {}
        self._ends = list(accumulate(shard.num_documents for shard in self.manifest.shards))

    @property
    def num_documents(self) -> int:
        return self._ends[-1] if self._ends else 0

    def reader(self, shard: Shard) -> ShardReader:
        """The open shard; opening is done once."""
        if shard.name not in self._open:
            self._open[shard.name] = ShardReader(self.directory, shard, self.manifest.dtype)
        return self._open[shard.name]

    def locate(self, document: int) -> tuple[ShardReader, int]:
        """The shard that holds document `document` of the whole dataset, and its number there."""
        if not 0 <= document < self.num_documents:
            raise DatasetError(
                f"{self.directory}: no document {document}; it has {self.num_documents}, numbered from 0"
            )
        at = bisect_right(self._ends, document)
        before = self._ends[at - 1] if at else 0
        return self.reader(self.manifest.shards[at]), document - before

    def sources(self) -> list[dict[str, Any]]:
        """Where the documents came from: path, size and fingerprint of every input."""
        return read_sources(self.directory, self.manifest)


def read_sources(directory: Path, manifest: Manifest) -> list[dict[str, Any]]:
    """The inputs that a dataset was made from, one for each line of its sources file."""
    path = directory / manifest.sources.file
    _check_size(path, manifest.sources.num_bytes)
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def _check_size(path: Path, expected: int) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: is in the manifest but not on disk; prepare or pull the dataset again") from error
    if size != expected:
        raise DatasetError(f"{path}: {size} bytes, the manifest says {expected}; prepare or pull the dataset again")


def _mapped(path: Path, num_bytes: int) -> NDArray[np.uint8]:
    # A plain array over the mapping: slices of np.memmap cost twice as much.
    if num_bytes == 0:
        return np.empty(0, np.uint8)
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
