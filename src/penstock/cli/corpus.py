"""Write a corpus that every Python has on disk: the language reference and the standard library's sources, as jsonl.

Example: penstock corpus corpus.jsonl --max_bytes 5000000
"""

import json as json_module
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from penstock.text.corpus import write_corpus


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """The words of `penstock corpus`."""

    path: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """The jsonl file to write."""
    max_bytes: int | None = None
    """Stop after this much text."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Arguments) -> int:
    """Writes the file."""
    written = write_corpus(arguments.path, max_bytes=arguments.max_bytes)
    result = {"path": str(arguments.path), "num_documents": written.num_documents, "num_bytes": written.num_bytes}
    if arguments.json:
        print(json_module.dumps(result))
    else:
        print(f"{arguments.path}: {written.num_documents:,} documents, {written.num_bytes / 1e6:,.1f} MB of text")
    return 0
