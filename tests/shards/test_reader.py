"""Shards read back, verified, and opened by the thousand."""

import dataclasses
import itertools
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zstandard
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ChecksumError, DatasetError
from penstock.shards.layout import index_name
from penstock.shards.manifest import Shard, write_manifest
from penstock.shards.reader import ShardReader, ShardSet
from penstock.shards.verify import verified
from penstock.shards.writer import write_shard

from .test_manifest import some_manifest

DTYPE = np.dtype("<u2")


def written(
    directory: Path, documents: list[list[int]], *, compressed: bool, cuts: list[int], block_bytes: int
) -> Shard:
    tokens = np.array([token for document in documents for token in document], DTYPE)
    name = "train/shard_00000.bin" + (".zst" if compressed else "")
    (directory / "train").mkdir(exist_ok=True)
    bounds = sorted({0, len(tokens), *(cut % (len(tokens) + 1) for cut in cuts)})
    return write_shard(
        (tokens[a:b] for a, b in itertools.pairwise(bounds)),
        split="train",
        name=name,
        dtype=DTYPE,
        document_ends=np.cumsum([len(document) for document in documents]).astype(np.uint64),
        document_source=np.zeros(len(documents), np.uint32),
        document_record=np.arange(1, len(documents) + 1, dtype=np.uint64),
        first_document=0,
        tokens_path=directory / name,
        index_path=directory / index_name(name),
        block_bytes=block_bytes,
    )


DOCUMENTS = st.lists(st.lists(st.integers(0, 256), min_size=1, max_size=60), min_size=1, max_size=20)


@given(DOCUMENTS, st.booleans(), st.lists(st.integers(0, 10_000), max_size=6))
@settings(max_examples=150, deadline=None)
def test_documents_come_back_however_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], compressed: bool, cuts: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("shard")
    shard = written(directory, documents, compressed=compressed, cuts=cuts, block_bytes=64)
    whole = written(directory, documents, compressed=compressed, cuts=[], block_bytes=64)
    assert shard == whole, "the bytes depend on how the tokens came"
    reader = ShardReader(directory, shard, DTYPE)
    assert [reader.document(number).tolist() for number in range(len(documents))] == documents
    flat = [token for document in documents for token in document]
    assert reader.tokens(1, len(flat)).tolist() == flat[1:]


def test_a_plain_shard_is_tokens_and_nothing_else_and_b3sum_agrees(tmp_path: Path) -> None:
    shard = written(tmp_path, [[1, 2, 256], [3, 256]], compressed=False, cuts=[], block_bytes=1 << 20)
    data = (tmp_path / shard.name).read_bytes()
    assert np.memmap(tmp_path / shard.name, np.uint16, "r").tolist() == [1, 2, 256, 3, 256]
    assert blake3(data).hexdigest() == shard.hash


def test_a_compressed_shard_is_what_zstd_makes_of_the_plain_one(tmp_path: Path) -> None:
    documents = [[number % 250 for number in range(5000)]]
    shard = written(tmp_path, documents, compressed=True, cuts=[], block_bytes=4096)
    data = (tmp_path / shard.name).read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        assert np.frombuffer(reader.read(), DTYPE).tolist() == documents[0]
    assert shard.stored_bytes < 5000


def test_a_frame_that_claims_to_be_huge_is_not_inflated(tmp_path: Path) -> None:
    shard = written(tmp_path, [[7] * 1000], compressed=True, cuts=[], block_bytes=4096)
    bomb = zstandard.ZstdCompressor().compress(b"\0" * (64 << 20))[: shard.stored_bytes]
    path = tmp_path / shard.name
    path.write_bytes(bomb.ljust(shard.stored_bytes, b"\0"))
    with pytest.raises(ChecksumError, match="block 0"):
        ShardReader(tmp_path, shard, DTYPE).tokens(0, 10)


def dataset(directory: Path, *, compressed: bool) -> Shard:
    shard = written(directory, [[1] * 100, [2] * 100], compressed=compressed, cuts=[], block_bytes=64)
    (directory / "sources.jsonl").write_bytes(b'{"path": "x"}\n')
    (directory / "tokenizer_state.json").write_bytes(b"{}\n")
    base = some_manifest()
    side = {
        name: dataclasses.replace(
            base.sources, file=name, hash=blake3((directory / name).read_bytes()).hexdigest(), num_bytes=3
        )
        for name in ("sources.jsonl", "tokenizer_state.json")
    }
    tokenizer = dataclasses.replace(base.tokenizer, state=side["tokenizer_state.json"])
    manifest = dataclasses.replace(base, shards=(shard,), sources=side["sources.jsonl"], tokenizer=tokenizer)
    write_manifest(manifest, directory)
    return shard


@pytest.mark.parametrize("compressed", [False, True])
def test_verify_names_the_first_bad_block(tmp_path: Path, compressed: bool) -> None:
    shard = dataset(tmp_path, compressed=compressed)
    assert verified(tmp_path).ok
    path = tmp_path / shard.name
    data = bytearray(path.read_bytes())
    at = len(data) * 3 // 5
    data[at] ^= 1
    path.write_bytes(data)
    [finding] = verified(tmp_path).findings
    assert finding.file == shard.name
    ends = ShardReader(tmp_path, shard, DTYPE).index.frame_ends
    assert finding.block == (at // 64 if ends is None else int(np.searchsorted(ends, at, side="right")))


@pytest.mark.parametrize("name", ["train/shard_00000.idx", "sources.jsonl", "tokenizer_state.json"])
def test_verify_notices_one_byte_in_any_file(tmp_path: Path, name: str) -> None:
    dataset(tmp_path, compressed=False)
    data = bytearray((tmp_path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    findings = verified(tmp_path).findings
    assert [finding.file for finding in findings] == [name]


@pytest.mark.parametrize("change", ["shrink", "grow", "delete"])
def test_a_shard_of_another_size_is_refused_on_opening(tmp_path: Path, change: str) -> None:
    shard = dataset(tmp_path, compressed=False)
    path = tmp_path / shard.name
    if change == "delete":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-2] if change == "shrink" else path.read_bytes() + b"\0\0")
    with pytest.raises(DatasetError, match="prepare or pull"):
        ShardSet(tmp_path).locate(0)
    assert not verified(tmp_path).ok


def test_ten_thousand_shards_open_in_a_second_and_200_megabytes(tmp_path: Path) -> None:
    write_manifest(some_manifest(10_000), tmp_path)
    start = time.perf_counter()
    assert ShardSet(tmp_path).num_documents == 20_000
    assert time.perf_counter() - start < 1
    code = (
        "import sys, time; start = time.perf_counter()\n"
        "from penstock import ShardSet\n"
        "ShardSet(sys.argv[1])\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(time.perf_counter() - start, status['VmHWM'].split()[0])"
    )
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    seconds, kilobytes = map(float, out.stdout.split())
    assert seconds < 2, "with the imports"
    assert kilobytes < 200_000
