"""One process or many: who we are, and how a model is spread.

Nothing here knows what is trained.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.errors import ConfigError


@dataclass(frozen=True, slots=True)
class World:
    """This process among the others."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def total(self, value: Tensor) -> Tensor:
        """The sum over all ranks. Every rank must ask."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def wait(self) -> None:
        """Until every rank is here."""
        if self.size > 1:
            dist.barrier()

    def agreed(self, value: Any) -> Any:
        """The first rank's `value`, on every rank."""
        if self.size == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0)
        return held[0]


@contextmanager
def joined_world(device: str) -> Iterator[World]:
    """The world that torchrun made, or this process alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    found = chosen_device(device, local_rank=int(os.environ.get("LOCAL_RANK", "0")))
    if found.type == "cuda":
        torch.cuda.set_device(found)
    # torchrun with one process also makes a world; so do not ask for the size.
    if "RANK" not in os.environ:
        yield World(0, 1, found)
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if found.type == "cuda" else "gloo")
    try:
        yield World(rank, size, found)
    finally:
        dist.destroy_process_group()


def chosen_device(wanted: str, *, local_rank: int = 0) -> torch.device:
    """The device called `wanted`; `auto` is an accelerator if there is one."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if wanted == "auto":
        kind = accelerator.type if accelerator is not None else "cpu"
        return torch.device(kind, local_rank) if kind == "cuda" else torch.device(kind)
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise ConfigError(f"--device {wanted}: not a device; use auto, cpu, cuda or cuda:1") from error
    if device.type == "cpu":
        return device
    if accelerator is None or device.type != accelerator.type:
        there = "cpu" if accelerator is None else f"cpu and {accelerator.type}"
        raise ConfigError(f"--device {wanted}: this machine has {there}; use --device auto")
    if device.type == "cuda":
        number = local_rank if device.index is None else device.index
        if number >= torch.cuda.device_count():
            raise ConfigError(
                f"--device {wanted}: no GPU {number}, this machine has {torch.cuda.device_count()}, numbered from 0"
            )
        return torch.device("cuda", number)
    return device


def spread(model: nn.Module, layers: list[nn.Module], world: World, how: str, dtype: torch.dtype) -> nn.Module:
    """`model` on all ranks: copies whose gradients are averaged, or one copy in pieces."""
    if world.size == 1:
        return model
    if how == "fsdp":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        for layer in layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        return model
    ids = [world.device.index] if world.device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)


@contextmanager
def gradients_kept_apart(model: nn.Module, *, last: bool) -> Iterator[None]:
    """Gradients are exchanged after the last micro-step only."""
    if isinstance(model, nn.parallel.DistributedDataParallel) and not last:
        with model.no_sync():
            yield
        return
    if (switch := getattr(model, "set_requires_gradient_sync", None)) is not None:
        switch(last)
    yield
