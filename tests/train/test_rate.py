"""The learning rate rises, stays or falls, and ends where it should."""

import pytest

from penstock.train.config import TrainConfig
from penstock.train.rate import learning_rate


def config(**settings: object) -> TrainConfig:
    return TrainConfig(**{"model_name": "run", "dataset_dir": "data", "lr": 2.0, "min_lr": 0.25, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_the_rate_rises_in_a_straight_line_and_ends_at_its_share(schedule: str) -> None:
    settings = config(schedule=schedule, warmup=0.1)
    assert learning_rate(settings, 0.0) == 0.0
    assert learning_rate(settings, 0.025) == pytest.approx(0.5)
    assert learning_rate(settings, 0.05) == pytest.approx(1.0)
    assert learning_rate(settings, 0.1) == pytest.approx(2.0)
    assert learning_rate(settings, 1.0) == pytest.approx(0.5)


def test_a_cosine_is_half_way_down_in_the_middle_and_never_rises_again() -> None:
    settings = config(schedule="cosine", warmup=0.2)
    assert learning_rate(settings, 0.6) == pytest.approx((2.0 + 0.5) / 2)
    rates = [learning_rate(settings, 0.2 + 0.8 * step / 100) for step in range(101)]
    assert rates == sorted(rates, reverse=True)


def test_wsd_is_stable_and_then_falls_straight_down() -> None:
    settings = config(schedule="wsd", warmup=0.1, decay=0.2)
    assert {learning_rate(settings, done) for done in (0.1, 0.3, 0.5, 0.79)} == {2.0}
    assert learning_rate(settings, 0.9) == pytest.approx((2.0 + 0.5) / 2)
    assert learning_rate(settings, 0.95) == pytest.approx(0.5 + 1.5 / 4)


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_a_run_without_warmup_starts_at_the_top(schedule: str) -> None:
    assert learning_rate(config(schedule=schedule, warmup=0.0), 0.0) == 2.0


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
@pytest.mark.parametrize(("warmup", "decay"), [(1.0, 0.2), (0.0, 0.0), (0.0, 1.0), (0.5, 0.5)])
def test_the_rate_stays_in_its_bounds_at_the_edges(schedule: str, warmup: float, decay: float) -> None:
    settings = config(schedule=schedule, warmup=warmup, decay=decay)
    assert all(0.0 <= learning_rate(settings, done / 100) <= 2.0 for done in range(-1, 103))


def test_a_rate_depends_on_the_share_that_is_done_and_not_on_the_steps() -> None:
    assert learning_rate(config(max_iters=10, batch_size=64), 0.3) == learning_rate(config(max_iters=640), 0.3)
