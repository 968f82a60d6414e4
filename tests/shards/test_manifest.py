"""A manifest is data from anywhere: every field is checked, and no name leaves the dataset."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DatasetError, ManifestError
from penstock.shards.manifest import (
    Manifest,
    Shard,
    SideFile,
    TokenizerInfo,
    manifest_text,
    parsed_manifest,
    read_manifest,
    write_manifest,
)

HASH = "ab" * 32


def some_manifest(num_shards: int = 3) -> Manifest:
    return Manifest(
        token_dtype="uint16",
        tokenizer=TokenizerInfo(
            name="byte",
            hash=HASH,
            backend="penstock",
            version="1",
            vocab_size=257,
            lossless=True,
            state=SideFile(file="tokenizer_state.json", hash=HASH, num_bytes=3),
        ),
        eos_id=256,
        eos_token="<|endoftext|>",
        tokens_per_shard=10,
        block_bytes=1 << 20,
        shards=tuple(
            Shard(
                split="train" if number < num_shards - 1 else "val",
                name=f"{'train' if number < num_shards - 1 else 'val'}/shard_{number:05d}.bin",
                num_tokens=10,
                num_documents=2,
                hash=HASH,
                index_hash=HASH,
                index_bytes=144,
                stored_bytes=20,
            )
            for number in range(num_shards)
        ),
        sources=SideFile(file="sources.jsonl", hash=HASH, num_bytes=5),
        num_sources=1,
        stages=({"stage": "read"},),
        config={"seed": 0},
    )


def raw_manifest() -> dict[str, Any]:
    return json.loads(manifest_text(some_manifest()))


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    write_manifest(some_manifest(), tmp_path)
    assert read_manifest(tmp_path) == some_manifest()


def test_the_fingerprint_changes_with_the_tokens_and_not_with_the_counts_of_lines_dropped() -> None:
    manifest = some_manifest()
    assert manifest.fingerprint == some_manifest().fingerprint
    assert some_manifest(2).fingerprint != manifest.fingerprint


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "train/../../etc/passwd",
        "train/shard_00000.bin/../x",
        "train\\shard_00000.bin",
        "val/shard_00000.bin",
        "train/shard_00000.exe",
        "train/shard_0.bin",
        "",
        None,
        7,
        ["train/shard_00000.bin"],
        "train/shard_00000.bin\n",
    ],
)
def test_a_shard_cannot_be_named_anything_but_a_shard_of_its_split(name: object) -> None:
    raw = raw_manifest()
    raw["shards"][0]["name"] = name
    with pytest.raises(ManifestError, match="named"):
        parsed_manifest(json.dumps(raw).encode(), where="m")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ".", "", None, "x\0y", ".hidden"])
def test_a_side_file_stays_in_the_dataset(name: object) -> None:
    for where in ("sources", "tokenizer"):
        raw = raw_manifest()
        (raw["sources"] if where == "sources" else raw["tokenizer"]["state"])["file"] = name
        with pytest.raises(ManifestError):
            parsed_manifest(json.dumps(raw).encode(), where="m")


@pytest.mark.parametrize("value", [-1, 1.5, "10", None, True, 2**63, [1]])
@pytest.mark.parametrize("key", ["num_tokens", "num_documents", "stored_bytes", "index_bytes"])
def test_sizes_that_are_not_sizes_are_refused_by_name(key: str, value: object) -> None:
    raw = raw_manifest()
    raw["shards"][1][key] = value
    with pytest.raises(ManifestError, match=key):
        parsed_manifest(json.dumps(raw).encode(), where="m")


def test_a_size_that_contradicts_the_tokens_is_refused() -> None:
    raw = raw_manifest()
    raw["shards"][0]["stored_bytes"] = 22
    with pytest.raises(ManifestError, match="cannot take 22 bytes"):
        parsed_manifest(json.dumps(raw).encode(), where="m")


def test_an_edited_hash_is_noticed() -> None:
    raw = raw_manifest()
    raw["shards"][0]["hash"] = "cd" * 32
    with pytest.raises(ManifestError, match="fingerprint"):
        parsed_manifest(json.dumps(raw).encode(), where="m")


def test_a_shard_named_twice_is_refused() -> None:
    raw = raw_manifest()
    raw["shards"][1]["name"] = raw["shards"][0]["name"]
    with pytest.raises(ManifestError, match="twice"):
        parsed_manifest(json.dumps(raw).encode(), where="m")


def test_a_newer_format_says_upgrade() -> None:
    raw = raw_manifest() | {"format_version": 2}
    with pytest.raises(ManifestError, match="upgrade"):
        parsed_manifest(json.dumps(raw).encode(), where="m")


def test_no_manifest_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="penstock prepare"):
        read_manifest(tmp_path)
    (tmp_path / ".prepare").mkdir()
    with pytest.raises(DatasetError, match="not finished"):
        read_manifest(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def paths_in(value: object, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at] * bool(at) + [path for key, child in inner for path in paths_in(child, (*at, key))]


@given(st.data())
@settings(max_examples=1500, deadline=None)
def test_any_field_replaced_by_anything_is_refused_or_harmless(data: st.DataObject) -> None:
    raw = raw_manifest()
    *way, last = data.draw(st.sampled_from(paths_in(raw)))
    place = raw
    for key in way:
        place = place[key]
    if data.draw(st.booleans()):
        place[last] = data.draw(JSON)
    else:
        del place[last]
    try:
        got = parsed_manifest(json.dumps(raw).encode(), where="m")
    except ManifestError as error:
        assert str(error).startswith("m")
        return
    assert all(shard.num_tokens >= 0 and ".." not in shard.name for shard in got.shards)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | JSON.map(lambda v: json.dumps(v).encode()))
@settings(max_examples=500, deadline=None)
def test_rubbish_is_refused(raw: bytes) -> None:
    with pytest.raises(ManifestError):
        parsed_manifest(raw, where="m")


def test_deeply_nested_rubbish_is_refused() -> None:
    with pytest.raises(ManifestError):
        parsed_manifest(b"[" * 200_000, where="m")
