"""A checkpoint of the data is a plan and a number; whose it is can be told, and what differs is named."""

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError, DatasetError
from penstock.load.dataset import Dataset
from penstock.load.loader import Loader
from penstock.load.mixture import Mixture
from penstock.load.plan import Plan

from .builders import natural_shards, rows_of_batches, undisturbed, written


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset(written(tmp_path_factory.mktemp("sets") / "wiki", natural_shards(0)))


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset(written(tmp_path_factory.mktemp("sets") / "code", natural_shards(1), first_token=20_000))


@pytest.fixture(scope="module")
def maths(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset(written(tmp_path_factory.mktemp("sets") / "maths", natural_shards(2), first_token=40_000))


def state_after(plan: Plan, micro_steps: int, **settings: Any) -> dict[str, Any]:
    loader = Loader(plan, micro_batch=4, **settings)
    for _ in islice(loader, micro_steps):
        pass
    return loader.state_dict()


def resumed(plan: Plan, state: dict[str, Any]) -> Loader:
    loader = Loader(plan, micro_batch=4, format="numpy")
    loader.load_state_dict(state)
    return loader


@pytest.mark.parametrize("prefetch", [0, None, 2])
@pytest.mark.parametrize("micro_batch", [None, 1, 4])
def test_a_state_is_a_plan_and_a_number_of_rows_handed_out(
    wiki: Dataset, prefetch: int | None, micro_batch: int | None
) -> None:
    plan = Plan(wiki, seq_len=16, batch_size=8)
    loader = Loader(plan, world_size=2, rank=1, micro_batch=micro_batch, prefetch=prefetch)
    assert loader.state_dict() == {"plan": plan.fingerprint, "rows": 0}
    for number, _ in enumerate(loader, 1):
        rows = min(number * 2 * (micro_batch or 1), plan.num_rows)
        assert loader.state_dict() == {"plan": plan.fingerprint, "rows": rows}
    assert loader.state_dict()["rows"] == plan.num_rows


def test_a_state_survives_json_and_pickle_and_waits_until_it_is_used(wiki: Dataset) -> None:
    plan = Plan(wiki, seq_len=16, batch_size=8)
    state = state_after(plan, 3)
    assert json.loads(json.dumps(state)) == state
    loader = resumed(plan, pickle.loads(pickle.dumps(state)))
    assert loader.state_dict() == state


CHANGES: dict[str, Callable[[Plan], Plan]] = {
    "seq_len was 16, is 8": lambda plan: replace(plan, seq_len=8),
    "batch_size was 8, is 4": lambda plan: replace(plan, batch_size=4),
    "seed was 0, is 1": lambda plan: replace(plan, seed=1),
    "rows was chunk, is best_fit": lambda plan: replace(plan, rows="best_fit"),
    "shuffle was True, is False": lambda plan: replace(plan, shuffle=False),
    "window_tokens was not set, is 200": lambda plan: replace(plan, window_tokens=200),
}


@pytest.mark.parametrize("said", CHANGES)
def test_a_state_of_another_plan_is_refused_and_the_setting_named(wiki: Dataset, said: str) -> None:
    plan = Plan(wiki, seq_len=16, batch_size=8)
    other = CHANGES[said](plan)
    state = state_after(plan, 4)
    with pytest.raises(ConfigError, match="another plan") as refused:
        resumed(other, state)
    assert said in str(refused.value)
    before, _, after = said.partition(" was ")[2].partition(", is ")
    name = said.partition(" was ")[0]
    with pytest.raises(ConfigError, match=f"{name} was {after}, is {before}"):
        resumed(plan, state_after(other, 4))


def test_how_long_documents_are_treated_matters_where_documents_are_packed(wiki: Dataset) -> None:
    packed = Plan(wiki, seq_len=16, batch_size=8, rows="best_fit")
    with pytest.raises(ConfigError, match="long_documents was split, is truncate"):
        resumed(replace(packed, long_documents="truncate"), state_after(packed, 1))
    cut = Plan(wiki, seq_len=16, batch_size=8)
    assert resumed(replace(cut, long_documents="truncate"), state_after(cut, 1)).state_dict()["rows"] == 4


def test_a_state_of_other_data_is_refused_and_the_data_named(wiki: Dataset, code: Dataset, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"seq_len": 16, "batch_size": 8}
    state = state_after(Plan(wiki, **settings), 2)
    with pytest.raises(ConfigError, match="the data was") as refused:
        resumed(Plan(code, **settings), state)
    assert "code" in str(refused.value)
    assert wiki.fingerprint in str(refused.value)
    # The same bytes somewhere else are the same data.
    copy = Dataset(written(tmp_path / "elsewhere", natural_shards(0)))
    assert resumed(Plan(copy, **settings), state).state_dict()["rows"] == 8


def test_weights_and_caps_that_differ_from_the_start_are_refused(wiki: Dataset, code: Dataset) -> None:
    settings: dict[str, Any] = {"seq_len": 16, "batch_size": 8, "max_steps": 5}
    state = state_after(Plan(Mixture({wiki: 0.5, code: 0.5}), **settings), 2)
    with pytest.raises(ConfigError, match=r"wiki .*code .*\*0\.25"):
        resumed(Plan(Mixture({wiki: 0.25, code: 0.75}), **settings), state)
    with pytest.raises(ConfigError, match="max_epochs was not set"):
        resumed(Plan(Mixture({wiki: 0.5, code: 0.5}, max_epochs=9, block=4), **settings), state)
    with pytest.raises(ConfigError, match="block was not set, is 4"):
        resumed(Plan(Mixture({wiki: 0.5, code: 0.5}, block=4), **settings), state)


@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
def test_states_from_before_a_change_ahead_are_accepted(
    wiki: Dataset, code: Dataset, maths: Dataset, kind: Any
) -> None:
    settings: dict[str, Any] = {"seq_len": 16, "batch_size": 8, "rows": kind}
    mixture = Mixture({wiki: 0.5, code: 0.5}, block=8)
    plan = Plan(mixture, **settings, max_steps=4)
    state = state_after(plan, 4)
    assert state["rows"] == 16
    changed = mixture.changed(from_row=16, weights={wiki: 0.5, maths: 0.5})
    twice = changed.changed(from_row=24, weights={maths: 1.0})
    for successor in (
        replace(plan, data=changed),
        replace(plan, data=twice),
        replace(plan, max_steps=9),
        plan.with_skip((16, 20)),
        replace(plan, data=twice, max_steps=9).with_skip((17, 30), (40, 41)),
    ):
        loader = resumed(successor, state)
        first = rows_of_batches(islice(Loader(plan, micro_batch=4, format="numpy"), 4))
        rest = rows_of_batches(loader)
        assert first | rest == undisturbed(successor)
        assert not first.keys() & rest.keys()


def test_changes_behind_a_state_are_refused(wiki: Dataset, code: Dataset) -> None:
    mixture = Mixture({wiki: 0.5, code: 0.5}, block=8)
    plan = Plan(mixture, seq_len=16, batch_size=8, max_steps=4)
    state = state_after(plan, 4)
    with pytest.raises(ConfigError, match="the data was"):
        resumed(replace(plan, data=mixture.changed(from_row=15, weights={wiki: 1.0})), state)
    with pytest.raises(ConfigError, match="skip was not set, is 15-17"):
        resumed(plan.with_skip((15, 17)), state)
    skipped = plan.with_skip((3, 5))
    with pytest.raises(ConfigError, match="skip was 3-5, is not set"):
        resumed(plan, state_after(skipped, 4))
    assert resumed(skipped.with_skip((30, 31)), state_after(skipped, 4)).state_dict()["rows"] == 16


def test_a_state_further_on_than_the_plan_goes_is_refused(wiki: Dataset) -> None:
    plan = Plan(wiki, seq_len=16, batch_size=8, epochs=2)
    state = {"plan": plan.fingerprint, "rows": plan.num_rows}
    assert list(resumed(plan, state)) == []
    with pytest.raises(ConfigError, match="this state is at row"):
        resumed(replace(plan, epochs=1), state)


NO_STATES: list[Any] = [
    *({}, {"plan": "x"}, {"rows": 3}, None, [], 7, {"plan": 3, "rows": 3}, {"plan": "x", "rows": "3"}),
    *({"plan": "x", "rows": -1}, {"plan": "x", "rows": 1.5}, {"plan": "", "rows": 0}),
]


@pytest.mark.parametrize("state", NO_STATES)
def test_something_that_is_no_state_is_refused(wiki: Dataset, state: Any) -> None:
    with pytest.raises(ConfigError, match="state"):
        resumed(Plan(wiki, seq_len=16, batch_size=8), state)


@given(st.data())
@settings(max_examples=150)
def test_a_damaged_state_is_refused_and_never_crashes(wiki: Dataset, data: st.DataObject) -> None:
    plan = Plan(wiki, seq_len=16, batch_size=8, skip=((20, 22),))
    name, value = data.draw(st.sampled_from([part.partition("=")[::2] for part in plan.fingerprint.split("|")[1:]]))
    other = data.draw(st.sampled_from(["", "x", "-1", "1-", "7:", ";", "a-b,c"]) | st.text(max_size=4))
    damaged = plan.fingerprint.replace(f"{name}={value}", f"{name}={other}")
    if name not in ("epochs", "max_steps") and other != value:
        with pytest.raises(ConfigError, match="another plan"):
            resumed(plan, {"plan": damaged, "rows": 24})


def test_plans_are_equal_by_what_they_say_and_travel_to_other_processes(wiki: Dataset, code: Dataset) -> None:
    for plan in (
        Plan(wiki, seq_len=16, batch_size=8, rows="best_fit", skip=((1, 2),)),
        Plan(Mixture({wiki: 0.5, code: 0.5}, max_epochs={code: 1}), seq_len=16, batch_size=8, max_steps=3),
    ):
        other = pickle.loads(pickle.dumps(plan))
        assert other == plan
        assert hash(other) == hash(plan)
        assert undisturbed(other) == undisturbed(plan)
        assert replace(plan, seed=5) != plan


def test_a_dataset_that_changed_on_the_way_to_another_process_is_refused(tmp_path: Path) -> None:
    directory = written(tmp_path, [[10, 20]])
    data = pickle.dumps(Dataset(directory))
    written(tmp_path, [[10, 21]])
    with pytest.raises(DatasetError, match="is not the dataset it was"):
        pickle.loads(data)
