"""The packing index of a dataset: made once, kept beside the dataset, mapped from then on.

Where it cannot be kept, because the disk is full or read-only, the run goes on with it in memory and says so.
"""

import json
import warnings
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import DiskFull
from penstock.load.dataset import Dataset
from penstock.order.items import Items, LongDocuments, sorted_items
from penstock.shards.atomic import replacing

KEPT: Final = ".penstock"
"""Where a dataset's directory holds what can be made again."""
_MAGIC: Final = b"PENSTPCK"
_VERSION: Final = 2
_START: Final = 24
"""Magic word, size of the header, checksum of everything after it."""
_ALIGN: Final = 64
_ARRAYS: Final = ("histogram", "starts", "long_starts", "long_ends")
_COUNTS: Final = ("seq_len", "num_documents", "num_long", "num_lost_tokens")
WORTH_KEEPING: Final = 1 << 20
"""Documents from which on reading the index back is faster than making it."""


def packing_items(
    dataset: Dataset, *, seq_len: int, long_documents: LongDocuments, worth_keeping: int = WORTH_KEEPING
) -> Items:
    """The items of `dataset` for rows of `seq_len`."""
    if dataset.num_documents < worth_keeping:
        return sorted_items(dataset.document_ends, seq_len=seq_len, long_documents=long_documents)
    name = f"items-{dataset.split}-{dataset.manifest.fingerprint[:24]}-{seq_len}-{long_documents}.bin"
    path = dataset.directory / KEPT / name
    if (kept := read_items(path)) is not None:
        return kept
    items = sorted_items(dataset.document_ends, seq_len=seq_len, long_documents=long_documents)
    try:
        path.parent.mkdir(exist_ok=True)
        write_items(path, items)
    except (OSError, DiskFull) as error:
        reason = getattr(error, "strerror", None) or error.__cause__ or error
        warnings.warn(
            f"{path}: the packing index cannot be kept ({reason}); it stays in memory and is made anew each time",
            RuntimeWarning,
            stacklevel=2,
        )
    return items


def write_items(path: Path, items: Items) -> None:
    """The file: a magic word, the size of a JSON header, the header, then the arrays, each aligned."""
    header: dict[str, Any] = {name: getattr(items, name) for name in _COUNTS}
    header |= {"version": _VERSION, "sizes": {name: len(getattr(items, name)) for name in _ARRAYS}}
    text = json.dumps(header).encode()
    check, at = zlib.crc32(text), _START + len(text)
    parts: list[Any] = [text]
    for name in _ARRAYS:
        array = np.ascontiguousarray(getattr(items, name), "<i8").view(np.uint8).data
        for part in (b"\0" * (-at % _ALIGN), array):
            check, at = zlib.crc32(part, check), at + len(part)
            parts.append(part)
    with replacing(path) as file:
        file.write(_MAGIC + len(text).to_bytes(8, "little") + check.to_bytes(8, "little"))
        for part in parts:
            file.write(part)


def read_items(path: Path) -> Items | None:
    """The items in the file `path`, mapped; None if it is not there or not whole."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            if file.read(8) != _MAGIC:
                return None
            header_bytes, check = (int.from_bytes(file.read(8), "little") for _ in range(2))
            if header_bytes > size - _START or _checksum(path) != check:
                return None
            header = json.loads(file.read(header_bytes))
            at = file.tell()
        if header["version"] != _VERSION:
            return None
        found: dict[str, Any] = {name: int(header[name]) for name in _COUNTS}
        for name in _ARRAYS:
            at += -at % _ALIGN
            count = int(header["sizes"][name])
            if count < 0 or at + 8 * count > size:
                return None
            found[name] = _mapped(path, at, count)
            at += 8 * count
        return Items(**found) if at == size else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _checksum(path: Path) -> int:
    data = np.memmap(path, np.uint8, mode="r")[_START:]
    check = 0
    for at in range(0, len(data), 1 << 24):
        check = zlib.crc32(data[at : at + (1 << 24)].data, check)
    return check


def _mapped(path: Path, offset: int, count: int) -> NDArray[np.int64]:
    if count == 0:
        return np.empty(0, np.int64)
    # Seen as a plain array: slices of np.memmap cost twice as much.
    return np.asarray(np.memmap(path, "<i8", mode="r", offset=offset, shape=(count,)))
