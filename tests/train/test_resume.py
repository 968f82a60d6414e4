"""A run that is killed goes on as if nothing had been."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.train import checkpoint, demo
from penstock.train.logs import LOG, read_log
from penstock.train.loop import train
from tests.conftest import CommandLine

from .builders import (
    configured,
    killed_after,
    losses,
    planned,
    raw_records,
    require_planned_rows,
    saved_tensors,
    words,
)

SLOW: dict[str, Any] = {"max_iters": 80, "batch_size": 8, "micro_batch": 1}
"""Steps that take long enough for a kill to come between them."""


def require_same_tensors(first: Path, second: Path, scratch: Path) -> None:
    one, other = saved_tensors(first, scratch / "one.pt"), saved_tensors(second, scratch / "other.pt")
    assert one.keys() == other.keys()
    assert sum("exp_avg" in name for name in one) > 4
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_a_run_killed_twice_ends_bit_for_bit_as_one_that_was_not(here: Path, tmp_path: Path) -> None:
    steps = {**SLOW, "eval_interval": 20, "eval_rows": 8, "rows": "best_fit"}
    drawn = random.Random()
    first = killed_after(here, words(**steps), drawn.randrange(11, 30))
    second = killed_after(here, words(**steps), drawn.randrange(first + 15, first + 30))
    assert 0 < first < second < 80
    assert train(configured(here, **steps)).resumed_from == second
    train(configured(here, **steps, runs_dir="undisturbed"))

    killed, undisturbed = here / "runs" / "run", here / "undisturbed" / "run"
    wanted = losses(undisturbed)
    assert losses(killed) == wanted
    assert len(wanted) == 80 // 5 + 80 // 20
    # Steps that were done twice came out the same twice.
    for record in raw_records(killed):
        name = "loss" if record["kind"] == "train" else "val_loss"
        assert record[name] == wanted[record["kind"], record["step"]]
    require_planned_rows(planned(here, **steps), raw_records(killed), 5)
    require_same_tensors(killed, undisturbed, tmp_path)


def test_one_rank_then_two_then_one_take_exactly_the_rows_of_the_plan(here: Path) -> None:
    steps = {**SLOW, "rows": "best_fit"}
    first = killed_after(here, words(**steps), 15)
    second = killed_after(here, words(**steps, parallel="fsdp"), first + 15, ranks=2)
    assert 0 < first < second < 80
    trained = train(configured(here, **steps))
    assert (trained.resumed_from, trained.step) == (second, 80)

    records = list(raw_records(here / "runs" / "run"))
    assert require_planned_rows(planned(here, **steps), records, 5) == {1, 2}
    assert [record["ranks"] for record in records if record["step"] == 80] == [1]
    train(configured(here, **steps, runs_dir="undisturbed"))
    wanted = losses(here / "undisturbed" / "run")
    assert losses(here / "runs" / "run") == {key: pytest.approx(loss, rel=1e-4) for key, loss in wanted.items()}


def test_a_run_that_is_done_is_not_done_again(here: Path, command_line: CommandLine) -> None:
    assert command_line.run_here("train", *words(max_iters=5)).code == 0
    before = (here / "runs" / "run" / LOG).read_bytes()
    ran = command_line.run_here("train", *words(max_iters=5))
    assert (ran.code, ran.out.strip()) == (0, "runs/run: was done before, at step 5")
    assert (here / "runs" / "run" / LOG).read_bytes() == before


def test_a_longer_run_goes_on_from_a_shorter_one(here: Path) -> None:
    train(configured(here, max_iters=10, schedule="wsd", decay=0.0, warmup=0.0))
    longer = train(configured(here, max_iters=20, schedule="wsd", decay=0.0, warmup=0.0))
    assert (longer.resumed_from, longer.step) == (10, 20)
    records = read_log(here / "runs" / "run" / LOG)
    require_planned_rows(planned(here, max_iters=20), records, 5)


def test_a_run_resumed_between_two_lines_of_the_log_passes_the_check_of_the_demo(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_save = checkpoint.save

    def saved_and_stopped(*args: Any, **kwargs: Any) -> Path:
        found = real_save(*args, **kwargs)
        if kwargs["step"] == 24:
            raise KeyboardInterrupt
        return found

    # What `penstock demo --steps 100` does, and a last line that is of fewer steps.
    steps = {"max_iters": 45, "save_interval": 12, "log_interval": 10}
    monkeypatch.setattr(checkpoint, "save", saved_and_stopped)
    with pytest.raises(KeyboardInterrupt):
        train(configured(here, **steps))
    monkeypatch.setattr(checkpoint, "save", real_save)
    assert train(configured(here, **steps)).resumed_from == 24
    demo._check_rows(planned(here, **steps), read_log(here / "runs" / "run" / LOG))


def test_only_the_newest_checkpoints_are_kept(here: Path) -> None:
    train(configured(here, max_iters=25, save_interval=5, keep=2))
    found = checkpoint.saved_checkpoints(here / "runs" / "run")
    assert [path.name for path in found] == ["step_00000025", "step_00000020"]


def test_what_a_kill_left_half_written_is_not_taken_for_a_checkpoint(here: Path) -> None:
    train(configured(here, max_iters=20))
    newest = checkpoint.saved_checkpoints(here / "runs" / "run")[0]
    newest.rename(newest.with_name(newest.name + ".partial"))
    again = train(configured(here, max_iters=20))
    assert (again.resumed_from, again.step) == (10, 20)
    names = sorted(path.name for path in newest.parent.iterdir())
    assert names == ["step_00000010", "step_00000020"]
