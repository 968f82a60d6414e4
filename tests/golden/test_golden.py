"""Bytes on disk do not change by accident.

When they are meant to: bump the format version, say so in CHANGELOG.md, and write them anew with
`python -m tests.golden.test_golden`.
"""

import json
import os
from pathlib import Path

import pytest

from penstock import PrepareConfig, prepare

HERE = Path(__file__).parent
TEXTS = [
    "The pipe that carries water, under pressure, to a turbine.\n\nIt is called a penstock.",
    "The pipe that carries water, under pressure, to a turbine.\nA second document repeats a line.",
    "e\u0301 becomes é;   blanks   become   one,\r\nand newlines too.\t\n\n\n\nEnd.",
    "",
    "<|endoftext|> in the text is text",
    *(f"Document {number}, so that some of them fall into val." for number in range(20)),
]
CASES = {
    "byte": {"tokenization": "byte", "tokens_per_shard": 400},
    "byte_zstd": {"tokenization": "byte", "compress": True, "dedup": "documents", "seed": 7},
    "gpt2": {"tokenization": "gpt2", "token_dtype": "uint32", "val_fraction": 0.3},
}
# The state of GPT-2's tokenizer is two megabytes of somebody else's vocabulary: its hash is in the manifest.
LEFT_OUT = {"gpt2": {"tokenizer_state.json"}}


def made(case: str, directory: Path) -> dict[str, bytes]:
    """The files of a golden dataset, made in `directory`."""
    before = Path.cwd()
    os.chdir(directory)
    try:
        lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in TEXTS)
        Path("in.jsonl").write_text(lines, "utf-8", newline="")
        prepare(PrepareConfig(input_files=("in.jsonl",), out_dir=Path("out"), workers=1, **CASES[case]))  # type: ignore[arg-type]
        files = sorted(path for path in Path("out").rglob("*") if path.is_file())
        found = {str(path.relative_to("out")): path.read_bytes() for path in files}
    finally:
        os.chdir(before)
    return {name: data for name, data in found.items() if name not in LEFT_OUT.get(case, set())}


@pytest.mark.parametrize("case", CASES)
def test_a_small_dataset_has_these_very_bytes(case: str, tmp_path: Path) -> None:
    golden = HERE / case
    expected = {str(path.relative_to(golden)): path.read_bytes() for path in golden.rglob("*") if path.is_file()}
    found = made(case, tmp_path)
    assert sorted(found) == sorted(expected)
    for name, data in found.items():
        if name == "dataset_metadata.json":
            # Which release of a library did the work is told, but does not change the bytes that matter.
            assert _without_version(data) == _without_version(expected[name])
        else:
            assert data == expected[name], name


def _without_version(manifest: bytes) -> dict[str, object]:
    raw = json.loads(manifest)
    raw["tokenizer"].pop("version")
    return raw


if __name__ == "__main__":
    import shutil
    import tempfile

    for case in CASES:
        shutil.rmtree(HERE / case, ignore_errors=True)
        with tempfile.TemporaryDirectory() as scratch:
            for name, data in made(case, Path(scratch)).items():
                (HERE / case / name).parent.mkdir(parents=True, exist_ok=True)
                (HERE / case / name).write_bytes(data)
