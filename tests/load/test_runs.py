"""Runs that are interrupted, resumed by others and edited on the way see exactly the rows of their plan."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.load.dataset import Dataset
from penstock.load.loader import Loader
from penstock.load.mixture import Mixture
from penstock.load.plan import Plan, RowKind

from .builders import contents, divisors, every_token, natural_shards, tokens_in, undisturbed, written

KINDS = st.sampled_from(["chunk", "best_fit"])
SEEDS = st.integers(0, 2**32)


@dataclass
class Run:
    """A run as its checkpoints know it."""

    plan: Plan
    chance: Random
    state: dict[str, Any] | None = None
    seen: Counter[int] = field(default_factory=Counter)
    contents: dict[int, bytes] = field(default_factory=dict)
    over: bool = False

    def loaders(self) -> Iterator[Loader]:
        """One for each rank of a crew of any size, as after a restart."""
        size = self.plan.batch_size
        world_size = self.chance.choice(divisors(size))
        micro_batch = self.chance.choice(divisors(size // world_size))
        prefetch = self.chance.choice([0, 0, None, 1])
        for rank in range(world_size):
            loader = Loader(
                self.plan,
                rank=rank,
                world_size=world_size,
                micro_batch=micro_batch,
                format=self.chance.choice(["numpy", "torch"]),
                prefetch=prefetch,
            )
            if self.state is not None:
                loader.load_state_dict(self.state)
            yield loader

    def go_on(self) -> None:
        """A crew does some micro-steps, saves after one of them, and dies after that one or a later one."""
        saved_after = self.chance.randint(0, 12)
        died_after = saved_after + self.chance.choice([0, 0, 1, 5])
        states: list[Any] = []
        num_batches: list[int] = []
        for loader in self.loaders():
            state, count, cursor = loader.state_dict(), 0, loader.state_dict()["rows"]
            for batch in islice(loader, died_after):
                count += 1
                assert batch.cursor > cursor or (batch.rows == -1).all()
                cursor = batch.cursor
                if count <= saved_after:
                    self._saw(contents(batch))
                    state = loader.state_dict()
                    assert state == {"plan": self.plan.fingerprint, "rows": batch.cursor}
            states.append(state)
            num_batches.append(count)
        assert len(set(num_batches)) == 1, "ranks take a different number of steps"
        assert all(state == states[0] for state in states), "ranks disagree on where they are"
        self.state = states[0]
        self.over = states[0]["rows"] == self.plan.num_rows

    def _saw(self, rows: list[tuple[int, bytes]]) -> None:
        for number, content in rows:
            if number >= 0:
                self.seen[number] += 1
                self.contents[number] = content

    @property
    def at_row(self) -> int:
        """The first row that the next step cannot have touched yet."""
        behind = 0 if self.state is None else self.state["rows"]
        step_end = -(-behind // self.plan.batch_size) * self.plan.batch_size
        if step_end >= self.plan.num_rows:
            return self.plan.num_rows + self.plan.schedule.num_skipped
        return int(self.plan.schedule.numbered(np.array([step_end]))[0])

    def check(self) -> None:
        """What was seen is what the plan says, and as one rank that nothing disturbs sees it."""
        rows = self.plan.schedule.numbered(np.arange(self.plan.num_rows)).tolist()
        assert self.seen == Counter(rows)
        assert self.contents == undisturbed(self.plan)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[Dataset]:
    """Three of them, with different tokens."""
    made = []
    for number in range(3):
        shards = natural_shards(number, num_documents=40 + 30 * number)
        made.append(Dataset(written(tmp_path_factory.mktemp("set"), shards, first_token=1 + 20_000 * number)))
    return made


@given(kind=KINDS, epochs=st.sampled_from([1, 2, 1.6]), seed=SEEDS, batch_size=st.sampled_from([4, 12, 24]))
@settings(max_examples=60)
def test_crews_that_come_and_go_see_every_row_once_and_as_one_rank_does(
    datasets: list[Dataset], kind: RowKind, epochs: float, seed: int, batch_size: int
) -> None:
    plan = Plan(datasets[0], seq_len=16, batch_size=batch_size, rows=kind, epochs=epochs, seed=seed)
    run = Run(plan, Random(seed))
    while not run.over:
        run.go_on()
    run.check()


@given(kind=KINDS, seed=SEEDS)
@settings(max_examples=30)
def test_a_run_in_windows_of_shards_sees_every_token_once(datasets: list[Dataset], kind: RowKind, seed: int) -> None:
    window = 200 if kind == "chunk" else None
    plan = Plan(datasets[1], seq_len=8, batch_size=12, rows=kind, window_tokens=window, seed=seed)
    run = Run(plan, Random(seed))
    while not run.over:
        run.go_on()
    run.check()
    width = plan.seq_len * 8
    ids = np.frombuffer(b"".join(content[:width] for content in run.contents.values()), np.int64)
    assert tokens_in(ids) == every_token(datasets[1])


@given(kind=KINDS, seed=SEEDS)
@settings(max_examples=50)
def test_rows_skipped_and_epochs_added_later_leave_the_rest_alone(
    datasets: list[Dataset], kind: RowKind, seed: int
) -> None:
    chance = Random(seed)
    plan = Plan(datasets[0], seq_len=16, batch_size=12, rows=kind, seed=seed % 7, epochs=2)
    whole = undisturbed(plan)
    run = Run(plan, chance)
    for _ in range(1000):
        run.go_on()
        if run.over:
            break
        last = run.plan.num_rows + run.plan.schedule.num_skipped
        if chance.random() < 0.4 and run.at_row < last - 1:
            start = chance.randint(run.at_row, last - 1)
            run.plan = run.plan.with_skip((start, min(last, start + chance.randint(1, 9))))
    run.check()
    assert all(whole[number] == content for number, content in run.contents.items()), "a skip moved other rows"


@given(seed=SEEDS, kind=KINDS, aligned=st.booleans())
@settings(max_examples=50)
def test_weights_changed_ahead_of_the_run_repeat_and_lose_nothing(
    datasets: list[Dataset], seed: int, kind: RowKind, aligned: bool
) -> None:
    chance = Random(seed)
    one, other, third = datasets
    block = 10
    mixture = Mixture({one: 0.5, other: 0.5}, block=block)
    plan = Plan(mixture, seq_len=8, batch_size=12, rows=kind, seed=seed % 5, max_steps=6)
    run = Run(plan, chance)
    num_changes = 0
    while not run.over:
        run.go_on()
        if num_changes < 2 and run.at_row < 50 and chance.random() < 0.5:
            row = max(run.at_row, mixture.changes[-1].from_row + 1) + chance.randint(0, 5)
            row = -(-row // block) * block if aligned else row
            weights = {one: 0.5, third: 0.5} if num_changes == 0 else {one: 0.2, other: 0.4, third: 0.4}
            mixture = mixture.changed(from_row=row, weights=weights)
            run.plan = replace(run.plan, data=mixture)
            num_changes += 1
    run.check()
    # None of the three is seen a second time in so few rows: no token may be.
    assert all(share <= 1 for share in run.plan.epochs_seen())
    width = plan.seq_len * 8
    ids = np.frombuffer(b"".join(content[:width] for content in run.contents.values()), np.int64)
    assert set(tokens_in(ids).values()) == {1}, "a row of a source came twice"


def edited(plan: Plan, change: str, *, at: int, third: Dataset) -> Plan:
    if change == "skip":
        return plan.with_skip((at, min(at + 5, plan.num_rows)))
    if change == "epochs":
        return replace(plan, epochs=2)
    assert isinstance(plan.data, Mixture)
    return replace(plan, data=plan.data.changed(from_row=at, weights={plan.datasets[0]: 0.5, third: 0.5}))


@pytest.mark.parametrize("change", ["skip", "weights", "epochs"])
@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
def test_an_edit_of_the_step_that_a_run_is_in_is_exact_or_refused(
    datasets: list[Dataset], kind: RowKind, change: str
) -> None:
    """The rows of a step are taken dearest first: a change of its rows must not mix up those that were taken."""
    data = Mixture({datasets[0]: 0.5, datasets[1]: 0.5}, block=6) if change == "weights" else datasets[0]
    plan = Plan(data, seq_len=24, batch_size=10, rows=kind, max_steps=2 if change == "weights" else None)
    assert change != "epochs" or plan.num_rows % 10, "the last step has to be a short one"
    accepted = 0
    for micro_steps in range(1, len(Loader(plan, micro_batch=2)) + 1):
        seen: Counter[int] = Counter()
        loader = Loader(plan, micro_batch=2, format="numpy", prefetch=0)
        for batch in islice(loader, micro_steps):
            seen.update(batch.rows.tolist())
        state = loader.state_dict()
        for at in range(state["rows"], min(state["rows"] + 11, plan.num_rows - 1)) if change != "epochs" else [0]:
            later = edited(plan, change, at=at, third=datasets[2])
            successor = Loader(later, micro_batch=2, format="numpy", prefetch=0)
            try:
                successor.load_state_dict(state)
            except ConfigError as error:
                assert "another plan" in str(error) or "step" in str(error)
                assert state["rows"] % 10, "an edit ahead of a finished step was refused"
                continue
            accepted += 1
            rows = seen.copy()
            for batch in successor:
                rows.update(batch.rows.tolist())
            del rows[-1]
            assert rows == Counter(later.schedule.numbered(np.arange(later.num_rows)).tolist()), (micro_steps, at)
    assert accepted


def test_a_second_and_a_third_resumption_are_as_good_as_the_first(datasets: list[Dataset]) -> None:
    plan = Plan(datasets[2], seq_len=16, batch_size=8, rows="best_fit")
    rows: list[int] = []
    state: dict[str, Any] | None = None
    for _ in range(plan.num_rows + 1):
        loader = Loader(plan, micro_batch=2, format="numpy")
        if state is not None:
            loader.load_state_dict(state)
        for batch in islice(loader, 1):
            rows += batch.rows.tolist()
        state = loader.state_dict()
    uninterrupted = [row for batch in Loader(plan, micro_batch=2) for row in batch.rows.tolist()]
    # Once every row is behind, nobody comes back for the fillers.
    assert [row for row in rows if row >= 0] == [row for row in uninterrupted if row >= 0]


def test_an_iteration_after_the_resumed_one_starts_at_the_beginning(datasets: list[Dataset]) -> None:
    plan = Plan(datasets[0], seq_len=16, batch_size=4)
    loader = Loader(plan, micro_batch=4)
    everything = [batch.rows.tolist() for batch in loader]
    loader.load_state_dict({"plan": plan.fingerprint, "rows": 8})
    assert [batch.rows.tolist() for batch in loader] == everything[2:]
    assert [batch.rows.tolist() for batch in loader] == everything
    assert loader.state_dict()["rows"] == plan.num_rows
    loader.load_state_dict(loader.state_dict())
    assert list(loader) == []
