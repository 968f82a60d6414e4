"""Tiny runs: real commands on a dataset of bytes, what they logged, and what they saved."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from penstock import Dataset, Plan, PrepareConfig, prepare
from penstock.train import checkpoint
from penstock.train.config import TrainConfig
from penstock.train.data import RunData, train_plan
from penstock.train.logs import LOG, read_log
from penstock.train.loop import row_check
from penstock.types import Silence

torch.set_num_threads(1)

SEQ_LEN: Final = 32
SHAPE: Final = {"vocab_size": 384, "max_seq_len": SEQ_LEN, "num_layers": 2, "num_heads": 2, "dim": 32}
SETTINGS: Final[dict[str, object]] = {
    "model_name": "run",
    "dataset_dir": "dataset",
    "config_file": "shape.json",
    "batch_size": 4,
    "max_iters": 20,
    "lr": 3e-3,
    "eval_interval": 0,
    "save_interval": 10,
    "log_interval": 5,
    "device": "cpu",
}
_NAMES = ["ada", "bob", "cleo", "dora", "emil", "finn", "gail", "hugo"]
_DEEDS = ["sees", "hears", "finds", "loses", "draws", "reads", "hides", "sells"]


def documents(num: int, seed: int = 0) -> list[str]:
    """Texts of different lengths that have something to learn in them."""
    random = np.random.default_rng(seed)
    sentences = [f"{a} {b} {c}." for a in _NAMES for b in _DEEDS for c in _NAMES]
    return [" ".join(random.choice(sentences, size=random.integers(1, 9))) + f" {n}" for n in range(num)]


def prepared(directory: Path, *, num_documents: int = 150, val_fraction: float = 0.2, seed: int = 0) -> Path:
    """A directory with the dataset, and the model's sizes, that SETTINGS name."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"text": text}) for text in documents(num_documents, seed))
    (directory / "text.jsonl").write_text("\n".join(lines))
    prepare(
        PrepareConfig(
            input_files=(str(directory / "text.jsonl"),),
            out_dir=directory / "dataset",
            tokenization="byte",
            val_fraction=val_fraction,
            dedup="none",
            workers=1,
        )
    )
    (directory / "shape.json").write_text(json.dumps(SHAPE))
    return directory


def words(**settings: object) -> list[str]:
    """SETTINGS, with changes, as the words of a command; None takes one out, True and False are flags."""
    found: list[str] = []
    for name, value in {**SETTINGS, **settings}.items():
        if value is True:
            found.append(f"--{name}")
        elif value is not None and value is not False:
            found += [f"--{name}", str(value)]
    return found


def configured(directory: Path, **settings: Any) -> TrainConfig:
    """The same as a configuration, with paths in `directory`."""
    values: dict[str, Any] = {"runs_dir": "runs", **SETTINGS, **settings}
    paths = {name: directory / values[name] for name in ("dataset_dir", "config_file", "runs_dir", "input_file")
             if values.get(name) is not None}  # fmt: skip
    return TrainConfig(**{**{name: value for name, value in values.items() if value is not None}, **paths})


def planned(directory: Path, **settings: Any) -> Plan:
    """The plan that such a run follows."""
    data = RunData(Dataset(directory / "dataset"), None)
    return train_plan(configured(directory, **settings), data, SEQ_LEN)


# Processes


def started(directory: Path, arguments: list[str], *, ranks: int = 1) -> "subprocess.Popen[bytes]":
    """`penstock train` as a process of its own, in a session of its own."""
    launch = [sys.executable, "-m"]
    if ranks > 1:
        launch += ["torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks), "-m"]
    return subprocess.Popen(
        [*launch, "penstock", "train", *arguments],
        cwd=directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "COLUMNS": "200"}


def finished(directory: Path, arguments: list[str], *, ranks: int = 1) -> None:
    """Runs it to its end, which must be a good one."""
    process = started(directory, arguments, ranks=ranks)
    try:
        _, err = process.communicate(timeout=120)
    finally:
        _end(process)
    assert process.returncode == 0, err.decode()


def killed_after(directory: Path, arguments: list[str], step: int, *, ranks: int = 1) -> int:
    """Runs it and kills every process outright once its log has `step` and a checkpoint is there.

    The step that the newest checkpoint is of.
    """
    run_dir = directory / "runs" / "run"
    process = started(directory, arguments, ranks=ranks)
    try:
        while last_logged(run_dir) < step or not checkpoint.saved_checkpoints(run_dir):
            code = process.poll()
            assert code is None, (code, process.communicate()[1].decode())
            time.sleep(0.002)
        assert process.poll() is None
    finally:
        _end(process)
    assert process.returncode == -signal.SIGKILL
    saved = checkpoint.newest(run_dir, Silence())
    assert saved is not None
    return saved.step


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kills it and, as torchrun puts each of its workers into a session of its own, all of its children."""
    children = _children(process.pid)
    for pid in [process.pid, *children] if process.poll() is None else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
    while any(_is_alive(pid) for pid in children):
        time.sleep(0.002)


def _children(pid: int) -> list[int]:
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [one for child in map(int, found) for one in (child, *_children(child))]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def last_logged(run_dir: Path) -> int:
    """The last step in the log, in the order in which lines came."""
    steps = [record["step"] for record in raw_records(run_dir)]
    return steps[-1] if steps else -1


# What a run left


def raw_records(run_dir: Path) -> Iterable[dict[str, Any]]:
    """Every whole line of the log, steps that were done twice included."""
    path = run_dir / LOG
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def losses(run_dir: Path) -> dict[tuple[str, int], float]:
    """Every loss in the log by its kind and step."""
    return {
        (record["kind"], record["step"]): record["loss" if record["kind"] == "train" else "val_loss"]
        for record in read_log(run_dir / LOG)
    }


def saved_tensors(run_dir: Path, scratch: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the newest checkpoint by its name: weights and moments."""
    saved = checkpoint.newest(run_dir, Silence())
    assert saved is not None
    dcp_to_torch_save(saved.path, scratch)
    return dict(_flat("", torch.load(scratch, weights_only=False)))


def _flat(prefix: str, value: Any) -> Iterable[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield prefix, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{prefix}/{name}", inner)


def require_planned_rows(plan: Plan, records: Iterable[dict[str, Any]], log_interval: int) -> set[int]:
    """Fails unless each stretch of the log saw exactly the rows of the plan. The numbers of ranks that were seen."""
    ranks: set[int] = set()
    for record in records:
        if record["kind"] == "train":
            first = (record["step"] - log_interval) * plan.batch_size
            places = np.arange(first, record["step"] * plan.batch_size)
            assert record["row_check"] == row_check(plan.schedule.numbered(places)), record
            assert record["rows"] == record["step"] * plan.batch_size
            ranks.add(record["ranks"])
    return ranks
