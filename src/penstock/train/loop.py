"""From a plan to a trained model.

Every step takes the plan's rows for it, on however many ranks, and divides the loss by the labels of all of them. What
a run does follows from its settings and its data; killed anywhere, it goes on as if nothing had been.
"""

import contextlib
import fcntl
import json
import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from penstock.errors import ConfigError, PenstockError
from penstock.load.batch import Batch
from penstock.load.loader import Loader
from penstock.load.plan import Plan
from penstock.model.attention import padded_bounds
from penstock.model.config import GPTConfig, fitted, model_config
from penstock.model.gpt import GPT
from penstock.order.permute import mixed_many
from penstock.train import checkpoint
from penstock.train.config import TrainConfig
from penstock.train.data import RunData, opened_data, train_plan, val_plan
from penstock.train.generate import TOKENIZER
from penstock.train.logs import Logs
from penstock.train.meter import Meter
from penstock.train.parallel import World, gradients_kept_apart, joined_world, spread
from penstock.train.rate import learning_rate
from penstock.types import Progress, Silence


class LossError(PenstockError):
    """The loss is not a number any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """What a run came to."""

    run_dir: Path
    step: int
    loss: float | None
    """Of the last steps; None if nothing was left to do."""
    val_loss: float | None
    tokens_per_s: float | None
    resumed_from: int | None


def train(config: TrainConfig, *, progress: Progress | None = None) -> Trained:
    """Trains, or goes on training, the model that `config` describes."""
    _make_directory(config.run_dir)
    with joined_world(config.device) as world:
        if not world.is_first:
            return _Run(config, world, Silence()).trained()
        with _alone_in(config.run_dir):
            return _Run(config, world, progress or Silence()).trained()


class _Run:
    """One process's part of a run."""

    def __init__(self, config: TrainConfig, world: World, progress: Progress) -> None:
        self.config, self.world, self.progress = config, world, progress
        shape = model_config(str(config.config_file or config.model))
        self.seq_len = config.seq_len or shape.max_seq_len
        data = self._data()
        self.plan: Plan = train_plan(config, data, self.seq_len)
        self.shape: GPTConfig = fitted(shape, vocab_size=self.plan.vocab_size, seq_len=self.seq_len)
        micro = max(1, config.batch_size // world.size) if config.micro_batch is None else config.micro_batch
        self.loader = Loader(
            self.plan,
            rank=world.rank,
            world_size=world.size,
            micro_batch=micro,
            dtype="native" if world.device.type == "cuda" else "int64",
            pin_memory=world.device.type == "cuda",
            prefetch=1 if world.device.type == "cuda" else None,
        )
        self.val = val_plan(config, data, self.seq_len, unit=micro * world.size)
        self.micro = micro
        self.dtype = self._dtype()

    def _data(self) -> RunData:
        if self.world.is_first:
            data = opened_data(self.config, self.progress)
            self.world.wait()
            return data
        # The first rank prepares; the others find it done.
        self.world.wait()
        return opened_data(self.config, Silence())

    def _dtype(self) -> torch.dtype:
        if self.config.dtype == "auto":
            good = self.world.device.type == "cuda" and torch.cuda.is_bf16_supported()
            return torch.bfloat16 if good else torch.float32
        return torch.bfloat16 if self.config.dtype == "bfloat16" else torch.float32

    # Setting up

    def trained(self) -> Trained:
        """The whole run."""
        config, world = self.config, self.world
        torch.manual_seed(config.seed)
        if self.dtype == torch.bfloat16:
            torch.set_float32_matmul_precision("high")
        # Tables on the host are random, so that the weights are the same on every kind of device.
        gpt = GPT(self.shape)
        gpt.initialize(torch.Generator().manual_seed(config.seed))
        gpt.to(world.device)
        if config.compile:
            gpt.compile(dynamic=False)
        self.model: nn.Module = spread(gpt, list(gpt.blocks), world, config.parallel, self.dtype)
        self.optimizer = _optimizer(gpt, config, world.device)
        start, resumed = self._resumed()
        if world.is_first:
            settings = json.dumps(asdict(config), default=str, indent=2)
            (config.run_dir / "config.json").write_text(settings, "utf-8")
            dataset = self.plan.datasets[0]
            shutil.copyfile(dataset.directory / dataset.manifest.tokenizer.state.file, config.run_dir / TOKENIZER)
        logs = Logs(config) if world.is_first else None
        try:
            with _out_of_memory_explained(self):
                return self._loop(start, resumed, logs)
        finally:
            if logs is not None:
                logs.close()

    def _resumed(self) -> tuple[int, int | None]:
        """The step to go on from."""
        config = self.config
        saved = self.world.agreed(checkpoint.newest(config.run_dir, self.progress) if self.world.is_first else None)
        if saved is None:
            return 0, None
        if config.resume == "never":
            raise ConfigError(
                f"{config.run_dir}: has a checkpoint at step {saved.step:,}; use another --model_name, or --resume auto"
            )
        if saved.model != self.shape.as_dict():
            differing = [name for name, value in self.shape.as_dict().items() if saved.model.get(name) != value]
            said = ", ".join(
                f"{name} was {saved.model.get(name)}, is {getattr(self.shape, name)}" for name in differing
            )
            raise ConfigError(f"{saved.path}: the checkpoint is that of another model: {said}")
        self.loader.load_state_dict(saved.loader)
        checkpoint.load(saved, model=self.model, optimizer=self.optimizer, world=self.world)
        self.progress.note(f"going on from step {saved.step:,}, row {saved.loader['rows']:,}")
        return int(saved.step), int(saved.step)

    # Running

    def _loop(self, start: int, resumed: int | None, logs: Logs | None) -> Trained:
        config, world = self.config, self.world
        meter = Meter(self.shape, self.seq_len, world.device, world.size)
        batches = iter(self.loader)
        self.progress.stage("training", self.plan.num_steps, "steps")
        self.progress.advance(start)
        step, saved_at, loss, val_loss, rate = start, start, None, None, None
        since: list[tuple[Tensor, Tensor]] = []
        check, logged = 0, start
        previous: Tensor | None = None
        try:
            while step < self.plan.num_steps:
                began = time.perf_counter()
                some = self._step_batches(batches)
                stalled = time.perf_counter() - began
                total, num_labels, seen = self._step(step, some)
                check += seen
                if previous is not None or world.device.type == "cpu":
                    # On an accelerator, one step late: looking at once would make it wait.
                    self._require_finite(step if world.device.type == "cpu" else step - 1, previous, total)
                previous = total
                since.append((total, num_labels))
                step += 1
                meter.add(config.batch_size * self.seq_len, stalled)
                self.progress.advance(1)
                if step % config.log_interval == 0 or step == self.plan.num_steps:
                    loss = self._mean_loss(since)
                    since.clear()
                    measured = meter.read()
                    rate = measured["tokens_per_s"]
                    record = {"kind": "train", "step": step, "loss": loss, "lr": self._rate(step - 1), **measured}
                    record |= {"since": logged, "rows": some[-1].cursor, "row_check": check, "ranks": world.size}
                    check, logged = 0, step
                    self._log(logs, record)
                if self.val is not None and (step % config.eval_interval == 0 or step == self.plan.num_steps):
                    val_loss = self.evaluated()
                    self._log(logs, {"kind": "val", "step": step, "val_loss": val_loss})
                    meter.pause()
                if config.save_interval and step % config.save_interval == 0:
                    self._require_finite(step - 1, previous, previous)
                    self._save(step)
                    saved_at = step
                    meter.pause()
            self._require_finite(step - 1, previous, previous)
            if saved_at != step:
                self._save(step)
        finally:
            batches.close()  # type: ignore[attr-defined]
        return Trained(
            run_dir=config.run_dir, step=step, loss=loss, val_loss=val_loss, tokens_per_s=rate, resumed_from=resumed
        )

    def _step_batches(self, batches: Iterator[Batch]) -> list[Batch]:
        """The micro-batches of one step."""
        return [next(batches) for _ in range(self.config.batch_size // (self.world.size * self.micro))]

    def _step(self, step: int, batches: list[Batch]) -> tuple[Tensor, Tensor, int]:
        """One step of the optimizer. Returns this rank's summed loss, the labels of all, and which rows were seen."""
        config, device = self.config, self.world.device
        counted = [float(sum(batch.num_labels for batch in batches)), sum(row_check(batch.rows) for batch in batches)]
        num_labels, seen = self.world.total(torch.tensor(counted, dtype=torch.float64))
        # Gradients are averaged over ranks: times their number, the sum over all labels is divided once.
        scale = self.world.size / max(1.0, float(num_labels))
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate(step)
        total = torch.zeros((), device=device)
        for number, batch in enumerate(batches):
            with gradients_kept_apart(self.model, last=number == len(batches) - 1):
                loss = self._loss(self.model, batch)
                (loss * scale).backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.grad_clip or math.inf)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        # A gradient that is not finite spoils the weights, whatever the loss was.
        total = torch.where(norm.isfinite(), total, torch.nan)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total, num_labels, int(seen)

    def _loss(self, model: nn.Module, batch: Batch) -> Tensor:
        device = self.world.device
        moved = batch.to(device) if device.type != "cpu" else batch
        positions, bounds = None, None
        if self.config.masks_documents:
            positions, bounds = moved.position_ids, padded_bounds(moved.cu_seqlens)
        with torch.autocast(device.type, self.dtype, enabled=self.dtype != torch.float32):
            found: Tensor = model(moved.input_ids, moved.labels, positions, bounds)
        return found

    def _rate(self, step: int) -> float:
        return learning_rate(self.config, (step + 1) / self.plan.num_steps)

    def _mean_loss(self, since: list[tuple[Tensor, Tensor]]) -> float:
        total = self.world.total(torch.stack([one for one, _ in since]).sum().double().cpu())
        return float(total) / max(1.0, sum(float(labels) for _, labels in since))

    @torch.no_grad()
    def evaluated(self) -> float:
        """The loss per label on the rows of val that are always the same."""
        assert self.val is not None
        loader = Loader(self.val, rank=self.world.rank, world_size=self.world.size, micro_batch=self.micro)
        self.model.eval()
        total = torch.zeros(2, dtype=torch.float64)
        for batch in loader:
            total += torch.tensor([float(self._loss(self.model, batch)), float(batch.num_labels)], dtype=torch.float64)
        self.model.train()
        total = self.world.total(total)
        return float(total[0] / total[1].clamp(min=1))

    def _require_finite(self, step: int, previous: Tensor | None, now: Tensor | None) -> None:
        looked_at = now if self.world.device.type == "cpu" else previous
        if looked_at is None or bool(torch.isfinite(looked_at)):
            return
        explanation = self.plan.explain(step)
        said = str(explanation).splitlines()
        more = [f"… and {len(said) - 40} more lines"] if len(said) > 40 else []
        rows = [row.row for row in explanation.rows]
        first, stop = min(rows), max(rows) + 1
        raise LossError(
            f"the loss of step {step:,} is not finite. It was made of:\n"
            + "\n".join(said[:40] + more)
            + f"\nTo leave these rows out: --skip {first}-{stop}; or lower --lr"
        )

    def _log(self, logs: Logs | None, record: dict[str, Any]) -> None:
        if logs is None:
            return
        logs.write({**record, "time": time.time()})
        if record["kind"] == "train":
            mfu = f" · {record['mfu']:.0%} MFU" if "mfu" in record else ""
            self.progress.note(
                f"step {record['step']:,} · loss {record['loss']:.4f} · lr {record['lr']:.2e} · "
                f"{record['tokens_per_s']:,.0f} tokens/s{mfu} · {record['data_stall']:.2%} waiting for data"
            )
        else:
            self.progress.note(f"step {record['step']:,} · val loss {record['val_loss']:.4f}")

    def _save(self, step: int) -> None:
        checkpoint.save(
            self.config.run_dir,
            step=step,
            model=self.model,
            optimizer=self.optimizer,
            loader=self.loader.state_dict(),
            model_config=self.shape.as_dict(),
            world=self.world,
            keep=self.config.keep,
        )


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be made ({error.strerror}); use another --model_name or --runs_dir"
        ) from error


def row_check(rows: NDArray[np.int64]) -> int:
    """A number that tells which rows were seen, whoever saw them: equal sets of rows, equal sums over ranks."""
    return int((mixed_many(0, rows[rows >= 0]) >> np.uint64(24)).sum())


def _optimizer(model: nn.Module, config: TrainConfig, device: torch.device) -> torch.optim.Optimizer:
    """AdamW; only matrices decay."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=config.lr, betas=(config.beta1, config.beta2), fused=device.type in ("cuda", "cpu")
    )


@contextlib.contextmanager
def _alone_in(run_dir: Path) -> Iterator[None]:
    """No other run writes here meanwhile: ranks that outlived their launcher, say."""
    with open(run_dir / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"{run_dir}: another `penstock train` is at work here; wait for it, or end it") from error
        yield


@contextlib.contextmanager
def _out_of_memory_explained(run: _Run) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        if run.micro > 1:
            said = (
                f"{run.micro} rows of {run.seq_len} tokens at a time: use --micro_batch {run.micro // 2}, which changes"
            )
            said += " nothing else"
        else:
            said = f"one row of {run.seq_len} tokens at a time: use --seq_len {max(1, run.seq_len // 2)}"
        raise ConfigError(f"out of memory on {run.world.device} with {said}") from error
