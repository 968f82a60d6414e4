"""Checkpoints: whole or not there.

    checkpoints/step_00000500/
      model and optimizer in pieces, as torch.distributed.checkpoint writes them
      state.json        step, rows behind, plan, model, random numbers; sizes of all files. Written last

Written beside and renamed, so that a run that is killed leaves the one before it. One that does not fit its
`state.json` is passed over, and said so.
"""

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed.checkpoint as distributed_checkpoint
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)

from penstock.errors import DatasetError, DiskFull
from penstock.shards.atomic import PARTIAL
from penstock.train.parallel import World
from penstock.types import Progress

dcp: Any = distributed_checkpoint  # which does not declare what it exports
DIRECTORY: Final = "checkpoints"
STATE: Final = "state.json"
_FORMAT: Final = 1


class CheckpointError(DatasetError):
    """A checkpoint is damaged, or not one of this run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """What a checkpoint says of itself."""

    path: Path
    step: int
    loader: dict[str, Any]
    """The loader's state: plan and rows."""
    model: dict[str, Any]
    """The model's configuration."""
    rng: str
    """Of the CPU, as hexadecimal digits."""


def saved_checkpoints(run_dir: Path) -> list[Path]:
    """Complete checkpoints, the newest first."""
    found = (run_dir / DIRECTORY).glob("step_*")
    return sorted((path for path in found if not path.name.endswith(PARTIAL)), reverse=True)


def newest(run_dir: Path, progress: Progress) -> Saved | None:
    """The newest checkpoint that is whole."""
    left = saved_checkpoints(run_dir)
    while left:
        try:
            return read_state(left.pop(0))
        except CheckpointError as error:
            progress.warn(f"{error}; " + ("going back to the one before" if left else "none is whole: starting over"))
    return None


def read_state(path: Path) -> Saved:
    """What the checkpoint at `path` says, after every file in it has been found as long as it was."""
    try:
        raw = json.loads((path / STATE).read_bytes())
        if raw["format"] != _FORMAT:
            raise CheckpointError(
                f"{path}: checkpoint format {raw['format']}, this Penstock reads {_FORMAT}; upgrade it"
            )
        for name, size in raw["files"].items():
            got = (path / name).stat().st_size
            if got != size:
                raise CheckpointError(f"{path}: {name} has {got} bytes, expected {size}: the checkpoint is damaged")
        return Saved(path=path, step=raw["step"], loader=raw["loader"], model=raw["model"], rng=raw["rng"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: not a whole checkpoint ({type(error).__name__}: {error})") from error


def save(
    run_dir: Path,
    *,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: dict[str, Any],
    model_config: dict[str, Any],
    world: World,
    keep: int,
) -> Path:
    """Writes a checkpoint, all ranks together, and then lets old ones go."""
    final = run_dir / DIRECTORY / f"step_{step:08d}"
    partial = final.with_name(final.name + PARTIAL)
    if world.is_first:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    world.wait()
    weights, moments = get_state_dict(model, optimizer)
    try:
        with _known_to_be_alone():
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=partial, no_dist=world.size == 1)
        if world.is_first:
            _complete(partial, final, step, loader, model_config)
    except (OSError, CheckpointException) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise DiskFull(
            f"{final}: cannot be saved ({_cause(error)}); the checkpoint before it is untouched. Free some "
            "space and run the same command again"
        ) from error
    world.wait()
    if world.is_first:
        # One that claims a later step was passed over as damaged: it must not push this one out.
        for old in [path for path in saved_checkpoints(run_dir) if path.name <= final.name][keep:]:
            shutil.rmtree(old, ignore_errors=True)
    return final


def load(saved: Saved, *, model: nn.Module, optimizer: torch.optim.Optimizer, world: World) -> None:
    """Puts the weights, the optimizer's moments and the random numbers back, on any number of ranks."""
    weights, moments = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": weights, "optimizer": moments}
    try:
        with _known_to_be_alone():
            dcp.load(state, checkpoint_id=saved.path, no_dist=world.size == 1)
    except (Exception, CheckpointException) as error:
        raise CheckpointError(f"{saved.path}: does not fit this model or is damaged ({_cause(error)})") from error
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    torch.set_rng_state(torch.tensor(list(bytes.fromhex(saved.rng)), dtype=torch.uint8))


def load_weights(saved: Saved, model: nn.Module) -> None:
    """Puts the weights into a model in this process alone."""
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    state = {"model": weights}
    try:
        with _known_to_be_alone():
            dcp.load(state, checkpoint_id=saved.path, no_dist=True)
    except (Exception, CheckpointException) as error:
        raise CheckpointError(f"{saved.path}: is damaged ({_cause(error)})") from error
    model.load_state_dict(state["model"])


def _cause(error: BaseException) -> str:
    """What went wrong, in words: torch wraps what its ranks raised, and prints their tracebacks."""
    if isinstance(error, CheckpointException):
        error = next((inner for inner, _ in error.failures.values()), error)
    return str(getattr(error, "strerror", None) or error)


@contextmanager
def _known_to_be_alone() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield


def _complete(partial: Path, final: Path, step: int, loader: dict[str, Any], model_config: dict[str, Any]) -> None:
    files = {path.name: path.stat().st_size for path in partial.iterdir()}
    state = {
        "format": _FORMAT,
        "step": step,
        "loader": loader,
        "model": model_config,
        "rng": bytes(torch.get_rng_state().tolist()).hex(),
        "files": files,
    }
    for path in partial.iterdir():
        _sync(path)
    with open(partial / STATE, "wb") as file:
        file.write(json.dumps(state).encode())
        file.flush()
        os.fsync(file.fileno())
    shutil.rmtree(final, ignore_errors=True)
    os.replace(partial, final)
    _sync(final.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
