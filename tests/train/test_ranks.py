"""However a step's rows are dealt, it is the same step."""

from pathlib import Path
from typing import Any

import pytest

from penstock.train.loop import train

from .builders import configured, finished, losses, planned, raw_records, require_planned_rows, words

STEPS: dict[str, Any] = {
    "max_iters": 30,
    "eval_interval": 10,
    "eval_rows": 16,
    "rows": "best_fit",
    "batch_size": 8,
    "lr": 1e-2,
}


@pytest.fixture(scope="module")
def one_process(made_once: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], float]:
    """The losses of a run of one process that takes all rows at once."""
    runs = tmp_path_factory.mktemp("one")
    train(configured(made_once, **STEPS, runs_dir=runs))
    found = losses(runs / "run")
    assert found["train", 30] < found["train", 5] - 0.3, found
    return found


def close(wanted: dict[tuple[str, int], float]) -> dict[tuple[str, int], object]:
    return {key: pytest.approx(loss, rel=1e-5) for key, loss in wanted.items()}


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_learn_what_one_learns(
    parallel: str, here: Path, one_process: dict[tuple[str, int], float]
) -> None:
    finished(here, words(**STEPS, parallel=parallel, micro_batch=2), ranks=2)
    run_dir = here / "runs" / "run"
    assert losses(run_dir) == close(one_process)
    assert require_planned_rows(planned(here, **STEPS), raw_records(run_dir), 5) == {2}


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_accumulating_changes_nothing(micro_batch: int, here: Path, one_process: dict[tuple[str, int], float]) -> None:
    train(configured(here, **STEPS, micro_batch=micro_batch))
    assert losses(here / "runs" / "run") == close(one_process)


def test_a_document_mask_that_is_switched_off_gives_another_loss(
    here: Path, one_process: dict[tuple[str, int], float]
) -> None:
    train(configured(here, **STEPS, document_mask=False))
    assert abs(losses(here / "runs" / "run")["train", 30] - one_process["train", 30]) > 1e-3
