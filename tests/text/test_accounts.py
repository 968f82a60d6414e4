"""The books balance: at every stage what went in is what came out plus what was dropped."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.text.builders import documents_in, prepared, smaller, written

# Few words, so that lines and documents repeat.
LINE = st.sampled_from(["alpha", "beta  gamma", "", "  ", "délta", "a line that is a little longer than others"])
DOCUMENT = st.lists(LINE, max_size=4).map("\n".join)
BAD_LINES = {
    "not_json": "{",
    "not_an_object": "[1]",
    "missing_column": "{}",
    "not_text": '{"text": 1}',
    "blank_line": "",
}
RECORDS = st.lists(st.one_of(DOCUMENT, st.sampled_from(sorted(BAD_LINES)).map(lambda name: (name,))), min_size=1)
SETTINGS = st.fixed_dictionaries(
    {
        "normalize": st.booleans(),
        "dedup": st.sampled_from(["none", "lines", "documents"]),
        "near_dedup": st.booleans(),
        "val_fraction": st.sampled_from([0.0, 0.5]),
        "unit_bytes": st.integers(8, 400),
        "tokens_per_shard": st.sampled_from([1, 20, 10_000]),
    }
)


def stages_of(data: str, name: str, **settings: Any) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The stages by their names, and the documents that came out."""
    with TemporaryDirectory() as directory:
        path = written(Path(directory) / name, data)
        manifest = prepared(path, Path(directory) / "out", max_bad_fraction=1.0, **settings)
        return {stage["stage"]: stage for stage in manifest.stages}, documents_in(Path(directory) / "out")


def dropped(stage: dict[str, Any], what: str) -> int:
    return sum(entry.get(what, 0) for entry in stage["dropped"].values())


def assert_balanced(stages: dict[str, dict[str, Any]], documents: list[str]) -> None:
    """Every figure that leaves a stage enters the next, and nothing goes without a reason."""
    read, clean, dedup = stages["read"], stages["clean"], stages["dedup"]
    tokenize, split = stages["tokenize"], stages["split"]
    assert read["records_in"] == read["documents_out"] + dropped(read, "records")
    for before, after in ((read, clean), (clean, dedup), (dedup, tokenize)):
        assert after["documents_in"] == before["documents_out"]
        assert after["documents_in"] == after["documents_out"] + dropped(after, "documents")
        assert after["bytes_in"] == before["bytes_out"]
    assert clean["bytes_in"] == clean["bytes_out"] + clean["normalized"]["bytes"]
    assert dedup["bytes_in"] == dedup["bytes_out"] + dropped(dedup, "bytes")
    assert split["documents_in"] == tokenize["documents_out"] == len(documents)
    assert split["documents_in"] == split["train"]["documents_out"] + split["val"]["documents_out"]
    assert split["tokens_in"] == tokenize["tokens_out"]
    assert split["tokens_in"] == split["train"]["tokens_out"] + split["val"]["tokens_out"]
    # One id a byte, and one for the end of each document.
    num_bytes = sum(len(document.encode()) for document in documents)
    assert tokenize["tokens_out"] == num_bytes + len(documents)
    assert tokenize["bytes_in"] == num_bytes


@given(records=RECORDS, settings=SETTINGS)
def test_books_of_json_lines_balance(records, settings):
    lines = [BAD_LINES[r[0]] if isinstance(r, tuple) else json.dumps({"text": r}, ensure_ascii=False) for r in records]
    stages, documents = stages_of("".join(line + "\n" for line in lines), "a.jsonl", **settings)
    good = [record for record in records if isinstance(record, str)]
    bad = [record[0] for record in records if isinstance(record, tuple)]
    assert stages["read"]["records_in"] == len(records)
    assert stages["read"]["dropped"] == {name: {"records": bad.count(name)} for name in sorted(set(bad))}
    assert stages["read"]["bytes_out"] == sum(len(text.encode()) for text in good)
    assert_balanced(stages, documents)


@given(records=RECORDS, settings=SETTINGS)
def test_lines_that_are_dropped_as_duplicates_are_counted(records, settings):
    texts = [record for record in records if isinstance(record, str)] or ["x"]
    settings = {**settings, "dedup": "lines", "near_dedup": False, "normalize": True, "val_fraction": 0.0}
    data = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    stages, documents = stages_of(data, "a.jsonl", **settings)
    lines = [line for text in texts for line in text.replace("beta  ", "beta ").split("\n") if line.strip()]
    kept = [line for document in documents for line in document.split("\n") if line]
    assert kept == list(dict.fromkeys(lines))
    counted = stages["dedup"]["dropped"].get("duplicate_lines", {"lines": 0})["lines"]
    assert counted == len(lines) - len(kept)


@given(text=st.lists(LINE, min_size=1, max_size=40).map("\n".join), settings=SETTINGS, chunk=st.integers(8, 64))
def test_books_of_a_document_over_many_units_balance(text, settings, chunk):
    with smaller(chunk, chunk):
        assert_balanced(*stages_of(text or "x", "a.txt", **settings))


@given(
    texts=st.lists(DOCUMENT, min_size=1, max_size=20),
    settings=SETTINGS,
    chunk=st.integers(8, 64),
    separator=st.sampled_from(["%%", "\n\n"]),
)
def test_books_of_separated_documents_balance(texts, settings, chunk, separator):
    with smaller(chunk, chunk):
        stages = stages_of(separator.join(texts) or "x", "a.txt", document_separator=separator, **settings)
    assert_balanced(*stages)


@given(texts=st.lists(DOCUMENT, min_size=1, max_size=20), settings=SETTINGS)
def test_books_of_many_files_balance(texts, settings):
    with TemporaryDirectory() as directory:
        for number, text in enumerate([*texts, "x"]):
            written(Path(directory) / "texts" / f"{number:03d}.txt", text)
        manifest = prepared(Path(directory) / "texts", Path(directory) / "out", **settings)
        documents = documents_in(Path(directory) / "out")
    stages = {stage["stage"]: stage for stage in manifest.stages}
    assert stages["read"]["stored_bytes_in"] == sum(len(text.encode()) for text in texts) + 1
    assert_balanced(stages, documents)
