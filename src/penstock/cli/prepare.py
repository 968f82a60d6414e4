"""Text in, verified token shards out. Kill it at any moment and run it again: it goes on where it was.

Example: penstock prepare --input_files wiki.txt books/ 'news/*.jsonl.gz' --out_dir data/corpus --tokenization gpt2
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from penstock.cli.terminal import shown_progress
from penstock.shards.manifest import Manifest
from penstock.text.config import PrepareConfig
from penstock.text.prepare import prepare


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """The words of `penstock prepare`."""

    config: PrepareConfig
    no_dedup: bool = False
    """The same as --dedup none."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Arguments) -> int:
    """Prepares, and prints what came out."""
    config = replace(arguments.config, dedup="none") if arguments.no_dedup else arguments.config
    with shown_progress() as progress:
        done = prepare(config, progress=progress)
    result = summary(done.manifest) | {"out_dir": str(config.out_dir), "already_there": done.already_there}
    print(json.dumps(result) if arguments.json else readable(result))
    return 0


def summary(manifest: Manifest) -> dict[str, Any]:
    """What a program wants to know of a dataset."""
    return {
        "fingerprint": manifest.fingerprint,
        "total_tokens": sum(shard.num_tokens for shard in manifest.shards),
        "total_documents": sum(shard.num_documents for shard in manifest.shards),
        "total_shards": len(manifest.shards),
        "token_dtype": manifest.token_dtype,
        "tokenizer": manifest.tokenizer.name,
        "tokenizer_backend": f"{manifest.tokenizer.backend} {manifest.tokenizer.version}",
        "splits": {
            split: {
                "num_tokens": manifest.num_tokens(split),
                "num_documents": manifest.num_documents(split),
                "num_shards": len(manifest.of(split)),
            }
            for split in manifest.splits
        },
        "stages": list(manifest.stages),
        "warnings": list(manifest.warnings),
    }


def readable(result: dict[str, Any]) -> str:
    """The same for a person."""
    lines = [f"{result['out_dir']}: {'was already finished' if result['already_there'] else 'done'}"]
    lines.append(f"  Total tokens: {result['total_tokens']:,}  ({result['tokenizer']}, {result['token_dtype']})")
    lines.append(f"  Total shards: {result['total_shards']:,}")
    for split, found in result["splits"].items():
        lines.append(
            f"  {split.capitalize()} shards: {found['num_shards']:,}  "
            f"({found['num_tokens']:,} tokens in {found['num_documents']:,} documents)"
        )
    for stage in result["stages"]:
        for reason, entry in stage.get("dropped", {}).items():
            what = ", ".join(f"{number:,} {name}" for name, number in entry.items() if number)
            if what:
                lines.append(f"  Dropped in {stage['stage']}, {reason.replace('_', ' ')}: {what}")
        for reason, number in stage.get("replaced", {}).items():
            if number:
                lines.append(f"  Replaced in {stage['stage']}, {reason.replace('_', ' ')}: {number:,}")
        lines += [f"    {example}" for example in stage.get("bad_examples", [])[:5]]
    return "\n".join(lines)
