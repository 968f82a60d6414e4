"""A dataset that was made to mislead is refused at the door, by every verb that opens one."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main

from ..text.builders import prepared, written


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    prepared(written(tmp_path / "in.txt", "some text"), tmp_path / "out")
    return tmp_path / "out"


def edit(dataset: Path, key: str, value: object) -> None:
    path = dataset / "dataset_metadata.json"
    raw: dict[str, Any] = json.loads(path.read_bytes())
    raw["shards"][0][key] = value
    path.write_text(json.dumps(raw))


@pytest.mark.parametrize("verb", ["verify", "show"])
@pytest.mark.parametrize(
    ("key", "value"), [("name", "../../etc/passwd"), ("name", "/etc/passwd"), ("stored_bytes", -5), ("num_tokens", -1)]
)
def test_names_that_leave_the_dataset_and_negative_sizes_are_refused(
    dataset: Path, capsys: pytest.CaptureFixture[str], verb: str, key: str, value: object
) -> None:
    assert main([verb, str(dataset)]) == 0
    capsys.readouterr()
    edit(dataset, key, value)
    assert main([verb, str(dataset)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and str(value) in err


def test_appending_to_such_a_dataset_is_refused_too(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = written(dataset.parent / "more.txt", "more text")
    edit(dataset, "name", "../../etc/passwd")
    words = ["prepare", "--input_files", str(more), "--out_dir", str(dataset), "--append"]
    assert main(words) == 1
    assert "../../etc/passwd" in capsys.readouterr().err
