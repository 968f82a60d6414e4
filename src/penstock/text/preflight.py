"""How much it will be, and whether the disk can hold it, before anything is spent.

Estimates from a sample that is spread over the inputs. Writes nothing.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import DiskFull, InputError
from penstock.text.gather import block_lines
from penstock.text.planning import Plan
from penstock.text.sources.block import Block, Tally
from penstock.text.sources.reading import ReadOptions, read_part
from penstock.text.tokenizers import Tokenizer
from penstock.text.work import Work

_TABLE_EXPANSION: Final = {"parquet": 3.0, "arrow": 1.0}
_COMPRESSION_EXPANSION: Final = 4.0
_ITEM_SHARE: Final = 0.7
"""Bytes of hashes for each byte of text, with short lines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What a run will take, before duplicates are taken out."""

    num_tokens: int
    num_shards: int
    shard_bytes: int
    disk_bytes: int
    """At the peak, what is already there included."""
    free_bytes: int


def sampled_texts(plan: Plan, max_bytes: int, *, most_units: int, clean: bool = True) -> Iterator[str]:
    """Text from units spread evenly over the input. The same for any number of workers."""
    step = max(1, len(plan.units) // most_units)
    chosen = plan.units[::step][:most_units]
    share = max(1, max_bytes // max(1, len(chosen)))
    options = read_options(plan)
    for unit in chosen:
        left = share
        for part in unit.parts:
            # A damaged file is reported when its unit is done, with all that is known then.
            with suppress(InputError):
                for block in read_part(plan.files[part.source], plan.paths[part.source], part, options, Tally()):
                    for text in _texts(block, normalize=clean and plan.config.normalize):
                        yield text[:left]
                        left -= len(text)
                        if left <= 0:
                            break
                    if left <= 0:
                        break
            if left <= 0:
                break


def read_options(plan: Plan) -> ReadOptions:
    """How the plan's documents are found in files."""
    return ReadOptions(
        text_column=plan.config.text_column,
        document_separator=plan.config.separator,
        most_record_bytes=plan.config.most_record_bytes(),
    )


def estimate(plan: Plan, tokenizer: Tokenizer, work: Work, *, token_bytes: int) -> Estimate:
    """Tokens, shards and disk, from a quarter of a megabyte of text."""
    texts = list(sampled_texts(plan, 1 << 18, most_units=4, clean=False))
    sample_bytes = sum(len(text.encode()) for text in texts)
    ids, _ = tokenizer.encode(texts)
    tokens_per_byte = len(ids) / sample_bytes if sample_bytes else 0.5
    text_bytes = sum(
        file.num_bytes * (_COMPRESSION_EXPANSION if file.compression else 1.0) * _TABLE_EXPANSION.get(file.kind, 1.0)
        for file in plan.files
    )
    num_tokens = int(text_bytes * tokens_per_byte)
    shard_bytes = num_tokens * token_bytes
    # Ids lie once in units and once in shards until the end; clean text and hashes only where they are compared.
    disk = 2 * shard_bytes + (text_bytes * (1 + _ITEM_SHARE) if plan.staged else 0)
    out_dir = plan.config.out_dir
    return Estimate(
        num_tokens=num_tokens,
        num_shards=max(1, -(-num_tokens // plan.config.tokens_per_shard)),
        shard_bytes=shard_bytes,
        disk_bytes=int(disk),
        free_bytes=shutil.disk_usage(out_dir).free + _used_bytes(work.root),
    )


def require_space(found: Estimate, out_dir: Path) -> None:
    """Refuses work that the disk cannot hold."""
    if found.disk_bytes > found.free_bytes:
        raise DiskFull(
            f"{out_dir}: about {_gigabytes(found.disk_bytes)} are needed while preparing "
            f"({_gigabytes(found.shard_bytes)} for the shards themselves), {_gigabytes(found.free_bytes)} are free; "
            "free some space, choose an --out_dir on another disk, or prepare the inputs in parts with --append"
        )


def _texts(block: Block, *, normalize: bool) -> list[str]:
    if not normalize:
        return block.texts
    return [text for text in block_lines(block, normalize=True).joined() if text]


def _used_bytes(directory: Path) -> int:
    return sum(os.stat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(directory) for name in names)


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
