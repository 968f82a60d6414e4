"""Inputs of every kind, and datasets read back as text."""

import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
import zstandard

from penstock import Manifest, PrepareConfig, ShardSet, prepare, tokenizer_from_state
from penstock.text.sources import jsonlines, plain, streams, tables, units

COMPRESSED: Final[dict[str, Callable[[bytes], bytes]]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".xz": lzma.compress,
}


def jsonl(texts: list[str], *, column: str = "text") -> bytes:
    return b"".join(json.dumps({"id": i, column: text}).encode() + b"\n" for i, text in enumerate(texts))


def csv_bytes(texts: list[str], *, quoting: int = csv.QUOTE_MINIMAL, lineterminator: str = "\n") -> bytes:
    out = io.StringIO(newline="")
    rows = csv.writer(out, quoting=quoting, lineterminator=lineterminator)
    rows.writerow(["id", "text", "note"])
    rows.writerows([i, text, "x"] for i, text in enumerate(texts))
    return out.getvalue().encode()


def table(texts: list[str]) -> pa.Table:
    return pa.table({"id": range(len(texts)), "text": texts})


def parquet(texts: list[str], *, row_group_size: int = 3) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table(texts), sink, row_group_size=row_group_size)
    return sink.getvalue()


def arrow(texts: list[str], *, stream: bool = False, batch_size: int = 3) -> bytes:
    sink = io.BytesIO()
    found = table(texts)
    opened = pa.ipc.new_stream(sink, found.schema) if stream else pa.ipc.new_file(sink, found.schema)
    with opened as writer:
        writer.write_table(found, max_chunksize=batch_size)
    return sink.getvalue()


def json_array(texts: list[str]) -> bytes:
    return json.dumps([{"text": text} for text in texts], indent=1).encode()


def json_concatenated(texts: list[str]) -> bytes:
    return " ".join(json.dumps({"text": text}, indent=1) for text in texts).encode()


def written(path: Path, data: bytes | str) -> Path:
    """The file `path`, with these bytes in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def prepared(inputs: Path | list[Path], out_dir: Path, *, unit_bytes: int = 1 << 20, **settings: Any) -> Manifest:
    """A dataset made in this process, with text kept to the byte unless the settings say otherwise."""
    plain = {"tokenization": "byte", "normalize": False, "dedup": "none", "val_fraction": 0.0, "workers": 1}
    paths = tuple(str(path) for path in (inputs if isinstance(inputs, list) else [inputs]))
    config = PrepareConfig(input_files=paths, out_dir=out_dir, unit_bytes=unit_bytes, **{**plain, **settings})
    return prepare(config).manifest


def documents_in(directory: Path) -> list[str]:
    """The texts of all documents of a dataset, in order."""
    return [text for _, _, text in rows_in(directory)]


def rows_in(directory: Path) -> list[tuple[str, int, str]]:
    """Source, record and text of all documents of a dataset, in order."""
    dataset = ShardSet(directory)
    tokenizer = tokenizer_from_state(directory / dataset.manifest.tokenizer.state.file)
    sources = [source["path"] for source in dataset.sources()]
    rows = []
    for number in range(dataset.num_documents):
        reader, local = dataset.locate(number)
        tokens = reader.document(local)
        assert tokens[-1] == dataset.manifest.eos_id
        source, record = reader.index.document_source[local], reader.index.document_record[local]
        rows.append((sources[int(source)], int(record), tokenizer.decode(tokens[:-1])))
    return rows


@contextmanager
def smaller(chunk: int, block: int) -> Iterator[None]:
    """While this is open little is read and held at once, so that documents come in pieces.

    A block must hold more than one character, which takes up to four bytes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "CHUNK_BYTES", chunk)
        patch.setattr(units, "_CSV_STEP", chunk)
        for module in (plain, jsonlines, tables):
            patch.setattr(module, "BLOCK_BYTES", block)
        yield
