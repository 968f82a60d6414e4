"""The packing index is a convenience: kept where it can be, made anew where it cannot, never trusted when damaged."""

import errno
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ChecksumError
from penstock.load import packed
from penstock.load.dataset import Dataset
from penstock.load.packed import KEPT, packing_items, read_items, write_items
from penstock.order.items import Items
from penstock.shards import atomic

from .builders import natural_shards, written

SHARDS = natural_shards(7, num_documents=120, num_shards=2)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset(written(tmp_path / "set", SHARDS))


def kept_items(dataset: Dataset, **changes: Any) -> Items:
    return packing_items(dataset, **{"seq_len": 32, "long_documents": "split", "worth_keeping": 0, **changes})


def fresh_items(dataset: Dataset) -> Items:
    return kept_items(dataset, worth_keeping=1 << 40)


def same(one: Items, other: Items) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in Items.__slots__)


def kept_file(dataset: Dataset) -> Path:
    [path] = (dataset.directory / KEPT).iterdir()
    return path


def test_what_is_kept_comes_back_without_the_indexes(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fresh_items(dataset)
    assert not (dataset.directory / KEPT).exists(), "a small dataset leaves nothing behind"
    assert same(kept_items(dataset), expected)
    assert kept_file(dataset).is_file()
    monkeypatch.setattr(packed, "sorted_items", lambda *_, **__: pytest.fail("made again"))
    assert same(kept_items(dataset), expected)
    assert same(kept_items(Dataset(dataset.directory)), expected)


def test_each_setting_and_each_content_has_an_index_of_its_own(dataset: Dataset, tmp_path: Path) -> None:
    kept_items(dataset)
    for changes in ({"seq_len": 16}, {"long_documents": "truncate"}, {"long_documents": "drop"}):
        assert same(kept_items(dataset, **changes), kept_items(dataset, **changes, worth_keeping=1 << 40))
    written(dataset.directory, natural_shards(8))
    other = Dataset(dataset.directory)
    assert same(kept_items(other), fresh_items(other))
    assert len(list((dataset.directory / KEPT).iterdir())) == 5


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[:-8],
    "cut in the header": lambda data: data[:40],
    "longer": lambda data: data + b"\0" * 8,
    "zeros": lambda data: b"\0" * len(data),
    "another magic": lambda data: b"SOMETHIN" + data[8:],
    "a huge header": lambda data: data[:8] + b"\xff" * 8 + data[16:],
    "a header of 4 exabytes": lambda data: data[:8] + (1 << 62).to_bytes(8, "little") + data[16:],
    "a header that is no JSON": lambda data: data[:16] + b"\xff" * 20 + data[36:],
    "a list for a header": lambda data: data[:8] + (2).to_bytes(8, "little") + b"[]" + data[18:],
    "another version": lambda data: re.sub(rb'"version": \d', b'"version": 9', data),
    "another seq_len": lambda data: data.replace(b'"seq_len": 32', b'"seq_len": 16'),
    "one bit of a start": lambda data: data[:-800] + bytes([data[-800] ^ 1]) + data[-799:],
    "the last number": lambda data: data[:-8] + b"\xff" * 8,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_made_anew_and_not_trusted(dataset: Dataset, damage: str) -> None:
    expected = fresh_items(dataset)
    kept_items(dataset)
    path = kept_file(dataset)
    whole = path.read_bytes()
    damaged = DAMAGES[damage](whole)
    assert damaged != whole
    path.write_bytes(damaged)
    assert same(kept_items(dataset), expected)
    assert path.read_bytes() == whole, "what was damaged stays"


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=150)
def test_rubbish_is_no_index(tmp_path_factory: pytest.TempPathFactory, rubbish: bytes, magic: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "rubbish.bin"
    path.write_bytes(b"PENSTPCK" * magic + rubbish)
    assert read_items(path) is None


def test_an_index_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert read_items(tmp_path / "nothing") is None
    assert read_items(tmp_path) is None


def test_items_survive_being_written(tmp_path: Path, dataset: Dataset) -> None:
    items = fresh_items(dataset)
    assert items.num_full_pieces > 0
    write_items(tmp_path / "items.bin", items)
    back = read_items(tmp_path / "items.bin")
    assert back is not None
    assert same(back, items)


def no_room(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_rights(*_: Any, **__: Any) -> None:
    raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))


@pytest.mark.parametrize("obstacle", ["a file in its place", "read-only", "no room for the directory", "disk full"])
def test_an_index_that_cannot_be_kept_stays_in_memory_and_says_so(
    dataset: Dataset, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fresh_items(dataset)
    if obstacle == "a file in its place":
        (dataset.directory / KEPT).write_text("in the way")
    elif obstacle == "read-only":
        monkeypatch.setattr(packed.Path, "mkdir", no_rights)
    elif obstacle == "no room for the directory":
        monkeypatch.setattr(packed.Path, "mkdir", no_room)
    else:
        monkeypatch.setattr(atomic.os, "fsync", no_room)
    with pytest.warns(RuntimeWarning, match="cannot be kept .* stays in memory"):
        found = kept_items(dataset)
    assert same(found, expected)
    left = list((dataset.directory / KEPT).iterdir()) if (dataset.directory / KEPT).is_dir() else []
    assert left == [], "something half-written is left"


def test_an_index_made_from_damaged_shards_is_not_kept_for_when_they_are_repaired(dataset: Dataset) -> None:
    expected = fresh_items(dataset)
    path = dataset.directory / "train/shard_00000.idx"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[64] += 1 if SHARDS[0][1] > 1 else -1
    path.write_bytes(damaged)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            kept_items(Dataset(dataset.directory))
        except ChecksumError as error:
            assert str(path) in str(error)
    path.write_bytes(whole)
    assert same(kept_items(Dataset(dataset.directory)), expected)
