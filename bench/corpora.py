"""Text to measure on: the standard library's sources, repeated with variation.

Every repetition renames the first word of every line, so that few of its lines equal one of an earlier repetition and
deduplication has to keep them. What repeats inside the library itself is still dropped, as it is in real text.
"""

import json
import platform
import random
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.text.corpus import stdlib_documents

_FIRST_WORD = re.compile(r"(?m)^([^A-Za-z\n]*)([A-Za-z]{2,})")
_RENAMED = "@@renamed@@"
_REPETITION = "@@repetition@@"


@dataclass(frozen=True, slots=True)
class Text:
    """A jsonl file, and what it holds."""

    path: Path
    num_bytes: int
    """Of text in UTF-8, without JSON around it."""
    num_documents: int


@dataclass(frozen=True, slots=True)
class _Template:
    """A line of jsonl with marks where the repetition's number goes."""

    line: bytes
    num_bytes: int
    num_renamed: int


def varied_stdlib(path: Path, num_bytes: int) -> Text:
    """Writes about `num_bytes` of text as jsonl. The same bytes for the same Python and size, hundreds of MB/s."""
    templates = [_template(name, text) for name, text in stdlib_documents() if not name.startswith("pydoc/")]
    written = num_documents = repetition = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb", buffering=8 << 20) as out:
        while written < num_bytes:
            suffix = f"_{repetition}".encode() if repetition else b""
            for one in templates:
                line = one.line.replace(_RENAMED.encode(), suffix)
                out.write(line.replace(_REPETITION.encode(), str(repetition).encode(), 1))
                written += one.num_bytes + one.num_renamed * len(suffix)
                num_documents += 1
                if written >= num_bytes:
                    break
            repetition += 1
    return Text(path, written, num_documents)


def cached_stdlib(path: Path, num_bytes: int) -> Text:
    """`varied_stdlib`, kept from an earlier run if that was complete and by the same Python."""
    wanted = {"asked_bytes": num_bytes, "python": platform.python_version()}
    return _cached(path, wanted, lambda: varied_stdlib(path, num_bytes))


def cached_sample(path: Path, source: Text, num_bytes: int) -> Text:
    """About `num_bytes` of `source`: documents drawn evenly from all of it, in its order. Kept like the source."""
    wanted = {"asked_bytes": num_bytes, "of_bytes": source.num_bytes, "python": platform.python_version()}
    return _cached(path, wanted, lambda: _sample(path, source, num_bytes))


def _sample(path: Path, source: Text, num_bytes: int) -> Text:
    draw = random.Random(0)
    share = num_bytes / source.num_bytes
    written = num_documents = 0
    with open(source.path, "rb") as lines, open(path, "wb") as out:
        for line in lines:
            if draw.random() < share:
                out.write(line)
                written += len(json.loads(line)["text"].encode())
                num_documents += 1
    return Text(path, written, num_documents)


def _cached(path: Path, wanted: dict[str, Any], make: Callable[[], Text]) -> Text:
    mark = path.with_suffix(".made.json")
    if mark.exists() and path.exists():
        found = json.loads(mark.read_text("utf-8"))
        if found["wanted"] == wanted:
            return Text(path, **found["text"])
    mark.unlink(missing_ok=True)
    text = make()
    holds = asdict(text)
    del holds["path"]
    mark.write_text(json.dumps({"wanted": wanted, "text": holds}), "utf-8")
    return text


def _template(name: str, text: str) -> _Template:
    if _RENAMED in text or _REPETITION in name:
        raise ValueError(f"{name} holds {_RENAMED!r}, which is a mark here; choose another")
    marked, num_renamed = _FIRST_WORD.subn(rf"\1\2{_RENAMED}", text)
    line = json.dumps({"id": f"{name}/{_REPETITION}", "text": marked}) + "\n"
    return _Template(line.encode(), len(text.encode()), num_renamed)


if __name__ == "__main__":
    print(varied_stdlib(Path(sys.argv[1]), int(float(sys.argv[2]) * 1e6)).num_bytes)
