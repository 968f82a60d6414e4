"""How fast a run is, and what it waits for."""

import time
from typing import Final

import torch

from penstock.model.config import GPTConfig

_PEAK_FLOPS: Final = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "4090": 165e12, "B200": 2250e12}
"""Dense bfloat16, by the vendor's data sheets."""


class Meter:
    """Counts tokens and time since the last reading."""

    def __init__(self, config: GPTConfig, seq_len: int, device: torch.device, num_ranks: int) -> None:
        self._flops = config.flops_per_token(seq_len)
        self._device, self._num_ranks = device, num_ranks
        self._peak = peak_flops(device)
        self._began = time.perf_counter()
        self._tokens = 0
        self._stalled = 0.0

    def add(self, num_tokens: int, stalled_s: float) -> None:
        """So many positions more, over all ranks, for which this rank waited so long."""
        self._tokens += num_tokens
        self._stalled += stalled_s

    def read(self) -> dict[str, float]:
        """Rates since the last reading. Waits for the device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        took = max(1e-9, now - self._began)
        rate = self._tokens / took
        found = {"tokens_per_s": rate, "data_stall": self._stalled / took}
        if self._peak:
            found["mfu"] = rate * self._flops / (self._peak * self._num_ranks)
        self._began, self._tokens, self._stalled = now, 0, 0.0
        return found

    def pause(self) -> None:
        """What happened since the last reading is not counted."""
        self._began, self._tokens, self._stalled = time.perf_counter(), 0, 0.0


def peak_flops(device: torch.device) -> float | None:
    """What the device could do at best, if it is known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((flops for part, flops in _PEAK_FLOPS.items() if part in name), None)
