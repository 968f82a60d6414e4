"""What training says of what it cannot do."""

import errno
import fcntl
import itertools
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.errors import ConfigError, DiskFull, PenstockError
from penstock.train import checkpoint, loop
from penstock.train.loop import LossError, train
from penstock.types import Silence
from tests.conftest import CommandLine

from .builders import SHAPE, configured, documents, losses, prepared, words


class Heard(Silence):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def truncate_largest(path: Path) -> str:
    """Takes the last byte of the largest file in a checkpoint. Its name."""
    largest = max(path.iterdir(), key=lambda file: file.stat().st_size)
    os.truncate(largest, largest.stat().st_size - 1)
    return largest.name


_real_save = checkpoint.save


def saved_and_stopped(*args: Any, **kwargs: Any) -> Path:
    """Saves, and then somebody presses ^C."""
    _real_save(*args, **kwargs)
    raise KeyboardInterrupt


# Words


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dataset_dir": None}, "give exactly one of --input_file FILE (a text) and --dataset_dir DIR"),
        ({"dataset_dir": None}, "got neither"),
        ({"input_file": "text.jsonl"}, "got both"),
        ({"model_name": "a/b"}, "--model_name 'a/b': expected a plain name"),
        ({"model_name": ".."}, "--model_name '..': expected a plain name"),
        ({"max_iters": 0}, "--max_iters must be positive, got 0"),
        ({"batch_size": 0}, "--batch_size must be positive, got 0"),
        ({"save_interval": -1}, "--save_interval must not be negative, got -1"),
        ({"warmup": 1.5}, "--warmup is a share, from 0 to 1, got 1.5"),
        ({"lr": 0}, "--lr must be positive, got 0.0"),
        ({"lr": "nan"}, "--lr must be positive, got nan"),
        ({"seq_len": 0}, "--seq_len must be positive, got 0"),
        ({"skip": "12"}, "12"),
        ({"micro_batch": 3}, "3"),
        ({"micro_batch": -1}, "micro_batch must be positive, got -1"),
        ({"micro_batch": 0}, "micro_batch must be positive, got 0"),
        ({"device": "toaster"}, "--device toaster: not a device"),
        ({"config_file": "nothing.json"}, "'nothing.json': neither one of tiny"),
        ({"config_file": None, "model": "huge"}, "'huge': neither one of tiny"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    settings: dict[str, object], said: str, command_line: CommandLine
) -> None:
    assert said in command_line.refusal(*words(**settings), code=2, verb="train")


@pytest.mark.parametrize("wrong", [("--rows", "packed"), ("--no_such_word", "1"), ("--max_iters", "many")])
def test_wrong_words_exit_with_2_and_name_the_word(wrong: tuple[str, str], command_line: CommandLine) -> None:
    ran = command_line.run_here("train", *words(), *wrong)
    assert ran.code == 2
    assert wrong[0].lstrip("-") in (ran.err + ran.out).replace("-", "_")


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps"])
def test_an_accelerator_that_is_not_there_is_refused_by_name(device: str, command_line: CommandLine) -> None:
    said = command_line.refusal(*words(device=device), code=2, verb="train")
    assert f"--device {device}: this machine has cpu; use --device auto" in said


def test_a_dataset_that_is_not_there_is_named(command_line: CommandLine) -> None:
    assert "nowhere" in command_line.refusal(*words(dataset_dir="nowhere"), code=1, verb="train")


def test_a_text_file_that_is_not_there_is_named(command_line: CommandLine) -> None:
    said = command_line.refusal(
        *words(dataset_dir=None, input_file="no.txt", tokenization="byte"), code=1, verb="train"
    )
    assert "no.txt: cannot be read (No such file or directory)" in said


def test_a_text_that_is_too_short_is_refused(here: Path, command_line: CommandLine) -> None:
    (here / "short.txt").write_text("a")
    said = command_line.refusal(
        *words(dataset_dir=None, input_file="short.txt", tokenization="byte"), code=1, verb="train"
    )
    assert "short.txt: too short to train on and to measure with" in said


def test_a_learned_tokenizer_for_a_text_file_is_refused(here: Path, command_line: CommandLine) -> None:
    (here / "input.txt").write_text("\n".join(documents(40)))
    said = command_line.refusal(*words(dataset_dir=None, input_file="input.txt", tokenization="char"), code=2,
                                verb="train")  # fmt: skip
    assert "give --dataset_dir" in said


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused(here: Path, command_line: CommandLine) -> None:
    (here / "shape.json").write_text(json.dumps({**SHAPE, "vocab_size": 200}))
    said = command_line.refusal(*words(), code=2, verb="train")
    assert "the model has 200 ids, the tokenizer 257; set vocab_size to at least 384" in said


# Another text under the same name


def test_another_text_under_the_same_name_is_not_taken_for_the_first(here: Path) -> None:
    text = {"dataset_dir": None, "input_file": "input.txt", "tokenization": "byte", "max_iters": 2}
    (here / "input.txt").write_text("\n".join(documents(40)))
    train(configured(here, **text))
    (here / "input.txt").write_text("\n".join(documents(60, seed=1)))
    with pytest.raises(PenstockError):
        train(configured(here, **{**text, "max_iters": 4}))


# Checkpoints


def test_a_checkpoint_of_another_plan_is_refused_with_the_difference(here: Path) -> None:
    train(configured(here, max_iters=10))
    with pytest.raises(ConfigError, match=r"another plan: .*batch_size"):
        train(configured(here, batch_size=8))
    with pytest.raises(ConfigError, match=r"another plan: .*seed"):
        train(configured(here, seed=1))
    prepared(here / "other", num_documents=60, seed=7)
    with pytest.raises(ConfigError, match=r"another plan: .*data"):
        train(configured(here, dataset_dir="other/dataset"))


def test_a_checkpoint_of_another_model_is_refused_with_the_difference(here: Path) -> None:
    train(configured(here, max_iters=10))
    (here / "shape.json").write_text(json.dumps({**SHAPE, "dim": 64, "qk_norm": True}))
    with pytest.raises(ConfigError, match="another model: dim was 32, is 64, qk_norm was False, is True"):
        train(configured(here))


def test_resume_never_refuses_to_start_where_a_checkpoint_is(here: Path) -> None:
    train(configured(here, max_iters=10, resume="never"))
    with pytest.raises(ConfigError, match="has a checkpoint at step 10; use another --model_name, or --resume auto"):
        train(configured(here, max_iters=10, resume="never"))


@pytest.mark.parametrize("damage", ["truncated", "state_cut", "file_gone", "state_gone"])
def test_a_damaged_checkpoint_is_passed_over_and_said_so(damage: str, here: Path) -> None:
    run_dir = here / "runs" / "run"
    train(configured(here))
    before = losses(run_dir)
    newest = checkpoint.saved_checkpoints(run_dir)[0]
    if damage == "truncated":
        truncate_largest(newest)
    elif damage == "state_cut":
        os.truncate(newest / checkpoint.STATE, 40)
    else:
        (newest / (checkpoint.STATE if damage == "state_gone" else ".metadata")).unlink()
    heard = Heard()
    again = train(configured(here), progress=heard)
    assert (again.resumed_from, again.step) == (10, 20)
    assert len(heard.warnings) == 1
    assert newest.name in heard.warnings[0]
    assert "going back to the one before" in heard.warnings[0]
    assert losses(run_dir) == before


def test_where_all_checkpoints_are_damaged_that_is_said_and_new_ones_are_kept(here: Path) -> None:
    run_dir = here / "runs" / "run"
    train(configured(here))
    before = losses(run_dir)
    for path in checkpoint.saved_checkpoints(run_dir):
        truncate_largest(path)
    heard = Heard()
    again = train(configured(here, save_interval=4), progress=heard)
    assert (again.resumed_from, again.step) == (None, 20)
    assert losses(run_dir) == before
    assert len(heard.warnings) >= 2


def test_a_checkpoint_saved_after_going_back_outlives_the_damaged_newer_ones(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = here / "runs" / "run"
    train(configured(here))
    for path in checkpoint.saved_checkpoints(run_dir):
        truncate_largest(path)
    monkeypatch.setattr(checkpoint, "save", saved_and_stopped)
    with pytest.raises(KeyboardInterrupt):
        train(configured(here, save_interval=5))
    found = checkpoint.newest(run_dir, Silence())
    assert found is not None
    assert found.step == 5


def test_bits_that_turned_in_a_checkpoint_are_an_error_with_a_name_not_a_crash(here: Path) -> None:
    run_dir = here / "runs" / "run"
    train(configured(here, keep=1))
    newest = checkpoint.saved_checkpoints(run_dir)[0]
    size = (newest / ".metadata").stat().st_size
    (newest / ".metadata").write_bytes(b"\0" * size)
    with pytest.raises(checkpoint.CheckpointError, match="step_00000020"):
        train(configured(here, max_iters=30))


@pytest.mark.parametrize("where", ["dcp.save", "state.json", "os.fsync"])
def test_a_full_disk_while_saving_keeps_the_checkpoint_before(
    where: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = here / "runs" / "run"
    train(configured(here, max_iters=20, save_interval=10))
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse(*_: Any, **__: Any) -> None:
        raise full

    with monkeypatch.context() as patch:
        if where == "dcp.save":
            patch.setattr(checkpoint.dcp, "save", refuse)
        elif where == "state.json":
            patch.setattr(checkpoint, "_complete", refuse)
        else:
            # What a disk that fills up while torch writes looks like: torch wraps it.
            patch.setattr(os, "fsync", refuse)
        with pytest.raises(DiskFull, match=r"step_00000030: cannot be saved .*No space left.*before it is untouched"):
            train(configured(here, max_iters=40))
    names = sorted(path.name for path in (run_dir / checkpoint.DIRECTORY).iterdir())
    assert names == ["step_00000010", "step_00000020"]
    again = train(configured(here, max_iters=40))
    assert (again.resumed_from, again.step) == (20, 40)


# The loss


def test_a_loss_that_is_not_finite_stops_the_run_and_names_documents(here: Path, command_line: CommandLine) -> None:
    ran = command_line.run_here("train", *words(lr=1e30, warmup=0.0, grad_clip=0, max_iters=20, save_interval=0))
    assert ran.code == 1
    assert "is not finite. It was made of:" in ran.err
    assert "text.jsonl:" in ran.err
    assert "document" in ran.err
    assert "--skip " in ran.err
    assert not checkpoint.saved_checkpoints(here / "runs" / "run")


def test_a_step_that_is_not_finite_is_never_saved(here: Path) -> None:
    with pytest.raises(LossError) as raised:
        train(configured(here, lr=1e30, warmup=0.0, grad_clip=0.0, save_interval=1, keep=100))
    for path in checkpoint.saved_checkpoints(here / "runs" / "run"):
        assert checkpoint.read_state(path).step <= int(str(raised.value).split("step ")[1].split(" ")[0])


def test_a_gradient_that_is_not_finite_is_found_in_its_step_and_not_saved(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_loss, calls = loop._Run._loss, itertools.count()

    def loss_with_a_bad_slope(run: Any, model: Any, batch: Any) -> torch.Tensor:
        loss = real_loss(run, model, batch)
        # The root of nothing is nothing; its slope is not a number.
        return loss + (loss * 0).abs().sqrt() if next(calls) == 7 else loss

    monkeypatch.setattr(loop._Run, "_loss", loss_with_a_bad_slope)
    with pytest.raises(LossError, match="step 7 "):
        train(configured(here, save_interval=1))
    saved = checkpoint.newest(here / "runs" / "run", Silence())
    assert saved is not None
    assert saved.step == 7


@pytest.mark.parametrize("skipped", [(), ("0-4",), ("2-3", "5-9")])
def test_the_rows_to_leave_out_are_those_that_the_bad_step_had(skipped: tuple[str, ...], here: Path) -> None:
    with pytest.raises(LossError) as raised:
        train(configured(here, lr=1e30, warmup=0.0, grad_clip=0.0, save_interval=0, skip=skipped))
    shown = sorted(int(number) for number in re.findall(r"^row (\d+) ·", str(raised.value), re.MULTILINE))
    found = re.search(r"--skip (\d+)-(\d+)", str(raised.value))
    assert found is not None
    assert (int(found[1]), int(found[2])) == (shown[0], shown[-1] + 1)


@pytest.mark.parametrize("max_iters", [20, 40])
def test_rows_that_are_ahead_can_be_left_out_of_a_run_that_has_begun(
    max_iters: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoint, "save", saved_and_stopped)
        train(configured(here))
    trained = train(configured(here, max_iters=max_iters, skip=("88-92",) if max_iters == 40 else ("48-52",)))
    assert (trained.resumed_from, trained.step) == (10, max_iters)


# Directories


def test_a_run_directory_that_is_a_file_is_an_error_with_its_name(here: Path, command_line: CommandLine) -> None:
    shutil.rmtree(here / "runs", ignore_errors=True)
    (here / "runs").mkdir()
    (here / "runs" / "run").write_text("mine")
    ran = command_line.run_here("train", *words(max_iters=1))
    assert ran.code in (1, 2)
    assert "runs/run" in ran.err


def test_a_run_that_is_at_work_is_left_alone(here: Path) -> None:
    run_dir = here / "runs" / "busy"
    run_dir.mkdir(parents=True)
    with open(run_dir / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another `penstock train` is at work"):
            train(configured(here, model_name="busy"))
