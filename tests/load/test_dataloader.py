"""torch's DataLoader and torchdata's StatefulDataLoader, with and without workers: no row lost, none repeated."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from penstock.errors import ConfigError
from penstock.load.augment import MaskTokens
from penstock.load.batch import Batch
from penstock.load.dataset import Dataset
from penstock.load.loader import Loader
from penstock.load.plan import Plan, RowKind

from .builders import every_token, natural_shards, rows_of_batches, tokens_in, undisturbed, written

pytestmark = [
    # What torch says where a machine has one core.
    pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes:UserWarning"),
    # What torch says to torchdata.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    # What Python 3.12 says of any fork once a library has started a thread.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning"),
]
KINDS: tuple[RowKind, ...] = ("chunk", "best_fit")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset(written(tmp_path_factory.mktemp("set"), natural_shards(2, num_documents=90)))


def whole(batch: Batch) -> Batch:
    """For DataLoader(collate_fn=...): a batch as it is."""
    return batch


def planned(dataset: Dataset, kind: RowKind = "chunk", **settings: Any) -> Plan:
    return Plan(dataset, **{"seq_len": 16, "batch_size": 8, "rows": kind, **settings})


def ids_of(batches: Iterable[Any]) -> Counter[int]:
    found: Counter[int] = Counter()
    for batch in batches:
        found.update(tokens_in(batch["input_ids"]))
    return found


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_dataloader_over_micro_batches_sees_every_row_once(dataset: Dataset, kind: RowKind, num_workers: int) -> None:
    plan = planned(dataset, kind)
    loader = Loader(plan, micro_batch=4)
    found = DataLoader(loader, batch_size=None, num_workers=num_workers, collate_fn=whole)
    batches = list(found)
    assert len(batches) == len(found) == len(loader)
    assert rows_of_batches(batches) == undisturbed(plan)
    # Workers take turns, so that even the order is that of the run.
    assert [batch.cursor for batch in batches] == [batch.cursor for batch in loader]
    alone = next(iter(loader))
    for name in ("input_ids", "labels", "position_ids", "cu_seqlens", "doc_ids"):
        assert torch.equal(getattr(batches[0], name), getattr(alone, name)), name
        assert torch.equal(getattr(batches[0].to("cpu"), name), getattr(alone, name)), name
    assert batches[0].num_labels == alone.num_labels


@pytest.mark.parametrize("num_workers", [0, 2])
def test_without_a_collate_function_a_batch_is_a_dictionary_of_the_same_tensors(
    dataset: Dataset, num_workers: int
) -> None:
    plan = planned(dataset, "best_fit")
    found = list(DataLoader(Loader(plan, micro_batch=4), batch_size=None, num_workers=num_workers))
    for batch, other in zip(found, Loader(plan, micro_batch=4), strict=True):
        assert set(batch) == {"input_ids", "labels", "position_ids"}
        assert all(torch.equal(batch[name], other[name]) for name in batch)
    assert ids_of(found) == every_token(dataset)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_dataloader_that_makes_batches_of_rows_sees_every_row_once(
    dataset: Dataset, kind: RowKind, num_workers: int
) -> None:
    plan = planned(dataset, kind, batch_size=8)
    found = list(DataLoader(Loader(plan), batch_size=4, num_workers=num_workers))
    assert {tuple(batch["input_ids"].shape) for batch in found} == {(4, 16)}
    assert len(found) == plan.num_steps * 2
    assert ids_of(found) == every_token(dataset)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("num_steps", [6, 7, 8, 9])
def test_batches_of_rows_are_whole_and_as_many_as_was_said_however_many_workers_there_are(
    dataset: Dataset, num_steps: int, num_workers: int
) -> None:
    """A trainer that counts on the length never comes to a batch beyond it."""
    plan = planned(dataset, batch_size=4, max_steps=num_steps)
    found = DataLoader(Loader(plan), batch_size=4, num_workers=num_workers)
    batches = list(found)
    assert [len(batch["input_ids"]) for batch in batches] == [4] * num_steps
    assert len(found) == num_steps
    expected = ids_of(Loader(plan, micro_batch=4))
    assert ids_of(batches) == expected


@pytest.mark.parametrize("num_workers", [0, 2])
def test_ranks_with_workers_share_the_rows_out(dataset: Dataset, num_workers: int) -> None:
    plan = planned(dataset, "best_fit")
    found: dict[int, bytes] = {}
    lengths = set()
    for rank in range(2):
        loader = Loader(plan, rank=rank, world_size=2, micro_batch=2)
        batches = list(DataLoader(loader, batch_size=None, num_workers=num_workers, collate_fn=whole))
        lengths.add(len(batches))
        rows = rows_of_batches(batches)
        assert not rows.keys() & found.keys()
        found |= rows
    assert found == undisturbed(plan)
    assert len(lengths) == 1


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_run_goes_on_in_a_dataloader_from_the_cursor_of_any_batch(dataset: Dataset, num_workers: int) -> None:
    plan = planned(dataset)
    for taken in (1, 5):
        first = DataLoader(Loader(plan, micro_batch=2), batch_size=None, num_workers=num_workers, collate_fn=whole)
        iterator = iter(first)
        seen = [next(iterator) for _ in range(taken)]
        del iterator
        # Another crew, and another number of workers.
        loader = Loader(plan, micro_batch=4)
        loader.load_state_dict({"plan": plan.fingerprint, "rows": seen[-1].cursor})
        rest = DataLoader(loader, batch_size=None, num_workers=2 - num_workers, collate_fn=whole)
        assert rows_of_batches([*seen, *rest]) == undisturbed(plan)


def test_workers_augment_as_one_process_does(dataset: Dataset) -> None:
    plan = planned(dataset)
    augment = MaskTokens(60_000, 0.3, only_masked_labels=True)
    loader = Loader(plan, micro_batch=4, augment=augment)
    found = list(DataLoader(loader, batch_size=None, num_workers=2, collate_fn=whole))
    assert rows_of_batches(found) == undisturbed(plan, augment=augment)
    assert rows_of_batches(batch.to("cpu") for batch in found) == undisturbed(plan, augment=augment)


def test_a_worker_that_is_started_anew_loads_the_same(dataset: Dataset) -> None:
    """A spawned worker gets the loader by pickle, where a forked one inherits it."""
    plan = planned(dataset, "best_fit")
    loader = Loader(plan, micro_batch=4)
    found = DataLoader(loader, batch_size=None, num_workers=1, collate_fn=whole, multiprocessing_context="spawn")
    assert rows_of_batches(found) == undisturbed(plan)


Make = Callable[[], StatefulDataLoader]


def stateful(plan: Plan, num_workers: int, micro_batch: int | None) -> StatefulDataLoader:
    loader = Loader(plan, micro_batch=micro_batch)
    if micro_batch is None:
        return StatefulDataLoader(loader, batch_size=4, num_workers=num_workers)
    return StatefulDataLoader(loader, batch_size=None, num_workers=num_workers, collate_fn=whole)


def taken(loader: StatefulDataLoader, count: int) -> list[Any]:
    iterator = iter(loader)
    return [next(iterator) for _ in range(count)]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("micro_batch", [4, None])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stateful_dataloader_resumes_in_the_middle_in_a_fresh_one(
    dataset: Dataset, kind: RowKind, micro_batch: int | None, num_workers: int
) -> None:
    plan = planned(dataset, kind)
    make: Make = partial(stateful, plan, num_workers, micro_batch)
    everything = list(make())
    assert ids_of(everything) == every_token(dataset)
    for stop in (1, 6):
        loader = make()
        first = taken(loader, stop)
        state = loader.state_dict()
        fresh = make()
        fresh.load_state_dict(state)
        rest = list(fresh)
        assert len(first) + len(rest) == len(everything)
        for batch, other in zip([*first, *rest], everything, strict=True):
            assert torch.equal(batch["input_ids"], other["input_ids"])
            assert torch.equal(batch["labels"], other["labels"])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stateful_dataloader_resumes_a_second_and_a_third_time(dataset: Dataset, num_workers: int) -> None:
    plan = planned(dataset, "best_fit")
    found: list[Batch] = []
    state = None
    for count in (1, 2, 3):
        loader = stateful(plan, num_workers, 4)
        if state is not None:
            loader.load_state_dict(state)
        found += taken(loader, count)
        state = loader.state_dict()
    last = stateful(plan, num_workers, 4)
    assert state is not None
    last.load_state_dict(state)
    found += list(last)
    assert rows_of_batches(found) == undisturbed(plan)


def test_the_state_of_a_worker_is_refused_elsewhere(dataset: Dataset) -> None:
    plan = planned(dataset)
    loader = Loader(plan, micro_batch=4)
    loader.load_state_dict({"plan": plan.fingerprint, "rows": 8, "worker": {"id": 1, "of": 2, "start": 0, "skip": 3}})
    with pytest.raises(ConfigError, match="worker 1 of 2"):
        list(loader)


def test_numpy_batches_come_through_workers_as_numpy(dataset: Dataset) -> None:
    plan = planned(dataset)
    loader = Loader(plan, micro_batch=4, format="numpy", dtype="native")
    found = list(DataLoader(loader, batch_size=None, num_workers=2, collate_fn=whole))
    assert all(isinstance(batch.input_ids, np.ndarray) for batch in found)
    assert {str(batch.input_ids.dtype) for batch in found} == {"uint16"}
    assert rows_of_batches(found) == undisturbed(plan)
