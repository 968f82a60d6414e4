"""Augmentation follows from the seed and the row: whoever loads a row, it comes out the same."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from penstock.errors import ConfigError
from penstock.load.augment import MaskTokens, RandomNoise
from penstock.load.batch import Batch
from penstock.load.dataset import Dataset
from penstock.load.group import Augment
from penstock.load.loader import Loader
from penstock.load.plan import Plan, RowKind

from .builders import MASKED, natural_shards, rows_of_batches, undisturbed, written

MASK_ID = 60_000


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset(written(tmp_path_factory.mktemp("set"), natural_shards(4, num_documents=150)))


def backwards(
    ids_BT: NDArray[Any], labels_BT: NDArray[Any], rows: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """An augmentation of a user's own: every other row turned round."""
    odd = (rows % 2 == 1)[:, None]
    return np.where(odd, ids_BT[:, ::-1], ids_BT), np.where(odd, labels_BT[:, ::-1], labels_BT)


AUGMENTS: list[Augment] = [
    MaskTokens(MASK_ID),
    MaskTokens(MASK_ID, 0.5, only_masked_labels=True, seed=3),
    RandomNoise(65_000, 0.3),
    backwards,
]


@pytest.mark.parametrize("augment", AUGMENTS, ids=["mask", "only masked labels", "noise", "own"])
@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
def test_augmented_rows_are_the_same_for_any_world_size_and_micro_batch(
    dataset: Dataset, augment: Augment, kind: RowKind
) -> None:
    plan = Plan(dataset, seq_len=32, batch_size=12, rows=kind)
    expected = undisturbed(plan, augment=augment)
    assert expected != undisturbed(plan)
    for world_size, micro_batch in ((1, 4), (2, 3), (3, 4), (12, 1)):
        found: dict[int, bytes] = {}
        for rank in range(world_size):
            loader = Loader(plan, rank=rank, world_size=world_size, micro_batch=micro_batch, augment=augment)
            found |= rows_of_batches(loader)
        assert found == expected


@pytest.mark.parametrize("augment", AUGMENTS, ids=["mask", "only masked labels", "noise", "own"])
@pytest.mark.parametrize("format", ["numpy", "torch"])
def test_an_augmented_batch_stays_augmented_wherever_it_goes(dataset: Dataset, augment: Augment, format: Any) -> None:
    plan = Plan(dataset, seq_len=32, batch_size=8, rows="best_fit")
    for batch in Loader(plan, micro_batch=4, augment=augment, format=format):
        sent: Batch = pickle.loads(pickle.dumps(batch))
        again: Batch = pickle.loads(pickle.dumps(sent))
        for other in (batch.to("cpu"), sent, sent.to("cpu"), again, again.to("cpu")):
            assert np.array_equal(np.asarray(other.input_ids), np.asarray(batch.input_ids))
            assert np.array_equal(np.asarray(other.labels), np.asarray(batch.labels))
            assert other.num_labels == batch.num_labels == int((np.asarray(batch.labels) != MASKED).sum())


@pytest.mark.parametrize("fraction", [0.0, 0.15, 0.5, 1.0])
def test_as_many_tokens_are_masked_as_was_asked_for(dataset: Dataset, fraction: float) -> None:
    plan = Plan(dataset, seq_len=64, batch_size=8)
    masked = total = 0
    for batch in Loader(plan, micro_batch=8, augment=MaskTokens(MASK_ID, fraction), format="numpy"):
        masked += int((batch.input_ids == MASK_ID).sum())
        total += batch.input_ids.size
    assert abs(masked - fraction * total) <= 5 * np.sqrt(total * fraction * (1 - fraction))


def test_labels_stay_or_only_those_of_masked_places_do(dataset: Dataset) -> None:
    plan = Plan(dataset, seq_len=32, batch_size=8)
    plain = list(Loader(plan, micro_batch=8, format="numpy"))
    kept = Loader(plan, micro_batch=8, format="numpy", augment=MaskTokens(MASK_ID, 0.3))
    only = Loader(plan, micro_batch=8, format="numpy", augment=MaskTokens(MASK_ID, 0.3, only_masked_labels=True))
    for one, masked, few in zip(plain, kept, only, strict=True):
        assert (masked.labels == one.labels).all()
        assert (masked.input_ids == few.input_ids).all()
        there = few.input_ids == MASK_ID
        assert (few.labels[there] == one.labels[there]).all()
        assert (few.labels[~there] == MASKED).all()
        assert (masked.input_ids[~there] == one.input_ids[~there]).all()


def test_noise_is_other_tokens_of_the_vocabulary_and_labels_stay(dataset: Dataset) -> None:
    plan = Plan(dataset, seq_len=32, batch_size=8)
    noisy = Loader(plan, micro_batch=8, format="numpy", augment=RandomNoise(100, 1.0))
    values: list[int] = []
    for one, other in zip(Loader(plan, micro_batch=8, format="numpy"), noisy, strict=True):
        assert (one.labels == other.labels).all()
        values += other.input_ids.reshape(-1).tolist()
    counts = np.bincount(values, minlength=100)
    assert len(counts) == 100
    assert counts.min() > len(values) / 100 / 3


def test_seeds_and_rows_draw_other_tokens(dataset: Dataset) -> None:
    plan = Plan(dataset, seq_len=32, batch_size=8)

    def masks(seed: int) -> NDArray[np.bool_]:
        loader = Loader(plan, micro_batch=8, format="numpy", augment=MaskTokens(MASK_ID, 0.5, seed=seed))
        return np.concatenate([batch.input_ids == MASK_ID for batch in loader])

    one, same, other = masks(0), masks(0), masks(1)
    assert (one == same).all()
    assert 0.4 < (one != other).mean() < 0.6
    # Fillers are all the same row; others are not.
    assert len({row.tobytes() for row in one}) >= plan.num_rows


@pytest.mark.parametrize("dtype", ["int64", "int32", "native"])
def test_augmented_ids_keep_their_type(dataset: Dataset, dtype: Any) -> None:
    plan = Plan(dataset, seq_len=32, batch_size=8)
    expected = {"int64": torch.int64, "int32": torch.int32, "native": torch.uint16}[dtype]
    for augment in (MaskTokens(MASK_ID), RandomNoise(65_000)):
        batch = next(iter(Loader(plan, micro_batch=8, augment=augment, dtype=dtype)))
        assert batch.input_ids.dtype == expected


def test_an_epoch_later_the_same_row_is_augmented_otherwise(tmp_path: Path) -> None:
    dataset = Dataset(written(tmp_path, [[64]]))
    plan = Plan(dataset, seq_len=64, batch_size=1, epochs=2)
    first, second = Loader(plan, micro_batch=1, format="numpy", augment=MaskTokens(MASK_ID, 0.5))
    assert (first.input_ids != second.input_ids).any()


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_a_fraction_that_is_none_is_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match="fraction must be from 0 to 1"):
        MaskTokens(1, fraction)
    with pytest.raises(ConfigError, match="fraction must be from 0 to 1"):
        RandomNoise(10, fraction)
    with pytest.raises(ConfigError, match="vocab_size must be positive"):
        RandomNoise(0)
