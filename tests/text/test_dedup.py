"""Duplicates go, nothing else does, and it does not matter who looked for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import PrepareConfig, ShardSet, prepare, tokenizer_from_state
from penstock.text.dedup import Items, bucket_ranges, earlier_equals, read_drops, read_items, write_drops, write_items
from penstock.text.minhash import band_items, signatures, similarity

HASHES = st.lists(st.integers(0, 40), max_size=300)


def slow_earlier(values: list[int]) -> list[tuple[int, int]]:
    first: dict[int, int] = {}
    return [(i, first[v]) for i, v in enumerate(values) if first.setdefault(v, i) != i]


def items_of(values: list[int], spread: Callable[[int], int]) -> Items:
    low = np.array([spread(v) & 0xFFFFFFFFFFFFFFFF for v in values], np.uint64)
    high = np.array([(v * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF for v in values], np.uint64)
    return Items(low, high, np.arange(len(values), dtype=np.uint32))


@given(HASHES)
@settings(max_examples=300, deadline=None)
def test_every_later_equal_is_found_with_its_first(values: list[int]) -> None:
    later, first = earlier_equals(items_of(values, lambda v: v * 0xD6E8FEB86659FD93))
    assert sorted(zip(later.tolist(), first.tolist(), strict=True)) == slow_earlier(values)


@given(HASHES)
@settings(max_examples=300, deadline=None)
def test_hashes_that_agree_in_half_their_bits_are_still_told_apart(values: list[int]) -> None:
    """No false positive: the low half is the same for all, only the high half differs."""
    later, first = earlier_equals(items_of(values, lambda v: 7))
    assert sorted(zip(later.tolist(), first.tolist(), strict=True)) == slow_earlier(values)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=200), st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_items_come_back_bucket_by_bucket_in_order(
    tmp_path_factory: pytest.TempPathFactory, high: list[int], most: int
) -> None:
    path = tmp_path_factory.mktemp("items") / "items"
    items = Items(np.array(high, np.uint64), np.array(high, np.uint64), np.arange(len(high), dtype=np.uint32))
    write_items(path, items)
    sizes = np.bincount(np.array([h >> 56 for h in high], np.int64), minlength=256)
    seen: list[int] = []
    for buckets in bucket_ranges(sizes, most):
        got = read_items(path, buckets)
        assert all(h >> 56 in buckets for h in got.high.tolist())
        assert got.low.tolist() == got.high.tolist() == [high[n] for n in got.number.tolist()]
        seen += got.number.tolist()
    assert sorted(seen) == list(range(len(high)))
    assert seen == sorted(seen, key=lambda n: high[n] >> 56)


def test_each_unit_finds_its_own_drops(tmp_path: Path) -> None:
    write_drops(tmp_path / "a", np.array([2, 0, 2, 1]), np.array([5, 6, 7, 8], np.uint32), 4)
    write_drops(tmp_path / "b", np.array([2]), np.array([9], np.uint32), 4)
    found = [read_drops([tmp_path / "a", tmp_path / "b"], unit).tolist() for unit in range(4)]
    assert found == [[6], [8], [5, 7, 9], []]


def texts_after(tmp_path: Path, texts: list[str], **settings: Any) -> list[str]:
    """What is left of `texts`, in order, through the front door."""
    source, out = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("\0".join(texts), newline="")
    defaults: dict[str, Any] = {
        "tokenization": "byte",
        "val_fraction": 0,
        "normalize": False,
        "workers": 1,
        "unit_bytes": 64,
    }
    prepare(PrepareConfig(input_files=(str(source),), out_dir=out, document_separator="\0", **(defaults | settings)))
    return dataset_texts(out)


def dataset_texts(directory: Path) -> list[str]:
    dataset = ShardSet(directory)
    tokenizer = tokenizer_from_state(directory / "tokenizer_state.json")
    found = (dataset.locate(number) for number in range(dataset.num_documents))
    return [tokenizer.decode(reader.document(local)[:-1]) for reader, local in found]


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "  ", "dd", " a", "é"]), max_size=8).map("\n".join)


@given(st.lists(LINES, min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_lines_equal_to_an_earlier_line_go_and_blank_lines_stay(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    if not any("".join(texts).split()):
        return
    seen: set[str] = set()
    expected = []
    for text in texts:
        kept = [line for line in text.split("\n") if not line.strip(" \t") or (line not in seen and not seen.add(line))]
        expected.append("\n".join(kept))
    got = texts_after(tmp_path_factory.mktemp("lines"), texts, dedup="lines")
    assert [text for text in got if text.strip()] == [text for text in expected if text.strip()]


@given(st.lists(LINES, min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_documents_equal_to_an_earlier_one_go(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    if not any("".join(texts).split()):
        return
    got = texts_after(tmp_path_factory.mktemp("documents"), texts, dedup="documents")
    expected = list(dict.fromkeys(texts))
    assert [text for text in got if text.strip()] == [text for text in expected if text.strip()]


def sentences(rng: np.random.Generator, count: int) -> list[str]:
    words = [f"word{number}" for number in range(500)]
    return [" ".join(rng.choice(words, 12)) for _ in range(count)]


def test_near_duplicates_go_and_different_documents_stay(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    originals = ["\n".join(sentences(rng, 30)) for _ in range(20)]
    near = [text.replace(text.split()[100], "other", 1) for text in originals[:10]]
    got = texts_after(tmp_path, [*originals, *near], dedup="none", near_dedup=True)
    assert got == originals


def test_a_line_of_a_dropped_near_duplicate_does_not_count_as_seen(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    original = sentences(rng, 40)
    changed = [*original[:-1], "a line that only the near-duplicate has"]
    later = [*sentences(rng, 40), changed[-1]]
    got = texts_after(tmp_path, ["\n".join(lines) for lines in (original, changed, later)], near_dedup=True)
    assert got == ["\n".join(original), "\n".join(later)]


def test_similarity_is_about_the_share_of_text_in_common() -> None:
    rng = np.random.default_rng(2)
    lines = sentences(rng, 200)
    for share in (0.0, 0.3, 0.6, 0.9, 1.0):
        other = [*lines[: int(200 * share)], *sentences(rng, 200 - int(200 * share))]
        found = signatures(["\n".join(lines), "\n".join(other)])
        estimate = float(similarity(found.bins[:1], found.bins[1:])[0])
        jaccard = share / (2 - share)
        assert abs(estimate - jaccard) < 0.15, (share, estimate)


def test_short_documents_are_never_near_duplicates() -> None:
    assert len(band_items(signatures(["a few words only", "a few words only"]))) == 0


def corpus(tmp_path: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    pool = sentences(rng, 300)
    path = tmp_path / "corpus.txt"
    texts = ["\n".join(rng.choice(pool, int(rng.integers(1, 30)))) for _ in range(150)]
    texts += texts[:20] + [text.replace("word1", "other") for text in texts[20:40]]
    path.write_text("\n===\n".join(texts))
    return path


@pytest.mark.parametrize("dedup", ["lines", "documents", "none"])
@pytest.mark.parametrize("near", [False, True])
def test_the_result_is_the_same_for_any_workers_units_and_memory(tmp_path: Path, dedup: str, near: bool) -> None:
    source = corpus(tmp_path, 3)
    shards = []
    for number, (workers, unit_bytes, memory) in enumerate(
        [(1, 1 << 25, "auto"), (3, 5_000, "4GB"), (1, 2_345, "1GB")]
    ):
        out = tmp_path / f"out{number}"
        config = PrepareConfig(
            input_files=(str(source),),
            out_dir=out,
            tokenization="byte",
            document_separator="\n===\n",
            dedup=dedup,  # type: ignore[arg-type]
            near_dedup=near,
            workers=workers,
            unit_bytes=unit_bytes,
            max_memory=memory,
            tokens_per_shard=20_000,
        )
        shards.append([(s.name, s.hash, s.index_hash) for s in prepare(config).manifest.shards])
    assert shards[0] == shards[1] == shards[2]


def test_one_huge_document_over_many_units_is_the_same_as_in_one(tmp_path: Path) -> None:
    """A text file without separators: units meet inside the document, and no id may show it."""
    rng = np.random.default_rng(4)
    text = "\n".join("\n" * int(rng.integers(0, 3)) + line for line in sentences(rng, 400))
    source = tmp_path / "one.txt"
    source.write_text(text + "\n\n" + text[:3000])
    for settings_ in (
        {"dedup": "lines"},
        {"dedup": "documents"},
        {"dedup": "none"},
        {"dedup": "lines", "normalize": False},
    ):
        found = []
        for unit_bytes in (1 << 25, 7_000, 700, 300):
            out = tmp_path / f"{settings_['dedup']}{len(settings_)}-{unit_bytes}"
            config = PrepareConfig(
                input_files=(str(source),), out_dir=out, val_fraction=0, workers=1, unit_bytes=unit_bytes, **settings_
            )
            found.append([shard.hash for shard in prepare(config).manifest.shards])
        assert found[0] == found[1] == found[2] == found[3], settings_


def test_two_huge_equal_documents_are_found_equal(tmp_path: Path) -> None:
    text = "\n".join(sentences(np.random.default_rng(5), 500))
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(text)
    inputs = (str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    config = PrepareConfig(
        input_files=inputs, out_dir=tmp_path / "out", dedup="documents", val_fraction=0, workers=1, unit_bytes=4_000
    )
    manifest = prepare(config).manifest
    assert manifest.num_documents("train") == 1
    assert manifest.stages[2]["dropped"]["duplicate_document"]["documents"] == 1
