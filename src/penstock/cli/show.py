"""Print a summary of a dataset and a few of its documents, or any one document with its source.

Example: penstock show data/corpus --doc 1234
"""

import json as json_module
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from penstock.cli.prepare import readable, summary
from penstock.shards.reader import ShardSet
from penstock.text.tokenizers import Tokenizer, tokenizer_from_state

_EXCERPT = 240


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """The words of `penstock show`."""

    directory: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """The dataset."""
    doc: int | None = None
    """Print this document, numbered from 0 through all shards, whole."""
    documents: int = 3
    """How many documents to print the beginning of."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Arguments) -> int:
    """Prints what was asked for."""
    dataset = ShardSet(arguments.directory)
    tokenizer = tokenizer_from_state(arguments.directory / dataset.manifest.tokenizer.state.file)
    if arguments.doc is not None:
        document = found_document(dataset, tokenizer, arguments.doc)
        print(json_module.dumps(document) if arguments.json else _whole(document))
        return 0
    # Spread over the dataset: the first documents tend to come from one file.
    count = min(arguments.documents, dataset.num_documents)
    numbers = [number * dataset.num_documents // count for number in range(count)]
    found = [found_document(dataset, tokenizer, number) for number in numbers]
    result = summary(dataset.manifest) | {"out_dir": str(arguments.directory), "already_there": True}
    if arguments.json:
        print(json_module.dumps(result | {"documents": found}))
        return 0
    head, _, rest = readable(result).partition("\n")
    print(f"{arguments.directory}: {dataset.manifest.fingerprint[:16]}\n{rest}" if head else rest)
    for document in found:
        excerpt = document["text"][:_EXCERPT] + ("…" if len(document["text"]) > _EXCERPT else "")
        print(f"\n{_heading(document)}\n{excerpt}")
    return 0


def found_document(dataset: ShardSet, tokenizer: Tokenizer, number: int) -> dict[str, Any]:
    """One document: its text, and where it came from."""
    reader, local = dataset.locate(number)
    source = dataset.sources()[int(reader.index.document_source[local])]
    tokens = reader.document(local)
    return {
        "document": number,
        "split": reader.shard.split,
        "shard": reader.shard.name,
        "num_tokens": len(tokens),
        "source": source["path"],
        "record": int(reader.index.document_record[local]),
        "text": tokenizer.decode(tokens[:-1]),
    }


def _whole(document: dict[str, Any]) -> str:
    return f"{_heading(document)}\n{document['text']}"


def _heading(document: dict[str, Any]) -> str:
    return (
        f"── document {document['document']:,} · {document['split']} · {document['num_tokens']:,} tokens · "
        f"{document['source']}:{document['record']}"
    )
