"""Check every byte of a dataset: manifest, tokenizer, sources, and every index and block of every shard.

Example: penstock verify data/corpus
"""

import json as json_module
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from penstock.cli.terminal import shown_progress
from penstock.shards.manifest import read_manifest
from penstock.shards.verify import verified


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """The words of `penstock verify`."""

    directory: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """The dataset."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Arguments) -> int:
    """Prints what is wrong, if anything is. Exit code 1 if so."""
    with shown_progress() as progress:
        progress.stage("verifying", sum(shard.stored_bytes for shard in read_manifest(arguments.directory).shards))
        result = verified(arguments.directory, on_bytes=progress.advance)
    if arguments.json:
        print(json_module.dumps(asdict(result) | {"ok": result.ok}))
    elif result.ok:
        print(
            f"{arguments.directory}: {result.num_shards:,} shards, {result.num_bytes:,} bytes, all as the manifest says"
        )
    else:
        print("\n".join(f"{arguments.directory}/{finding}" for finding in result.findings))
        print(f"{arguments.directory}: {len(result.findings)} problems; prepare or pull the dataset again")
    return 0 if result.ok else 1
