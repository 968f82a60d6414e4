"""One loader in a process of its own, timed inside: imports are not counted. Prints one line of JSON.

python bench/loaders.py rate NAME DATA_DIR SECONDS
python bench/loaders.py start chunk|best_fit DATA_DIR SHARE_OF_THE_RUN_THAT_IS_BEHIND

Shapes: B rows, T tokens of a row. Every loader gives inputs and labels as int64, (B, T) each, from shuffled rows of the
same tokens (`load_data.py`).
"""

import json
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

SEQ_LEN: Final = 2048
BATCH: Final = 8
_WARM_S: Final = 0.5
_MANY_EPOCHS: Final = 10_000
_PER_LOOK: Final = 8
"""Batches between looks at the clock."""

Batches = Iterator[tuple[Any, ...]]


def penstock(data: Path, *, rows: str, form: str) -> Batches:
    """Inputs and labels; of packed rows also positions and the ends of documents."""
    from penstock.load.dataset import Dataset
    from penstock.load.loader import Loader
    from penstock.load.plan import Plan

    plan = Plan(Dataset(data / "penstock"), seq_len=SEQ_LEN, batch_size=BATCH, rows=rows, epochs=_MANY_EPOCHS)
    loader = Loader(plan, micro_batch=BATCH, format=form)
    if rows == "chunk":
        return ((batch.input_ids, batch.labels) for batch in loader)
    return ((batch.input_ids, batch.labels, batch.position_ids, batch.cu_seqlens) for batch in loader)


def nanogpt(data: Path) -> Batches:
    """What `get_batch` of nanoGPT's train.py does on a CPU: the file is mapped anew for every batch."""
    import torch

    torch.manual_seed(1337)
    while True:
        tokens = np.memmap(data / "train.bin", dtype=np.uint16, mode="r")
        starts = torch.randint(len(tokens) - SEQ_LEN, (BATCH,))
        x_BT = torch.stack([torch.from_numpy(tokens[at : at + SEQ_LEN].astype(np.int64)) for at in starts])
        y_BT = torch.stack([torch.from_numpy(tokens[at + 1 : at + 1 + SEQ_LEN].astype(np.int64)) for at in starts])
        yield x_BT, y_BT


def litdata(data: Path) -> Batches:
    """Its own chunks, item loader, dataset and data loader, no worker processes."""
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader

    dataset = StreamingDataset(
        str((data / "litdata").resolve()), item_loader=TokensLoader(block_size=SEQ_LEN + 1), shuffle=True
    )
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0)
    while True:
        for batch in loader:
            rows = batch.long()
            yield rows[:, :-1], rows[:, 1:]


def streaming(data: Path) -> Batches:
    """Its own shards and dataset, torch's data loader, no worker processes."""
    import torch

    package = mosaic()

    class Tokens(package.StreamingDataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, at: int) -> Any:
            return torch.from_numpy(super().__getitem__(at)["tokens"].astype(np.int64))

    package.base.util.clean_stale_shared_memory()
    dataset = Tokens(local=str((data / "mds").resolve()), shuffle=True, batch_size=BATCH)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=0)
    while True:
        for rows in loader:
            yield rows[:, :-1], rows[:, 1:]


def take(data: Path) -> Batches:
    """Nothing but the copy: rows of an array, in an order that was drawn before, then the cast."""
    tokens = np.asarray(np.memmap(data / "train.bin", dtype=np.uint16, mode="r"))
    rows = tokens[: len(tokens) // (SEQ_LEN + 1) * (SEQ_LEN + 1)].reshape(-1, SEQ_LEN + 1)
    draw = np.random.default_rng(0)
    while True:
        order = draw.permutation(len(rows))
        for at in range(0, len(rows) - BATCH + 1, BATCH):
            chosen = np.take(rows, order[at : at + BATCH], axis=0).astype(np.int64)
            yield chosen[:, :-1], chosen[:, 1:]


LOADERS: Final[dict[str, Callable[[Path], Batches]]] = {
    "penstock chunk, numpy": lambda data: penstock(data, rows="chunk", form="numpy"),
    "penstock chunk, torch": lambda data: penstock(data, rows="chunk", form="torch"),
    "penstock best_fit": lambda data: penstock(data, rows="best_fit", form="torch"),
    "nanoGPT get_batch": nanogpt,
    "litdata": litdata,
    "MosaicML Streaming": streaming,
    "np.take": take,
}


def rate(name: str, data: Path, seconds: float) -> dict[str, float]:
    """Tokens, and the time they took, after the loader has run for a moment."""
    batches = LOADERS[name](data)
    check(next(batches))
    until = time.perf_counter() + _WARM_S
    while time.perf_counter() < until:
        next(batches)
    num_batches, start, spent = 0, time.perf_counter(), 0.0
    while spent < seconds:
        for _ in range(_PER_LOOK):
            next(batches)
        num_batches += _PER_LOOK
        spent = time.perf_counter() - start
    return {"seconds": spent, "num_batches": num_batches, "num_tokens": num_batches * BATCH * SEQ_LEN}


def start(rows: str, data: Path, behind: float) -> dict[str, float]:
    """Milliseconds to open a dataset, and from there to the first batch, with a share of the run behind."""
    from penstock.load.dataset import Dataset
    from penstock.load.loader import Loader
    from penstock.load.plan import Plan

    began = time.perf_counter()
    plan = Plan(Dataset(data / "penstock"), seq_len=SEQ_LEN, batch_size=BATCH, rows=rows)
    loader = Loader(plan, micro_batch=BATCH)
    num_steps = plan.num_steps
    opened = time.perf_counter()
    if behind:
        loader.load_state_dict({"plan": plan.fingerprint, "rows": int(behind * num_steps) * BATCH})
    batch = next(iter(loader))
    found = (batch.input_ids, batch.labels)
    ended = time.perf_counter()
    check(found)
    return {"open_ms": (opened - began) * 1e3, "first_ms": (ended - opened) * 1e3, "step": batch.step}


def check(batch: tuple[Any, ...]) -> None:
    """A batch is what it should be: int64, and labels are the next tokens wherever there are labels."""
    x_BT, y_BT = (np.asarray(one) for one in batch[:2])
    if x_BT.shape != (BATCH, SEQ_LEN) or y_BT.shape != x_BT.shape or {x_BT.dtype, y_BT.dtype} != {np.dtype(np.int64)}:
        raise RuntimeError(f"expected int64 of {(BATCH, SEQ_LEN)}, got {x_BT.dtype} {x_BT.shape} and {y_BT.shape}")
    here, there = x_BT[:, 1:], y_BT[:, :-1]
    if (there[there >= 0] != here[there >= 0]).any() or len(np.unique(x_BT)) < BATCH:
        raise RuntimeError("labels are not the tokens that follow")


def mosaic() -> Any:
    """The package `streaming`, without its datasets of pictures: they need a torchvision made for this torch."""
    sys.modules.setdefault("streaming.vision", types.ModuleType("streaming.vision"))
    import streaming

    return streaming


if __name__ == "__main__":
    what, which, data_dir, number = sys.argv[1:]
    print(json.dumps((rate if what == "rate" else start)(which, Path(data_dir), float(number))))
