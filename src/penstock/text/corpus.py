"""Real text that needs no download: the language reference and the standard library of the Python that runs this."""

import json
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from penstock.shards.atomic import replacing


@dataclass(frozen=True, slots=True)
class Corpus:
    """What was written."""

    num_documents: int
    num_bytes: int


def stdlib_documents() -> Iterator[tuple[str, str]]:
    """Names and texts: topics of the language reference, then the sources of the standard library."""
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    for name in sorted(topics):
        yield f"pydoc/{name}", topics[name]
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if "site-packages" in relative.parts:
            continue
        try:
            yield str(relative), path.read_text("utf-8")
        # A few test files are broken on purpose, or may not be readable.
        except (UnicodeDecodeError, OSError):
            continue


def write_corpus(path: Path, *, max_bytes: int | None = None) -> Corpus:
    """Writes the corpus as jsonl with the fields `id` and `text`."""
    num_documents = num_bytes = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as out:
        for name, text in stdlib_documents():
            if max_bytes is not None and num_bytes >= max_bytes:
                break
            out.write(json.dumps({"id": name, "text": text}).encode() + b"\n")
            num_documents += 1
            num_bytes += len(text.encode())
    return Corpus(num_documents, num_bytes)
