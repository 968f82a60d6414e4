"""Whether a run can go on from a state, and if not, why.

A state belongs to a plan. One of an earlier version of the same plan will do, as long as what was changed since lies
ahead of it: other weights from a later row on, rows skipped further on, more epochs or steps.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from penstock.errors import ConfigError
from penstock.load.plan import Plan, parsed_range


def checked_cursor(plan: Plan, state: dict[str, Any]) -> int:
    """How many rows are behind, according to `state`."""
    try:
        other, rows = state["plan"], state["rows"]
    except (KeyError, TypeError) as error:
        raise ConfigError("a loader's state has 'plan' and 'rows'; this is something else") from error
    if not isinstance(other, str) or not isinstance(rows, int) or rows < 0:
        raise ConfigError(f"a loader's state has a plan and a number of rows, got {other!r:.80} and {rows!r:.80}")
    if other != plan.fingerprint:
        differences = _differences(plan, parsed_fingerprint(other), rows)
        if differences:
            raise ConfigError("this state is that of another plan: " + "; ".join(differences))
    if rows > plan.num_rows:
        raise ConfigError(f"this state is at row {rows:,}, the plan has {plan.num_rows:,}")
    return rows


def parsed_fingerprint(fingerprint: str) -> dict[str, str]:
    """The settings that a plan's fingerprint speaks of."""
    return dict(part.partition("=")[::2] for part in fingerprint.split("|")[1:])


def _differences(plan: Plan, before: dict[str, str], rows: int) -> list[str]:
    found: list[str] = []
    now = plan.settings
    row = _first_untouched(plan, rows)
    for name in sorted({*before, *now}, key=[*now, *before].index):
        old, new = before.get(name, ""), now.get(name, "")
        if old == new:
            continue
        if name in ("epochs", "max_steps"):
            if _same_step(plan, before, rows):
                continue
            found.append(_said(plan, name, old, new) + ", and the run is inside the step in which it ended")
            continue
        if name == "data" and _grew(old, new, row):
            continue
        if name == "skip" and _skips_before(old, row) == _skips_before(new, row):
            continue
        found.append(_said(plan, name, old, new))
    return found


def _settled(plan: Plan, rows: int) -> int:
    """The place up to which a run of `rows` rows depends on the plan: rows of unequal cost are taken step by step."""
    if not plan.schedule.costs_differ:
        return rows
    return min(-(-rows // plan.batch_size) * plan.batch_size, plan.num_rows)


def _first_untouched(plan: Plan, rows: int) -> int:
    """The first row that may be changed."""
    place = _settled(plan, rows)
    if plan.schedule.costs_differ and rows % plan.batch_size and place == plan.num_rows:
        # A step that is cut short might be cut short by what was skipped.
        return plan.num_rows + plan.schedule.num_skipped
    return int(plan.schedule.numbered(np.array([place - 1]))[0]) + 1 if place else 0


def _same_step(plan: Plan, before: dict[str, str], rows: int) -> bool:
    """Whether the step that the run is in has the rows that it had when the plan was shorter or longer."""
    epochs, max_steps = float(before.get("epochs", "1")), before.get("max_steps")
    skip = tuple(parsed_range(word) for word in before.get("skip", "").split(",") if word)
    ended = replace(plan, epochs=epochs, max_steps=int(max_steps) if max_steps else None, skip=skip)
    return _settled(ended, rows) == _settled(plan, rows)


def _grew(old: str, new: str, row: int) -> bool:
    """Whether a mixture only changed from a row on that is still ahead."""
    if not new.startswith(old + ";"):
        return False
    return int(new[len(old) + 1 :].partition(":")[0]) >= row


def _skips_before(skip: str, row: int) -> set[str]:
    starts = {one: one.partition("-")[0] for one in skip.split(",") if one}
    return {one for one, start in starts.items() if not start.isdecimal() or int(start) < row}


def _said(plan: Plan, name: str, old: str, new: str) -> str:
    if name != "data":
        return f"{name} was {old or 'not set'}, is {new or 'not set'}"
    names = {dataset.fingerprint: f"{dataset.name} ({dataset.fingerprint})" for dataset in plan.datasets}
    for fingerprint, said in names.items():
        old, new = old.replace(fingerprint, said), new.replace(fingerprint, said)
    return f"the data was {old}, is {new}"
