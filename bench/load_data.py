"""The tokens that loaders are measured on, in the format of each of them.

GPT-2 ids of the standard library's sources (`corpora.py`), cut into documents of log-normal length, written once with
each package's own writer and kept. Every format holds the same ids in the same order.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from contenders import TOKENIZER, WORK, write_tokenizer
from corpora import cached_stdlib
from documents import Documents
from loaders import SEQ_LEN, mosaic
from measure import read_through
from numpy.typing import NDArray

from penstock.shards.digest import digest
from penstock.shards.layout import BLOCK_BYTES, SOURCES, TOKENIZER_STATE, shard_name
from penstock.shards.manifest import Manifest, Shard, SideFile, TokenizerInfo, write_manifest
from penstock.shards.writer import write_shard

EOS: Final = 50256
NUM_SHARDS: Final = 10
FORMATS: Final = ("penstock", "train.bin", "litdata", "mds")
_BYTES_PER_TOKEN: Final = 3
"""More text than this many bytes a token is never needed; source code has about two."""
_VERSION: Final = 1


def made_tokens(num_tokens: int) -> Path:
    """The directory with `num_tokens` in all `FORMATS`, made if it is not there, and all of it in the page cache."""
    directory = WORK / f"load-{num_tokens // 10**6}M"
    wanted = {"num_tokens": num_tokens, "documents": asdict(Documents()), "version": _VERSION}
    mark = directory / "made.json"
    if not mark.exists() or json.loads(mark.read_text("utf-8")) != wanted:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        tokens, ends = _tokens(num_tokens), _ends(num_tokens)
        tokens[np.concatenate(ends) - 1] = EOS
        tokens.tofile(directory / "train.bin")
        _write_penstock(directory / "penstock", tokens, ends)
        _write_litdata(directory / "litdata", directory / "train.bin")
        _write_mds(directory / "mds", tokens)
        mark.write_text(json.dumps(wanted), "utf-8")
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            read_through(path)
    return directory


def write_dataset(
    directory: Path, shards: Callable[[Path], tuple[Shard, ...]], *, tokens_per_shard: int, eos_id: int, about: str
) -> None:
    """A dataset of Penstock's around the shards that `shards` writes into a directory."""
    directory.mkdir(parents=True)
    state, sources = json.dumps({"made_by": about}).encode(), json.dumps({"path": about}).encode() + b"\n"
    (directory / TOKENIZER_STATE).write_bytes(state)
    (directory / SOURCES).write_bytes(sources)
    tokenizer = TokenizerInfo(
        name="gpt2",
        hash=digest(state).hex(),
        backend="bench",
        version=str(_VERSION),
        vocab_size=EOS + 1,
        lossless=True,
        state=SideFile(file=TOKENIZER_STATE, hash=digest(state).hex(), num_bytes=len(state)),
    )
    manifest = Manifest(
        token_dtype="uint16",
        tokenizer=tokenizer,
        eos_id=eos_id,
        eos_token="<|endoftext|>",
        tokens_per_shard=tokens_per_shard,
        block_bytes=BLOCK_BYTES,
        shards=shards(directory),
        sources=SideFile(file=SOURCES, hash=digest(sources).hex(), num_bytes=len(sources)),
        num_sources=1,
    )
    write_manifest(manifest, directory)


def _tokens(num_tokens: int) -> NDArray[np.uint16]:
    from fastokens import Tokenizer

    num_mb = max(1, num_tokens * _BYTES_PER_TOKEN // 10**6)
    text = cached_stdlib(WORK / f"text-{num_mb}MB.jsonl", num_mb * 10**6)
    write_tokenizer()
    encode = Tokenizer.from_json_str(TOKENIZER.read_text("utf-8")).encode_batch_flat
    tokens = np.empty(num_tokens, np.uint16)
    filled = 0
    with open(text.path, encoding="utf-8") as lines:
        for line in lines:
            ids, _ = encode([json.loads(line)["text"]], add_special_tokens=False, split_special_tokens=True)
            found = np.frombuffer(ids, np.uint32)[: num_tokens - filled]
            tokens[filled : filled + len(found)] = found
            filled += len(found)
            if filled == num_tokens:
                return tokens
    raise RuntimeError(f"{text.path}: {filled:,} tokens, {num_tokens:,} are needed; raise _BYTES_PER_TOKEN")


def _ends(num_tokens: int) -> list[NDArray[np.int64]]:
    """Where documents end, shard by shard, counted from the first token of all."""
    size = num_tokens // NUM_SHARDS
    return [Documents().ends(size, seed=number) + number * size for number in range(NUM_SHARDS)]


def _write_penstock(directory: Path, tokens: NDArray[np.uint16], ends: list[NDArray[np.int64]]) -> None:
    size = len(tokens) // NUM_SHARDS

    def shards(into: Path) -> tuple[Shard, ...]:
        (into / "train").mkdir()
        found: list[Shard] = []
        for number in range(NUM_SHARDS):
            own = (ends[number] - number * size).astype(np.uint64)
            name = shard_name("train", number)
            found.append(
                write_shard(
                    [tokens[number * size : (number + 1) * size]],
                    split="train",
                    name=name,
                    dtype=np.dtype("<u2"),
                    document_ends=own,
                    document_source=np.zeros(len(own), np.uint32),
                    document_record=np.arange(1, len(own) + 1, dtype=np.uint64),
                    first_document=sum(shard.num_documents for shard in found),
                    tokens_path=into / name,
                    index_path=into / f"train/shard_{number:05d}.idx",
                )
            )
        return tuple(found)

    write_dataset(directory, shards, tokens_per_shard=size, eos_id=EOS, about="bench/load_data.py")


def tokens_of_part(where: tuple[str, int, int]) -> Iterator[Any]:
    """A stretch of a file of tokens, as litdata wants it: called in a process of its own."""
    import torch

    path, start, count = where
    yield torch.from_numpy(np.fromfile(path, np.uint16, count=count, offset=2 * start))


def _write_litdata(directory: Path, source: Path) -> None:
    from litdata import TokensLoader, optimize

    size = os.path.getsize(source) // 2 // NUM_SHARDS
    optimize(
        tokens_of_part,
        inputs=[(str(source.resolve()), number * size, size) for number in range(NUM_SHARDS)],
        output_dir=str(directory.resolve()),
        # As many chunks as there are shards: each part fills one.
        chunk_bytes=2 * size + 1024,
        item_loader=TokensLoader(block_size=SEQ_LEN + 1),
        num_workers=1,
        reorder_files=False,
        verbose=False,
    )


def _write_mds(directory: Path, tokens: NDArray[np.uint16]) -> None:
    width = SEQ_LEN + 1
    columns, limit = {"tokens": f"ndarray:uint16:{width}"}, 2 * len(tokens) // NUM_SHARDS
    with mosaic().MDSWriter(out=str(directory.resolve()), columns=columns, size_limit=limit) as writer:
        for row in tokens[: len(tokens) // width * width].reshape(-1, width):
            writer.write({"tokens": row})
