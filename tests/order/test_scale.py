"""Order is arithmetic: it loads no torch, and a plan over all the tokens there are costs nothing."""

import subprocess
import sys
import time
import tracemalloc

import numpy as np

from penstock.order.chunks import ChunkRows
from penstock.order.schedule import Schedule, Source
from penstock.order.shuffle import FullShuffle

NUM_SHARDS = 150_000
TOKENS_PER_SHARD = 100_000_003
SEQ_LEN = 4096


def test_every_module_of_order_loads_without_torch_and_without_opening_datasets() -> None:
    code = (
        "import importlib, pkgutil, sys, penstock.order\n"
        "names = [module.name for module in pkgutil.walk_packages(penstock.order.__path__, 'penstock.order.')]\n"
        "for name in names: importlib.import_module(name)\n"
        "assert len(names) >= 8, names\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('penstock.')}\n"
        "print(sorted(rooms), sorted({'torch', 'pyarrow', 'polars', 'transformers'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['errors', 'order'] []"


def plan_over_15_trillion_tokens() -> Schedule:
    rows = ChunkRows(np.full(NUM_SHARDS, TOKENS_PER_SHARD), SEQ_LEN)
    source = Source(rows, FullShuffle(rows.num_rows, key=11))
    return Schedule([source], num_rows=rows.num_rows, batch_size=4096, skip=[(10**9, 10**9 + 4096)])


def test_a_plan_over_15_trillion_tokens_takes_little_memory_and_answers_at_once() -> None:
    tracemalloc.start()
    try:
        schedule = plan_over_15_trillion_tokens()
        places = np.random.default_rng(0).integers(0, schedule.num_rows, 2000).tolist()
        found = [schedule.located_one(place) for place in places]
        cursor = (schedule.num_steps - 2) * 4096
        last = schedule.taken(cursor, rank=1023, world_size=1024, micro_batch=2, least_rows=10**9)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert schedule.num_rows > 3.6e9
    assert peak < 50e6
    assert len(last.cursors) == 4, "two steps of two micro-steps"
    assert len({row for _, _, row in found}) > 1990
    rows = schedule.sources[0].rows
    assert isinstance(rows, ChunkRows)
    shard, start, length = rows.segment(found[0][2])
    assert 0 <= start < start + length <= TOKENS_PER_SHARD
    assert 0 <= shard < NUM_SHARDS


def test_locating_one_row_of_3_billion_takes_microseconds() -> None:
    schedule = plan_over_15_trillion_tokens()
    rows = schedule.sources[0].rows
    assert isinstance(rows, ChunkRows)
    places = np.random.default_rng(1).integers(0, schedule.num_rows, 3000).tolist()
    rounds = []
    for _ in range(3):
        started = time.perf_counter()
        for place in places:
            rows.segment(schedule.located_one(place)[2])
        rounds.append((time.perf_counter() - started) / len(places))
    assert min(rounds) < 200e-6


def test_resuming_at_the_end_costs_what_starting_costs() -> None:
    schedule = plan_over_15_trillion_tokens()
    took = []
    for cursor in (0, schedule.num_rows // 4096 // 2 * 4096, (schedule.num_rows // 4096 - 10) * 4096):
        started = time.perf_counter()
        taken = schedule.taken(cursor, rank=0, world_size=8, micro_batch=8, least_rows=64)
        schedule.segments(schedule.located(taken.places.reshape(-1)))
        took.append(time.perf_counter() - started)
    assert max(took) < 0.1
