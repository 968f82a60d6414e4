"""One question about plans in a process of its own, timed inside: imports are not counted. Prints one line of JSON.

python bench/plan_parts.py open DATASET STEP
python bench/plan_parts.py pack ENDS_DIR SEQ_LEN
python bench/plan_parts.py bins NUM_DOCUMENTS SEQ_LEN SEED
python bench/plan_parts.py arithmetic NUM_SHARDS TOKENS_PER_SHARD
python bench/plan_parts.py balance MEAN_LENGTH SIGMA SEQ_LEN SEED
"""

import json
import sys
import time
from bisect import bisect_left, insort
from pathlib import Path
from typing import Any, Final

import numpy as np
from documents import Documents
from measure import own_rss_bytes
from numpy.typing import NDArray

from penstock.order.best_fit import PackedRows
from penstock.order.chunks import ChunkRows
from penstock.order.deal import by_cost, imbalance
from penstock.order.items import sorted_items
from penstock.order.packing import packed_classes
from penstock.order.schedule import Schedule, Source
from penstock.order.shuffle import FullShuffle

SEQ_LEN: Final = 2048
BATCH: Final = 64
WORLD_SIZE: Final = 8
"""Of the run that is opened: 8 rows of 2,048 for each rank, more than seven million steps in a trillion tokens."""
LONG_SEQ_LEN: Final = 8192
NUM_RANKS: Final = 64
STEP_ROWS: Final = 512
"""Of the runs whose balance is looked at: eight micro-steps of one row a rank."""
NUM_STEPS: Final = 40
NUM_BALANCED: Final = 4_000_000
"""Documents in those runs."""
MODEL_WIDTH: Final = 4096
"""Of the model whose time is estimated. In a layer, the products of a token with weights cost 24 × width², and causal
attention 2 × width × length: a document's time goes with 12 × width × length + length²."""


def open_dataset(directory: str, step: str) -> dict[str, float]:
    """Seconds and memory to open a dataset of any size, and milliseconds from there to the first batch at a step."""
    from penstock.load.dataset import Dataset
    from penstock.load.loader import Loader
    from penstock.load.plan import Plan

    imported, _ = own_rss_bytes()
    began = time.perf_counter()
    plan = Plan(Dataset(directory), seq_len=SEQ_LEN, batch_size=BATCH)
    loader = Loader(plan, world_size=WORLD_SIZE, micro_batch=BATCH // WORLD_SIZE)
    num_steps = plan.num_steps
    opened = time.perf_counter()
    if int(step):
        loader.load_state_dict({"plan": plan.fingerprint, "rows": int(step) * BATCH})
    batch = next(iter(loader))
    found = (batch.input_ids, batch.labels)
    ended = time.perf_counter()
    if batch.step != int(step) or found[0].shape != (BATCH // WORLD_SIZE, SEQ_LEN):
        raise RuntimeError(f"expected step {step}, got {batch}")
    _, peak = own_rss_bytes()
    seconds = {"open_s": opened - began, "first_ms": (ended - opened) * 1e3}
    return seconds | {"num_steps": num_steps, "imports_bytes": imported, "peak_bytes": peak}


def pack(directory: str, seq_len: str) -> dict[str, float]:
    """Seconds and memory from the ends of documents to rows that can be asked for."""
    paths = sorted(Path(directory).glob("*.ends"))
    imported, _ = own_rss_bytes()

    def shards() -> Any:
        return (np.fromfile(path, np.int64) for path in paths)

    shard_tokens = np.array([int(ends[-1]) for ends in shards()])
    began = time.perf_counter()
    items = sorted_items(shards, seq_len=int(seq_len))
    sorted_at = time.perf_counter()
    rows = PackedRows(items, shard_tokens, key=1)
    num_rows = rows.num_rows
    packed_at = time.perf_counter()
    _, peak = own_rss_bytes()
    packed_classes(items.histogram, items.seq_len)
    classes_s = time.perf_counter() - packed_at
    filled = rows.num_tokens / (num_rows * items.seq_len)
    if rows.num_tokens != int(shard_tokens.sum()):
        raise RuntimeError(f"{directory}: {rows.num_tokens} tokens in rows, expected {shard_tokens.sum()}")
    seconds = {"total_s": packed_at - began, "items_s": sorted_at - began, "classes_s": classes_s}
    counts = {"num_documents": items.num_documents, "num_rows": num_rows, "filled": filled}
    return seconds | counts | {"imports_bytes": imported, "peak_bytes": peak}


def bins(num_documents: str, seq_len: str, seed: str) -> dict[str, float]:
    """Rows that the histogram gives, and rows that placing items one by one gives."""
    ends = np.cumsum(Documents().lengths(int(num_documents), seed=1000 + int(seed)))
    histogram = sorted_items(lambda: [ends], seq_len=int(seq_len)).histogram
    classes = packed_classes(histogram, int(seq_len)).total_bins
    began = time.perf_counter()
    lengths = np.repeat(np.arange(len(histogram)), histogram)[::-1].tolist()
    one_by_one = num_bins_one_by_one(lengths, int(seq_len))
    seconds = time.perf_counter() - began
    return {"num_rows": classes, "num_one_by_one": one_by_one, "one_by_one_s": seconds}


def num_bins_one_by_one(lengths: list[int], capacity: int) -> int:
    """Best-fit-decreasing as it is defined: each of the falling `lengths` goes into the fullest bin that has room."""
    num_with = [0] * (capacity + 1)
    rooms: list[int] = []
    num_bins = 0
    for length in lengths:
        at = bisect_left(rooms, length)
        if at == len(rooms):
            num_bins += 1
            room = capacity
        else:
            room = rooms[at]
            num_with[room] -= 1
            if not num_with[room]:
                del rooms[at]
        left = room - length
        if left and not num_with[left]:
            insort(rooms, left)
        num_with[left] += 1
    return num_bins


def arithmetic(num_shards: str, tokens_per_shard: str) -> dict[str, float]:
    """Microseconds and memory for the rows of a run that no disk here could hold."""
    before, _ = own_rss_bytes()
    began = time.perf_counter()
    rows = ChunkRows(np.full(int(num_shards), int(tokens_per_shard)), LONG_SEQ_LEN)
    shuffle = FullShuffle(rows.num_rows, key=1)
    schedule = Schedule([Source(rows, shuffle)], num_rows=rows.num_rows, batch_size=BATCH)
    made_s = time.perf_counter() - began
    draw = np.random.default_rng(0)
    places = draw.integers(rows.num_rows, size=20_000)
    began = time.perf_counter()
    for place in places.tolist():
        rows.segment(schedule.located_one(place)[2])
    one_us = (time.perf_counter() - began) / len(places) * 1e6
    began = time.perf_counter()
    for some in places.reshape(-1, 4000):
        schedule.segments(schedule.located(some))
    many_us = (time.perf_counter() - began) / len(places) * 1e6
    after, _ = own_rss_bytes()
    counts = {"num_rows": rows.num_rows, "num_tokens": rows.num_tokens}
    return counts | {"made_ms": made_s * 1e3, "one_us": one_us, "many_us": many_us, "held_bytes": after - before}


def balance(mean: str, sigma: str, seq_len: str, seed: str) -> dict[str, float]:
    """Slowest rank over the mean: in the package's own costs, and in the time of a model; dealt, and as rows come."""
    documents = Documents(mean=float(mean), sigma=float(sigma))
    ends = np.cumsum(documents.lengths(NUM_BALANCED, seed=2000 + int(seed)))
    rows = PackedRows(sorted_items(lambda: [ends], seq_len=int(seq_len)), ends[-1:], key=int(seed))
    num_steps = min(NUM_STEPS, rows.num_rows // STEP_ROWS)
    shuffled = FullShuffle(rows.num_rows, key=int(seed)).rows(np.arange(num_steps * STEP_ROWS), 0)
    found = np.zeros(4)
    for some in shuffled.reshape(num_steps, STEP_ROWS):
        costs = rows.costs(some)
        segments = rows.segments(some, 0)
        num_tokens = np.bincount(segments.row, segments.length, minlength=STEP_ROWS)
        # The cost is tokens plus squares; a model spends more on each token.
        times = costs + (12 * MODEL_WIDTH - 1) * num_tokens
        found += (*imbalance(costs, world_size=NUM_RANKS, micro_batch=1), *_slowest(times, by_cost(costs)))
    names = ("dealt", "as_they_come", "dealt_time", "as_they_come_time")
    return dict(zip(names, (found / num_steps).tolist(), strict=True)) | {"num_steps": num_steps}


def _slowest(times: NDArray[np.float64], order: NDArray[np.int64]) -> tuple[float, float]:
    """Time of the slowest rank over the mean, every micro-step waiting for it, one row a rank."""
    loads = (times[order].reshape(-1, NUM_RANKS), times.reshape(-1, NUM_RANKS))
    dealt, as_they_come = (float(one.max(axis=1).sum() / one.mean(axis=1).sum()) for one in loads)
    return dealt, as_they_come


PARTS: Final = {"open": open_dataset, "pack": pack, "bins": bins, "arithmetic": arithmetic, "balance": balance}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](*sys.argv[2:])))
