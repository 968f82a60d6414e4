"""Small datasets made directly with our own writer, and rows worked out slowly and plainly from their bytes.

Every token of such a dataset is another number: a token says where it stands.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from blake3 import blake3
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.load.batch import Batch
from penstock.load.dataset import Dataset
from penstock.load.loader import Loader
from penstock.load.plan import Plan
from penstock.shards.layout import index_name, shard_name
from penstock.shards.manifest import Manifest, Shard, SideFile, TokenizerInfo, write_manifest
from penstock.shards.reader import ShardSet
from penstock.shards.writer import write_shard

EOS: Final = 0
"""What rows are filled up with. No document has it, so that padding can be told from tokens."""
MASKED: Final = -100

Shards = Sequence[Sequence[int]]
"""The lengths of the documents in each shard."""

SHARDS = st.lists(st.lists(st.integers(1, 30) | st.integers(1, 4), min_size=1, max_size=12), min_size=1, max_size=4)


def written(
    directory: Path,
    shards: Shards,
    *,
    first_token: int = 1,
    token_dtype: str = "uint16",
    compressed: bool = False,
    split: str = "train",
    tokenizer: str = "counting",
    block_bytes: int = 1 << 10,
) -> Path:
    """A dataset in `directory` whose tokens count up from `first_token`."""
    dtype = np.dtype(token_dtype).newbyteorder("<")
    (directory / split).mkdir(parents=True, exist_ok=True)
    lines: list[Shard] = []
    num_documents = 0
    for number, lengths in enumerate(shards):
        size = sum(lengths)
        name = shard_name(split, number, compressed=compressed)
        lines.append(
            write_shard(
                [np.arange(first_token, first_token + size).astype(dtype)],
                split=split,
                name=name,
                dtype=dtype,
                document_ends=np.cumsum(lengths).astype(np.uint64),
                document_source=np.zeros(len(lengths), np.uint32),
                document_record=np.arange(1, len(lengths) + 1, dtype=np.uint64),
                first_document=num_documents,
                tokens_path=directory / name,
                index_path=directory / index_name(name),
                block_bytes=block_bytes,
            )
        )
        first_token += size
        num_documents += len(lengths)
    write_manifest(_manifest(directory, tuple(lines), token_dtype, tokenizer, block_bytes), directory)
    return directory


def _manifest(
    directory: Path, shards: tuple[Shard, ...], token_dtype: str, tokenizer: str, block_bytes: int
) -> Manifest:
    sides: dict[str, SideFile] = {}
    for name, value in (("tokenizer_state.json", {"name": tokenizer}), ("sources.jsonl", {"path": "made up"})):
        data = json.dumps(value).encode() + b"\n"
        (directory / name).write_bytes(data)
        sides[name] = SideFile(file=name, hash=blake3(data).hexdigest(), num_bytes=len(data))
    state = sides["tokenizer_state.json"]
    return Manifest(
        token_dtype=token_dtype,
        tokenizer=TokenizerInfo(
            name=tokenizer,
            hash=state.hash,
            backend="penstock",
            version="1",
            vocab_size=1 << 16,
            lossless=True,
            state=state,
        ),
        eos_id=EOS,
        eos_token="<|endoftext|>",
        tokens_per_shard=1 << 20,
        block_bytes=block_bytes,
        shards=shards,
        sources=sides["sources.jsonl"],
        num_sources=1,
    )


def natural_shards(seed: int, *, num_documents: int = 60, num_shards: int = 3, median: float = 12.0) -> Shards:
    """Documents of log-normal lengths in a few shards."""
    rng = np.random.default_rng(seed)
    lengths = np.maximum(1, rng.lognormal(np.log(median), 0.9, num_documents)).astype(int).tolist()
    return [lengths[number::num_shards] for number in range(num_shards)]


# Rows, worked out slowly


@dataclass(frozen=True)
class PlainRow:
    """One row, as lists."""

    ids: list[int]
    labels: list[int]
    positions: list[int]
    documents: list[int]
    segments: list[int]
    """Lengths of the documents in it, and of its padding."""


class PlainShards:
    """A split read whole with nothing but numpy and the indexes: the stream of each shard, and whose each token is."""

    def __init__(self, dataset: Dataset, first_document: int = 0) -> None:
        shard_set = ShardSet(dataset.directory)
        self.tokens: list[list[int]] = []
        self.document: list[list[int]] = []
        for shard in shard_set.manifest.of(dataset.split):
            reader = shard_set.reader(shard)
            self.tokens.append(reader.tokens(0, shard.num_tokens).tolist())
            owners: list[int] = []
            for end in reader.index.document_ends.tolist():
                owners += [first_document] * (end - len(owners))
                first_document += 1
            self.document.append(owners)


def plain_sources(plan: Plan) -> list[PlainShards]:
    counts = [dataset.num_documents for dataset in plan.datasets]
    firsts = [sum(counts[:number]) for number in range(len(counts))]
    return [PlainShards(dataset, first) for dataset, first in zip(plan.datasets, firsts, strict=True)]


def plain_row(plan: Plan, place: int, sources: list[PlainShards], *, shift_labels: bool = True) -> PlainRow:
    """The row at `place`: its pieces end to end, then padding. -1 is a filler: padding and nothing else."""
    ids: list[int] = []
    following: list[int] = []
    documents: list[int] = []
    for piece in plan.row(place) if place >= 0 else []:
        shard = sources[piece.source].tokens[piece.shard]
        owner = sources[piece.source].document[piece.shard]
        stop = piece.start + piece.length
        ids += shard[piece.start : stop]
        documents += owner[piece.start : stop]
        following += shard[piece.start + 1 : stop]
        if plan.rows == "chunk":
            has_next = stop < len(shard)
        else:
            # What was cut off a document is not a label either.
            has_next = plan.long_documents == "split" and stop < len(shard) and owner[stop] == owner[stop - 1]
        following.append(shard[stop] if has_next else MASKED)
    room = plan.seq_len - len(ids)
    ids += [plan.eos_id] * room
    following += [MASKED] * room
    documents += [-1] * room
    runs = [len(list(run)) for _, run in itertools.groupby(documents)]
    if shift_labels:
        labels = following
    else:
        # A model that shifts on its own predicts position p + 1 from p: what p has no label for is masked at p + 1.
        pairs = zip(ids[1:], following, strict=False)
        labels = [ids[0] if place >= 0 else MASKED, *(MASKED if after == MASKED else token for token, after in pairs)]
    positions = [place for run in runs for place in range(run)]
    return PlainRow(ids, labels, positions, documents, runs)


# Runs


def rows_of_batches(batches: Iterable[Batch]) -> dict[int, bytes]:
    """Ids and labels of every row by its number; fails where one comes twice. Fillers are left out."""
    found: dict[int, bytes] = {}
    for batch in batches:
        for number, content in contents(batch):
            if number >= 0:
                assert number not in found, f"row {number} comes twice"
                found[number] = content
    return found


def contents(batch: Batch) -> list[tuple[int, bytes]]:
    """Number, and ids and labels as bytes, of every row of a batch."""
    ids = np.asarray(batch.input_ids).astype(np.int64)
    labels = np.asarray(batch.labels).astype(np.int64)
    return [(int(number), ids[at].tobytes() + labels[at].tobytes()) for at, number in enumerate(batch.rows)]


def undisturbed(plan: Plan, **settings: Any) -> dict[int, bytes]:
    """Every row of the run of one rank that nothing interrupts."""
    return rows_of_batches(Loader(plan, micro_batch=1, format="numpy", prefetch=0, **settings))


def every_token(dataset: Dataset) -> Counter[int]:
    return Counter(token for shard in PlainShards(dataset).tokens for token in shard)


def tokens_in(ids: NDArray[Any]) -> Counter[int]:
    """How often each token comes, padding left out."""
    found = Counter(np.asarray(ids).reshape(-1).tolist())
    del found[EOS]
    return found


def divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]
