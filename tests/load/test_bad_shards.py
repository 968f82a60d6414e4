"""Files that are not what the manifest says are refused before a token of them is used."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import ChecksumError, DatasetError, ManifestError
from penstock.load.dataset import Dataset
from penstock.load.loader import Loader
from penstock.load.plan import Plan, RowKind
from penstock.shards.layout import MANIFEST

from .builders import natural_shards, undisturbed, written

TOKENS = "train/shard_00001.bin"
INDEX = "train/shard_00001.idx"
HEADER_BYTES = 64


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three shards of several blocks each."""
    return written(tmp_path / "set", natural_shards(0, num_documents=300, median=20), block_bytes=256)


def loaded(directory: Path, **settings: Any) -> dict[int, bytes]:
    verify = settings.pop("verify", "edges")
    plan = Plan(Dataset(directory, verify=verify), **{"seq_len": 16, "batch_size": 8, **settings})
    return undisturbed(plan)


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
@pytest.mark.parametrize("name", [TOKENS, INDEX])
@pytest.mark.parametrize("change", ["shrink", "grow", "empty", "delete"])
def test_a_file_of_another_size_is_refused_by_name(directory: Path, kind: RowKind, name: str, change: str) -> None:
    path = directory / name
    data = path.read_bytes()
    if change == "delete":
        path.unlink()
    else:
        path.write_bytes({"shrink": data[:-2], "grow": data + b"\0\0", "empty": b""}[change])
    with pytest.raises(DatasetError, match=f"{path}.*prepare or pull"):
        loaded(directory, rows=kind)
    with pytest.raises(DatasetError, match=f"{path}.*prepare or pull"):
        loaded(directory, rows=kind, verify="sizes")


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("at", [0, -1])
def test_a_first_or_last_block_that_changed_is_refused(directory: Path, at: int, prefetch: int) -> None:
    flipped(directory / TOKENS, at)
    with pytest.raises(ChecksumError, match=f"{directory / TOKENS}: block"):
        list(Loader(Plan(Dataset(directory), seq_len=16, batch_size=8), micro_batch=8, prefetch=prefetch))


def test_a_block_in_the_middle_is_looked_at_when_all_are(directory: Path) -> None:
    flipped(directory / TOKENS, 700)
    with pytest.raises(ChecksumError, match="block 2"):
        loaded(directory, verify="all")


@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
@pytest.mark.parametrize("at", [HEADER_BYTES, -1], ids=["a document's end", "a document's source"])
def test_an_index_that_changed_is_refused(directory: Path, kind: RowKind, at: int) -> None:
    flipped(directory / INDEX, at)
    with pytest.raises(ChecksumError, match=f"{directory / INDEX}: hashes to"):
        loaded(directory, rows=kind)


def test_an_index_full_of_something_else_is_refused(directory: Path) -> None:
    path = directory / INDEX
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises((ManifestError, ChecksumError), match=str(path)):
        loaded(directory, rows="best_fit")


def test_a_manifest_that_was_edited_is_refused(directory: Path) -> None:
    path = directory / MANIFEST
    text = path.read_text()
    path.write_text(text.replace('"eos_id": 0', '"eos_id": 1'))
    with pytest.raises(ManifestError, match="edited or damaged"):
        Dataset(directory)


def test_a_compressed_shard_that_changed_is_refused(tmp_path: Path) -> None:
    directory = written(tmp_path, natural_shards(0), compressed=True)
    expected = loaded(directory)
    assert expected
    flipped(directory / "train/shard_00000.bin.zst", 40)
    with pytest.raises(ChecksumError, match=r"shard_00000\.bin\.zst: block 0"):
        loaded(directory)


def test_shards_that_nobody_reads_may_be_missing(directory: Path) -> None:
    """A plan that stops early never opens the shards behind it."""
    plan = Plan(Dataset(directory), seq_len=16, batch_size=8, shuffle=False, max_steps=1)
    shutil.rmtree(directory / "train", ignore_errors=False)
    written(directory, natural_shards(0, num_documents=300, median=20), block_bytes=256)
    for number in (1, 2):
        (directory / f"train/shard_0000{number}.bin").unlink()
    assert len(undisturbed(plan)) == 8


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("max_open", [1, 2, None])
def test_few_open_shards_are_as_good_as_many(tmp_path: Path, max_open: int | None, compressed: bool) -> None:
    directory = written(tmp_path, natural_shards(0, num_documents=100, num_shards=10), compressed=compressed)
    for kind in ("chunk", "best_fit"):
        rows: RowKind = "chunk" if kind == "chunk" else "best_fit"
        expected = undisturbed(Plan(Dataset(directory), seq_len=16, batch_size=8, rows=rows))
        dataset = Dataset(directory, max_open=max_open)
        plan = Plan(dataset, seq_len=16, batch_size=8, rows=rows)
        assert undisturbed(plan) == expected
        for batch in Loader(plan, micro_batch=8, prefetch=1, format="numpy"):
            # Asking for documents opens shards too, while a thread reads on.
            assert (np.diff(batch.cu_seqlens) > 0).all()
            assert (batch.doc_ids < dataset.num_documents).all()
        assert max_open is None or len(dataset.stored) <= max_open + 1
