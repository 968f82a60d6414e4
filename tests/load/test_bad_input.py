"""What does not fit is refused with a message that says what was got and what would do."""

from pathlib import Path
from typing import Any

import pytest

from penstock import PrepareConfig, prepare
from penstock.errors import ConfigError, DatasetError
from penstock.load.dataset import Dataset
from penstock.load.loader import Loader
from penstock.load.mixture import Mixture
from penstock.load.plan import Plan

from .builders import natural_shards, undisturbed, written


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset(written(tmp_path_factory.mktemp("sets") / "wiki", natural_shards(0)))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset(written(tmp_path_factory.mktemp("sets") / "code", natural_shards(1), first_token=9000))


def planned(data: Any, **settings: Any) -> Plan:
    return Plan(data, **{"seq_len": 16, "batch_size": 8, **settings})


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True, None])
@pytest.mark.parametrize("name", ["seq_len", "batch_size", "max_steps", "window_tokens"])
def test_a_size_that_is_no_size_is_refused_by_name(dataset: Dataset, name: str, value: Any) -> None:
    if value is None and name in ("max_steps", "window_tokens"):
        return
    with pytest.raises(ConfigError, match=f"{name} must be a positive whole number, got {value!r}"):
        planned(dataset, **{name: value})


@pytest.mark.parametrize("epochs", [0, -1, float("nan"), float("inf")])
def test_epochs_that_never_begin_or_never_end_are_refused(dataset: Dataset, epochs: float) -> None:
    with pytest.raises(ConfigError, match="epochs"):
        assert planned(dataset, epochs=epochs).num_rows


def test_epochs_too_few_for_one_row_are_refused(dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="no rows"):
        assert planned(dataset, epochs=1e-6).num_rows


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("rows", "packed", "'chunk', 'best_fit'"),
        ("rows", None, "'chunk', 'best_fit'"),
        ("long_documents", "keep", "'split', 'truncate', 'drop'"),
    ],
)
def test_a_word_that_is_none_of_the_choices_is_refused_with_the_choices(
    dataset: Dataset, name: str, value: Any, expected: str
) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be one of {expected}, got {value!r}"):
        planned(dataset, **{name: value})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "float32"}, "dtype must be one of 'int64', 'int32', 'native', got 'float32'"),
        ({"dtype": "uint16"}, "got 'uint16'"),
        ({"format": "jax"}, "format must be 'torch' or 'numpy', got 'jax'"),
        ({"prefetch": -1}, "prefetch must not be negative, got -1"),
        ({"micro_batch": 0}, "micro_batch must be positive, got 0"),
        ({"micro_batch": -4}, "micro_batch must be positive, got -4"),
        ({"world_size": 0}, "got rank 0 of 0"),
        ({"rank": 2, "world_size": 2}, "got rank 2 of 2"),
        ({"rank": -1, "world_size": 2}, "got rank -1 of 2"),
        ({"pin_memory": True, "format": "numpy"}, "pin_memory goes with format='torch'"),
    ],
)
def test_a_loader_refuses_what_it_does_not_know(dataset: Dataset, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Loader(planned(dataset), **settings)
    assert message in str(refused.value)


def test_a_batch_that_does_not_divide_names_the_nearest_that_do(dataset: Dataset) -> None:
    plan = planned(dataset, batch_size=100)
    with pytest.raises(ConfigError) as refused:
        Loader(plan, world_size=8, micro_batch=4)
    assert "use batch_size 96 or 128" in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        Loader(plan, world_size=4, micro_batch=4)
    assert "use batch_size 96 or 112, or micro_batch 1 or 5" in str(refused.value)
    with pytest.raises(ConfigError, match="use batch_size 128"):
        Loader(plan, world_size=128)


def test_a_split_that_is_empty_says_which_are_not(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a few words")
    prepare(
        PrepareConfig(
            input_files=(str(tmp_path / "in.txt"),), out_dir=tmp_path / "set", tokenization="byte", val_fraction=0.0
        )
    )
    with pytest.raises(DatasetError, match=r"split 'val' is empty \(splits with documents: train\)"):
        Dataset(tmp_path / "set", "val")
    with pytest.raises(DatasetError, match="penstock prepare"):
        Dataset(tmp_path)
    with pytest.raises(ConfigError, match="verify must be"):
        Dataset(tmp_path / "set", verify="some")  # type: ignore[arg-type]


def test_weights_that_do_not_sum_to_one_are_refused(dataset: Dataset, other: Dataset) -> None:
    with pytest.raises(ConfigError, match=r"0\.5, 0\.6 sum to 1\.1"):
        Mixture({dataset: 0.5, other: 0.6})
    with pytest.raises(ConfigError, match="must not be negative"):
        Mixture({dataset: 1.5, other: -0.5})
    with pytest.raises(ConfigError, match="at least one dataset"):
        Mixture({})
    with pytest.raises(ConfigError, match="block must be positive"):
        Mixture({dataset: 1.0}, block=0)
    with pytest.raises(ConfigError, match="max_epochs of wiki must be positive"):
        Mixture({dataset: 1.0}, max_epochs=0)
    mixture = Mixture({dataset: 1.0})
    with pytest.raises(ConfigError, match="sum to"):
        mixture.changed(from_row=10, weights={dataset: 0.5})
    with pytest.raises(ConfigError, match="not after the last change"):
        mixture.changed(from_row=0, weights={dataset: 0.5, other: 0.5})


def test_settings_that_contradict_each_other_are_refused(dataset: Dataset, other: Dataset) -> None:
    with pytest.raises(ConfigError, match="a mixture takes max_epochs"):
        planned(Mixture({dataset: 0.5, other: 0.5}), epochs=2)
    with pytest.raises(ConfigError, match="window_tokens goes with rows='chunk'"):
        planned(dataset, rows="best_fit", window_tokens=100)
    with pytest.raises(ConfigError, match="a Dataset or a Mixture, got str"):
        planned("data/wiki")
    with pytest.raises(ConfigError, match="too few for one block of 256"):
        assert planned(Mixture({dataset: 0.5, other: 0.5})).num_rows


def test_datasets_of_different_tokenizers_do_not_mix(dataset: Dataset, tmp_path: Path) -> None:
    foreign = Dataset(written(tmp_path / "foreign", [[50]], tokenizer="gpt2"))
    with pytest.raises(ConfigError, match=r"must share a tokenizer: wiki \(counting\), foreign \(gpt2\)"):
        planned(Mixture({dataset: 0.5, foreign: 0.5}))


def test_datasets_with_ids_of_different_width_do_not_mix(dataset: Dataset, tmp_path: Path) -> None:
    wide = Dataset(written(tmp_path / "wide", [[50]], token_dtype="uint32"))
    with pytest.raises(ConfigError, match=r"token_dtype: wiki \(uint16\), wide \(uint32\).*--token_dtype"):
        planned(Mixture({dataset: 0.5, wide: 0.5}))


def test_dropping_every_document_is_refused_with_what_to_do(tmp_path: Path) -> None:
    dataset = Dataset(written(tmp_path, [[20, 30], [40]]))
    with pytest.raises(ConfigError, match=r"every document is longer than seq_len 16 .* 'split' or 'truncate'"):
        assert planned(dataset, rows="best_fit", long_documents="drop").num_rows


@pytest.mark.parametrize("ranges", [((-1, 3),), ((5, 5),), ((7, 3),), ((0, 10**9),)])
def test_rows_that_cannot_be_skipped_are_refused(dataset: Dataset, ranges: Any) -> None:
    with pytest.raises(ConfigError, match="expected 0 <= from < to <="):
        assert planned(dataset, skip=ranges).num_rows


def test_a_row_that_is_not_there_is_refused(dataset: Dataset) -> None:
    plan = planned(dataset)
    for place in (-1, plan.num_rows):
        with pytest.raises(ConfigError, match=f"no row {place}"):
            plan.row(place)


@pytest.mark.parametrize("ranges", [((0, 10), (5, 15)), ((3, 6), (3, 6)), ((0, 8), (20, 24))])
def test_max_steps_is_the_number_of_steps_however_ranges_are_skipped(dataset: Dataset, ranges: Any) -> None:
    plan = planned(dataset, seq_len=4, max_steps=5, skip=ranges)
    assert plan.num_steps == 5
    assert plan.num_rows == 40
    assert len(undisturbed(plan)) == 40


def test_a_mixture_without_an_end_ends_before_any_row_repeats(dataset: Dataset, other: Dataset) -> None:
    mixture = Mixture({dataset: 0.5, other: 0.5}, block=4)
    plain = planned(mixture, seq_len=4)
    assert plain.num_rows > 100
    assert max(plain.epochs_seen()) <= 1
    # Seven tenths of the first 400 rows are more than the first dataset has.
    mixture = Mixture({dataset: 0.7, other: 0.3}, block=10)
    changed = planned(mixture.changed(from_row=400, weights={other: 1.0}), seq_len=4)
    try:
        shares = changed.epochs_seen()
    except ConfigError as error:
        assert "repeat" in str(error)
    else:
        assert max(shares) <= 1, "a row repeats, though nobody asked for max_steps"


def test_a_cap_on_all_datasets_holds_for_those_that_join_later(dataset: Dataset, other: Dataset) -> None:
    mixture = Mixture({dataset: 1.0}, max_epochs=1, block=4).changed(from_row=8, weights={dataset: 0.5, other: 0.5})
    plan = planned(mixture, seq_len=4)
    assert max(plan.epochs_seen()) <= 1


def test_skipping_every_row_leaves_nothing_and_says_so(dataset: Dataset) -> None:
    whole = planned(dataset)
    with pytest.raises(ConfigError, match=r"no rows|skip"):
        assert list(Loader(whole.with_skip((0, whole.num_rows)), micro_batch=1)) == []
