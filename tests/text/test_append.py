"""Adding to a dataset: what is there stays, what is new comes in, and what is old is not taken twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import PrepareConfig, ShardSet, prepare, verified
from penstock.errors import ConfigError, DatasetError, TokenizerError

from .builders import documents_in, jsonl, rows_in
from .test_tokenizers import metaspace_tokenizer


def source(path: Path, texts: list[str]) -> str:
    path.write_bytes(jsonl(texts))
    return str(path)


def made(out: Path, inputs: str, **settings: Any) -> Any:
    defaults: dict[str, Any] = {"tokenization": "gpt2", "workers": 1, "tokens_per_shard": 300, "unit_bytes": 500}
    return prepare(PrepareConfig(input_files=(inputs,), out_dir=out, **(defaults | settings)))


def texts(start: int, stop: int) -> list[str]:
    return [f"line {number} of the text\nand a second line {number}" for number in range(start, stop)]


@pytest.mark.parametrize("dedup", ["lines", "documents"])
def test_only_what_is_new_is_added_and_old_shards_keep_their_bytes(tmp_path: Path, dedup: str) -> None:
    out = tmp_path / "out"
    before = made(out, source(tmp_path / "a.jsonl", texts(0, 60)), dedup=dedup).manifest
    after = made(out, source(tmp_path / "b.jsonl", texts(40, 100)), dedup=dedup, append=True).manifest
    assert after.shards[: len(before.shards)] == before.shards
    assert sorted(documents_in(out)) == sorted(texts(0, 100))
    assert verified(out).ok
    numbers = [shard.name.split("_")[1] for shard in after.shards]
    assert numbers == sorted(set(numbers)), "shards are numbered on"
    assert {(Path(path).name, text) for path, _, text in rows_in(out)} == {
        *(("a.jsonl", text) for text in texts(0, 60)),
        *(("b.jsonl", text) for text in texts(60, 100)),
    }
    assert {text: record for _, record, text in rows_in(out)}[texts(70, 71)[0]] == 31
    assert not (out / ".prepare").exists()


def test_no_document_changes_sides_when_data_is_added(tmp_path: Path) -> None:
    def side(out: Path) -> dict[str, str]:
        dataset = ShardSet(out)
        found = (dataset.locate(number) for number in range(dataset.num_documents))
        return dict(zip(documents_in(out), (reader.shard.split for reader, _ in found), strict=True))

    first, more = source(tmp_path / "a.jsonl", texts(0, 200)), source(tmp_path / "b.jsonl", texts(200, 400))
    made(tmp_path / "one", first)
    prepare(PrepareConfig(input_files=(more, first), out_dir=tmp_path / "both", workers=1))
    small, large = side(tmp_path / "one"), side(tmp_path / "both")
    assert {text: large[text] for text in small} == small
    assert set(small.values()) == {"train", "val"}
    made(tmp_path / "one", more, append=True)
    assert side(tmp_path / "one") == large


def test_appending_the_same_file_again_changes_nothing(tmp_path: Path) -> None:
    out, inputs = tmp_path / "out", source(tmp_path / "a.jsonl", texts(0, 20))
    before = made(out, inputs, dedup="none").manifest
    done = made(out, inputs, dedup="none", append=True)
    assert done.already_there and done.manifest == before


def test_the_dataset_stays_valid_until_the_new_data_counts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made(out, source(tmp_path / "a.jsonl", texts(0, 20)))
    before = documents_in(out)
    (tmp_path / "bad.jsonl").write_text("not json\n" * 50)
    with pytest.raises(Exception, match="cannot be used"):
        made(out, str(tmp_path / "bad.jsonl"), append=True)
    assert verified(out).ok and documents_in(out) == before


def test_settings_that_would_mix_splits_or_ids_are_refused(tmp_path: Path) -> None:
    out, more = tmp_path / "out", source(tmp_path / "b.jsonl", texts(20, 40))
    made(out, source(tmp_path / "a.jsonl", texts(0, 20)))
    for other in (
        {"seed": 1},
        {"val_fraction": 0.2},
        {"dedup": "none"},
        {"normalize": False},
        {"tokenization": "byte"},
    ):
        with pytest.raises(ConfigError, match=next(iter(other))):
            made(out, more, append=True, **other)
    made(out, more, append=True, tokenization="auto")


def test_there_must_be_something_to_append_to(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="nothing to --append to"):
        made(tmp_path / "out", source(tmp_path / "a.jsonl", texts(0, 2)), append=True)
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_that_loses_text_cannot_be_compared_with(tmp_path: Path) -> None:
    tokenizer = str(metaspace_tokenizer(tmp_path / "tokenizer.json"))
    out = tmp_path / "out"
    made(out, source(tmp_path / "a.jsonl", texts(0, 20)), tokenization=tokenizer)
    with pytest.raises(TokenizerError, match="does not give back"):
        made(out, source(tmp_path / "b.jsonl", texts(20, 30)), append=True, tokenization="auto")


def test_char_vocabulary_stays_and_new_characters_are_counted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made(out, source(tmp_path / "a.jsonl", texts(0, 20)), tokenization="char")
    manifest = made(out, source(tmp_path / "b.jsonl", ["日本"]), append=True, tokenization="auto").manifest
    assert manifest.stages[-2]["replaced"]["unknown_characters"] == 2
    assert json.loads((out / "tokenizer_state.json").read_bytes())["characters"]
