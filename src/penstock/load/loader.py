"""A plan → batches for one rank, from any row on.

May read ahead in a thread; starts no process. What was handed out is what counts: `state_dict` never speaks of rows
that are only read ahead.
"""

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigError, MissingExtra
from penstock.load.batch import Batch
from penstock.load.group import Augment, Group, itself
from penstock.load.plan import Plan
from penstock.load.resume import checked_cursor
from penstock.load.rows import PlacedRows, RowMaker
from penstock.order.deal import require_even

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError:  # numpy alone serves JAX
    torch = None  # type: ignore[assignment]

    class IterableDataset:  # type: ignore[no-redef]
        def __class_getitem__(cls, _: Any) -> type:
            return cls


_PLANNED_ROWS: Final = 4096
"""Rows whose places are worked out at once."""
_FIRST_ROWS: Final = 64
"""The same before the first batch, which somebody waits for."""
_COPIED_TOKENS: Final = 1 << 17
"""Tokens that are copied at once: about what the caches hold."""
_AHEAD_TOKENS: Final = 1 << 20
"""Tokens that the thread hands over at once: waking somebody up costs as much as copying a hundred thousand."""
_SLOW_S: Final = 20e-9
"""Seconds a token; copying from memory takes about one twentieth."""
_SLOW_TIMES: Final = 3
_READ_AHEAD: Final = 2
_DTYPES: Final[dict[str, np.dtype[Any] | None]] = {
    "int64": np.dtype(np.int64),
    "int32": np.dtype(np.int32),
    "native": None,
}


class Loader(IterableDataset[Any]):
    """The batches of one rank.

    >>> for batch in Loader(plan, rank=0, world_size=4, micro_batch=8):
    ...     batch.input_ids, batch.labels

    Every iteration starts at the beginning, or once at the state that was loaded. Without `micro_batch` it gives rows
    one by one, for a DataLoader or a Trainer that makes batches of its own.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        rank: int = 0,
        world_size: int = 1,
        micro_batch: int | None = None,
        format: Literal["torch", "numpy"] | None = None,
        dtype: Literal["int64", "int32", "native"] = "int64",
        pin_memory: bool = False,
        prefetch: int | None = None,
        augment: Augment | None = None,
        shift_labels: bool = True,
    ) -> None:
        """
        `format`: torch tensors if torch is there, else numpy arrays. `dtype`: of ids; `native` is that of the shards,
        and `Batch.to` casts on the device. `prefetch`: how many million tokens, about, a thread reads ahead; 0 for
        none, and no thread. If not given, the thread starts when reading turns out to be slow: from memory it would
        only be in the way. `shift_labels`: the label of a position is the next token; off, it is the token itself, as
        models of `transformers` want it, which shift on their own.
        """
        if world_size < 1 or not 0 <= rank < world_size:
            raise ConfigError(f"rank must be from 0 to world_size - 1, got rank {rank} of {world_size}")
        if micro_batch is not None and micro_batch < 1:
            raise ConfigError(f"micro_batch must be positive, got {micro_batch}")
        if dtype not in _DTYPES:
            raise ConfigError(f"dtype must be one of {', '.join(map(repr, _DTYPES))}, got {dtype!r}")
        if format not in (None, "torch", "numpy"):
            raise ConfigError(f"format must be 'torch' or 'numpy', got {format!r}")
        if prefetch is not None and prefetch < 0:
            raise ConfigError(f"prefetch must not be negative, got {prefetch}")
        self.format = format or ("numpy" if torch is None else "torch")
        if self.format == "torch" and torch is None:
            raise MissingExtra("format='torch' needs torch: pip install 'penstock[train]'; or use format='numpy'")
        if pin_memory and (self.format != "torch" or not torch.accelerator.is_available()):
            raise ConfigError("pin_memory goes with format='torch' and a machine that has an accelerator")
        self._micro = micro_batch or 1
        require_even(plan.batch_size, world_size=world_size, micro_batch=self._micro)
        self.plan, self.rank, self.world_size, self.micro_batch = plan, rank, world_size, micro_batch
        self.dtype, self.pin_memory, self.prefetch = dtype, pin_memory, prefetch
        self.augment, self.shift_labels = augment, shift_labels
        self._start = 0
        self._worker: dict[str, int] | None = None
        self._cursor = 0
        self._last: Batch | None = None

    # The cursor

    def state_dict(self) -> dict[str, Any]:
        """Where the run is: the plan, and how many rows of it are behind, on all ranks together."""
        rows = self._cursor if self._last is None else self._last.cursor
        state: dict[str, Any] = {"plan": self.plan.fingerprint, "rows": rows}
        if self._worker is not None:
            state["worker"] = dict(self._worker)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from `state`, which may be of another world size or micro-batch."""
        self._start = self._cursor = checked_cursor(self.plan, state)
        self._last = None
        self._worker = dict(state["worker"]) if "worker" in state else None

    def __len__(self) -> int:
        """Batches, or rows where there is no micro_batch, of a whole run on this rank."""
        return self.plan.num_steps * self.plan.batch_size // (self.world_size * self._micro)

    def __iter__(self) -> Iterator[Any]:
        start, self._start = self._start, 0
        resumed, self._worker = self._worker, None
        start = start if start < self.plan.num_rows else self.plan.num_steps * self.plan.batch_size
        skip, worker, step = 0, 0, 1
        info = get_worker_info() if torch is not None else None
        if info is None and resumed is not None:
            raise ConfigError(
                f"this state is that of worker {resumed['id']} of {resumed['of']} of a DataLoader, of use to nobody "
                'else; to go on without workers, use {"plan": plan.fingerprint, "rows": batch.cursor}'
            )
        if info is not None:
            worker, step = info.id, info.num_workers
            if resumed is not None:
                if resumed["of"] != step or resumed["id"] != info.id:
                    raise ConfigError(
                        f"this state is that of DataLoader worker {resumed['id']} of {resumed['of']}, here are {step}; "
                        "use as many, or a state without workers"
                    )
                skip, start = resumed["skip"], resumed["start"]
            self._worker = {"id": worker, "of": step, "start": start, "skip": skip}
        self._cursor, self._last = min(start, self.plan.num_rows), None
        return self._batches(start, skip, worker, step)

    @property
    def _turn(self) -> int:
        """Micro-steps that a DataLoader's worker takes in a row. Single rows come by whole steps: batches made of them
        are whole, and as many as the length says, if they divide a step."""
        return 1 if self.micro_batch is not None else self.plan.batch_size // self.world_size

    def _batches(self, start: int, skip: int, worker_id: int, num_workers: int) -> Iterator[Any]:
        made = self._made(start, skip, worker_id, num_workers)
        worker, by_rows = self._worker, self.micro_batch is None
        groups = (
            made
            if self.prefetch == 0
            else _if_slow(made)
            if self.prefetch is None
            else _read_ahead(made, self.prefetch)
        )
        try:
            for group in groups:
                for self._last in group:
                    if worker is not None:
                        worker["skip"] += 1
                    yield self._last.first_row() if by_rows else self._last
        finally:
            groups.close()  # type: ignore[attr-defined]

    def _made(self, start: int, skip: int, worker: int, num_workers: int) -> Iterator[list[Batch]]:
        """Batches, a few at a time: of the micro-steps from `start` on those whose turn is `worker`'s, less `skip`."""
        plan, micro, schedule = self.plan, self._micro, self.plan.schedule
        dtype = _DTYPES[self.dtype] or plan.datasets[0].dtype
        maker = RowMaker(plan, dtype)
        keys = ("input_ids", "labels", "position_ids") if maker.whole_documents else ("input_ids", "labels")
        most_at_once = max(1, _COPIED_TOKENS // (plan.seq_len * micro))
        # Somebody waits for the first one: it is read alone, and opens no more shards than it must.
        at_once = 1
        cursor, least, number = start, max(_FIRST_ROWS, micro), 0
        unit = micro * self.world_size
        if start % unit == 0:
            # Whole turns of all workers are passed over at once.
            number = skip // self._turn * self._turn * num_workers
            cursor, skip = start + number * unit, skip % self._turn
        while True:
            taken = schedule.taken(
                cursor, rank=self.rank, world_size=self.world_size, micro_batch=micro, least_rows=least * num_workers
            )
            if not len(taken.cursors):
                return
            numbers = np.arange(number, number + len(taken.cursors))
            chosen = np.flatnonzero(numbers // self._turn % num_workers == worker)
            number += len(numbers)
            chosen, skip = chosen[skip:], max(0, skip - len(chosen))
            cursor, least = int(taken.cursors[-1]), _PLANNED_ROWS
            placed = maker.placed(taken.places[chosen].reshape(-1))
            cursors = taken.cursors[chosen].tolist()
            low = 0
            while low < len(cursors):
                some = cursors[low : low + at_once]
                yield self._group(maker, placed, low * micro, some, keys)
                low += len(some)
                at_once = min(most_at_once, 4 * at_once)

    def _group(
        self, maker: RowMaker, placed: PlacedRows, first: int, cursors: list[int], keys: tuple[str, ...]
    ) -> list[Batch]:
        """The batches that end at `cursors`, from row `first` of `placed` on, in one block of memory."""
        batch_size, num_rows = self.plan.batch_size, self.plan.num_rows
        last = first + len(cursors) * self._micro
        group = Group(
            tokens=maker.tokens(placed, first, last, self._memory(last - first, maker.dtype)),
            documented=placed,
            first=first,
            micro=self._micro,
            numbers=placed.numbers[first:last],
            steps=[(cursor - 1) // batch_size for cursor in cursors],
            cursors=[min(cursor, num_rows) for cursor in cursors],
            keys=keys,
            wrap=torch.from_numpy if self.format == "torch" else itself,
            shift_labels=self.shift_labels,
            augment=self.augment,
        )
        return [Batch(group, number) for number in range(len(cursors))]

    def _memory(self, num_rows: int, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        if not self.pin_memory:
            return None
        kind = getattr(torch, dtype.newbyteorder("=").name)
        pinned = torch.empty((num_rows, self.plan.seq_len + 1), dtype=kind, pin_memory=True)
        array: NDArray[Any] = pinned.numpy()
        return array


def _if_slow(made: Iterator[list[Batch]]) -> Iterator[list[Batch]]:
    """`made`, and once a few pieces in a row were slow to come, from a thread."""
    num_slow = 0
    began = time.perf_counter()
    for group in made:
        num_tokens = group[0].num_positions * len(group)
        num_slow = num_slow + 1 if time.perf_counter() - began > num_tokens * _SLOW_S else 0
        yield group
        if num_slow == _SLOW_TIMES:
            yield from _read_ahead(made, _READ_AHEAD)
            return
        began = time.perf_counter()


def _joined(made: Iterator[list[Batch]]) -> Iterator[list[Batch]]:
    """Larger groups, but for the first ones, which somebody waits for."""
    held: list[Batch] = []
    least = 1
    for group in made:
        held += group
        if len(held) * held[0].num_positions >= least:
            yield held
            held, least = [], min(_AHEAD_TOKENS, least * 1024)
    if held:
        yield held


def _read_ahead(made: Iterator[list[Batch]], num_ahead: int) -> Iterator[list[Batch]]:
    """`made`, worked out by a thread that is up to `num_ahead` pieces in front. Closing it ends the thread."""
    ready: queue.Queue[list[Batch] | BaseException | None] = queue.Queue(num_ahead)
    stopped = threading.Event()

    def give(item: list[Batch] | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for group in _joined(made):
                give(group)
                if stopped.is_set():
                    return
            give(None)
        except BaseException as error:
            give(error)

    thread = threading.Thread(target=work, name="penstock-loader", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
