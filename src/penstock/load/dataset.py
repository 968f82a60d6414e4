"""One split of a prepared dataset, as a stream of tokens.

Opens a shard when a row in it is first read, and keeps no more of them open than the system allows.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigError, DatasetError
from penstock.shards.digest import have_digests
from penstock.shards.manifest import Manifest, Shard, read_manifest
from penstock.shards.reader import ShardReader, read_sources

if TYPE_CHECKING:
    from penstock.text.tokenizers import Tokenizer

Verify = Literal["sizes", "edges", "all"]


class Dataset:
    """One split of the dataset in a directory. Equal to any other with the same tokens, wherever that lies."""

    def __init__(
        self, directory: Path | str, split: str = "train", *, verify: Verify = "edges", max_open: int | None = None
    ) -> None:
        """Reads the manifest and nothing else.

        `verify`: what is checked when a shard is first opened: `sizes`; `edges`, also its index and its first and last
        block; or `all` of its blocks. `max_open`: shards open at a time; if not given, what the system allows.
        """
        if verify not in ("sizes", "edges", "all"):
            raise ConfigError(f"verify must be 'sizes', 'edges' or 'all', got {verify!r}")
        self.directory = Path(directory)
        self.split = split
        self.verify: Verify = verify
        self.max_open = max_open
        self.manifest: Manifest = read_manifest(self.directory)
        self.shards: tuple[Shard, ...] = self.manifest.of(split)
        if not self.shards:
            there = ", ".join(self.manifest.splits) or "none"
            raise DatasetError(
                f"{self.directory}: split {split!r} is empty (splits with documents: {there}); prepare more text, or "
                "with another --val_fraction"
            )
        self.shard_tokens = np.array([shard.num_tokens for shard in self.shards], np.int64)
        self.shard_ends = np.cumsum(self.shard_tokens)
        self.shard_starts = self.shard_ends - self.shard_tokens
        self.stored = _OpenShards(self)
        """The tokens of each shard of the split, by its number, as bytes to be sliced. Opened when first asked for."""

    @property
    def num_tokens(self) -> int:
        return int(self.shard_ends[-1])

    @property
    def num_documents(self) -> int:
        return sum(shard.num_documents for shard in self.shards)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.manifest.dtype

    @property
    def name(self) -> str:
        """What to call it: the directory's name."""
        return self.directory.resolve().name

    @cached_property
    def fingerprint(self) -> str:
        """Of the tokens, the documents' ends and the meaning of ids; split included."""
        return f"{self.split}@{self.manifest.fingerprint[:24]}"

    def reader(self, shard: int) -> ShardReader:
        """The open shard `shard` of the split."""
        return self.stored.reader(shard)

    def document_ends(self) -> Iterator[NDArray[np.int64]]:
        """Where documents end, shard by shard, counted from the start of the shard."""
        for number, shard in enumerate(self.shards):
            # Reading them all must not keep them all open.
            if number in self.stored:
                reader = self.reader(number)
            else:
                reader = ShardReader(self.directory, shard, self.dtype)
                if self.verify != "sizes" and have_digests():
                    reader.require_index_unchanged()
            yield reader.index.document_ends.view(np.int64)

    @cached_property
    def first_documents(self) -> NDArray[np.int64]:
        """How many documents of the split stand before each shard."""
        counts = np.array([shard.num_documents for shard in self.shards], np.int64)
        return np.cumsum(counts) - counts

    def documents(self, shard: int, start: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which documents of the split a stretch of a shard touches, and how many of its tokens each has."""
        ends = self.reader(shard).index.document_ends.view(np.int64)
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, start + length - 1, side="right"))
        sizes = np.diff(np.minimum(ends[first : last + 1], start + length), prepend=start)
        return np.arange(first, last + 1) + int(self.first_documents[shard]), sizes

    @cached_property
    def sources(self) -> list[dict[str, Any]]:
        """The inputs that the dataset was made from."""
        return read_sources(self.directory, self.manifest)

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """What the ids were made with."""
        # Not every machine that trains has tokenizers.
        from penstock.text.tokenizers import tokenizer_from_state

        return tokenizer_from_state(self.directory / self.manifest.tokenizer.state.file)

    def origin(self, shard: int, document: int) -> tuple[str, int]:
        """The path of the input that a document of the split came from, and which of its records it was, from 1."""
        index = self.reader(shard).index
        local = document - int(self.first_documents[shard])
        return str(self.sources[int(index.document_source[local])]["path"]), int(index.document_record[local])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dataset) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Dataset({str(self.directory)!r}, split={self.split!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process opens its own files.
        return _reopened, (self.directory, self.split, self.verify, self.max_open, self.fingerprint)


def _reopened(directory: Path, split: str, verify: Verify, max_open: int | None, fingerprint: str) -> Dataset:
    dataset = Dataset(directory, split, verify=verify, max_open=max_open)
    if dataset.fingerprint != fingerprint:
        raise DatasetError(f"{directory}: is not the dataset it was ({dataset.fingerprint}, expected {fingerprint})")
    return dataset


class _Compressed:
    """The tokens of a compressed shard, sliced like bytes."""

    def __init__(self, reader: ShardReader, token_bytes: int) -> None:
        self._reader, self._size = reader, token_bytes

    def __getitem__(self, where: slice) -> memoryview:
        tokens = self._reader.tokens(where.start // self._size, where.stop // self._size)
        return tokens.view(np.uint8).data


class _OpenShards(dict[int, memoryview | _Compressed]):
    """Shards by number, opened when asked for. The one opened first is closed when there are too many.

    Slices of a memoryview are made, and joined, faster than those of an array.
    """

    def __init__(self, dataset: Dataset) -> None:
        super().__init__()
        self._directory, self._shards, self._dtype = dataset.directory, dataset.shards, dataset.dtype
        self._verify = dataset.verify if have_digests() else "sizes"
        self._most = dataset.max_open or _most_open()
        self._verified: set[int] = set()
        self._readers: dict[int, ShardReader] = {}

    def __missing__(self, number: int) -> memoryview | _Compressed:
        reader = ShardReader(self._directory, self._shards[number], self._dtype)
        if self._verify != "sizes" and number not in self._verified:
            reader.require_unchanged(all_blocks=self._verify == "all")
        self._verified.add(number)
        while len(self._readers) >= self._most:
            first = next(iter(self._readers))
            # Another thread may have closed it.
            self._readers.pop(first, None)
            self.pop(first, None)
        whole = reader.whole
        self._readers[number] = reader
        stored = _Compressed(reader, self._dtype.itemsize) if whole is None else whole.view(np.uint8).data
        self[number] = stored
        return stored

    def reader(self, number: int) -> ShardReader:
        """The reader of a shard, opened if it is not."""
        while (found := self._readers.get(number)) is None:
            _ = self[number]
        return found


def _most_open() -> int:
    """A mapped file holds a descriptor; half of those allowed are left to others."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except ImportError:
        return 256
    return max(16, soft // 2) if soft != resource.RLIM_INFINITY else 1 << 16
