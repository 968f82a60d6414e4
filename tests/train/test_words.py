"""Words become the same settings with and without tyro."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tyro

from penstock.cli import demo, export, sample, train
from penstock.cli.plain_words import plain_words
from tests.conftest import CommandLine

from .builders import environment, words

NAMED = "--model_name run "
LINES = [
    "--dataset_dir data",
    "--input_file input.txt --tokenization byte",
    "--dataset_dir=data --max_iters=7 --lr=1e-3",
    "--dataset-dir data --max-iters 7 --weight-decay 0.2",
    "--dataset_dir data --compile",
    "--dataset_dir data --document_mask True",
    "--dataset_dir data --document_mask False",
    "--dataset_dir data --document_mask None",
    "--dataset_dir data --seq_len None --micro_batch 4",
    "--dataset_dir data --skip 10-20 40-50 --rows best_fit",
    "--dataset_dir data --skip 10-20",
    "--dataset_dir data --log jsonl tensorboard --schedule wsd",
    "--dataset_dir data --log jsonl --json",
    "--dataset_dir data --config_file a-b/my-shape.json --runs_dir ../my-runs",
    "--dataset_dir data-set --lr 6e-4 --min_lr 0 --grad_clip 0",
]
BAD = [
    "--dataset_dir data --rows packed",
    "--dataset_dir data --no_such_word 1",
    "--dataset_dir data --max_iters many",
    "--dataset_dir data --max_iters",
    "--dataset_dir data --document_mask maybe",
    "--dataset_dir data --log paper",
    "--dataset_dir data --max_it 3",
    "--dataset_dir data stray",
]


def with_tyro(kind: Any, line: list[str]) -> Any:
    how = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    return tyro.cli(kind, args=line, use_underscores=True, config=how)


def without(kind: Any, line: list[str]) -> Any:
    return plain_words(kind, line, prog="penstock train", description="")


@pytest.mark.parametrize("line", LINES)
def test_plain_words_mean_what_they_mean_to_tyro(line: str) -> None:
    found = without(train.Arguments, (NAMED + line).split())
    assert found == with_tyro(train.Arguments, (NAMED + line).split())


@pytest.mark.parametrize(
    ("module", "line"),
    [
        (sample, ["--model_name", "run", "--prompt", "a  b=c --d", "--top_k", "0", "--json"]),
        (sample, ["--model_name", "run", "--prompt", ""]),
        (export, ["--model_name", "run", "--out_dir", "out", "--dtype", "bfloat16"]),
        (demo, ["--steps", "8", "--out_dir", "here"]),
    ],
)
def test_plain_words_mean_the_same_for_other_verbs(module: Any, line: list[str]) -> None:
    assert without(module.Arguments, line) == with_tyro(module.Arguments, line)


@pytest.mark.parametrize("line", BAD)
@pytest.mark.parametrize("parsed", [with_tyro, without])
def test_words_that_are_wrong_are_refused_with_or_without_tyro(line: str, parsed: Any) -> None:
    with pytest.raises(SystemExit) as stopped:
        parsed(train.Arguments, (NAMED + line).split())
    assert stopped.value.code == 2


def test_a_word_that_is_needed_is_missed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        without(train.Arguments, ["--dataset_dir", "data"])
    assert "--model_name" in capsys.readouterr().err


WITHOUT_TYRO = """
import sys
sys.modules["tyro"] = None
sys.modules["rich"] = sys.modules["rich.progress"] = None
from penstock.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_training_works_where_tyro_and_rich_are_not_installed(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TYRO, "train", *words(max_iters=2)],
        cwd=here,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("runs/run: step 2, loss ")


def test_help_names_every_setting_with_or_without_tyro(
    monkeypatch: pytest.MonkeyPatch, command_line: CommandLine
) -> None:
    assert "--save_interval" in command_line.run_here("train", "--help").out
    monkeypatch.setitem(sys.modules, "tyro", None)
    ran = command_line.run_here("train", "--help")
    assert ran.code == 0
    assert "--save_interval" in ran.out
