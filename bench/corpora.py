"""Text to measure on: the standard library's sources, repeated with variation.

Every repetition renames the first word of every line, so that almost no line of it equals an earlier one and
deduplication has to keep it: nothing is measured on text that is thrown away.
"""

import json
import re
import sys
from pathlib import Path

from penstock.text.corpus import stdlib_documents

_FIRST_WORD = re.compile(r"(?m)^([^A-Za-z\n]*)([A-Za-z]{2,})")


def varied_stdlib(path: Path, num_bytes: int) -> int:
    """Writes about `num_bytes` of text as jsonl. Returns how many bytes of text it holds."""
    documents = [(name, text) for name, text in stdlib_documents() if not name.startswith("pydoc/")]
    written = repetition = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        while written < num_bytes:
            for name, text in documents:
                varied = _FIRST_WORD.sub(rf"\1\2_{repetition}", text) if repetition else text
                out.write(json.dumps({"id": f"{name}/{repetition}", "text": varied}) + "\n")
                written += len(varied.encode())
                if written >= num_bytes:
                    break
            repetition += 1
    return written


if __name__ == "__main__":
    print(varied_stdlib(Path(sys.argv[1]), int(float(sys.argv[2]) * 1e6)))
