"""A run as one HTML page: its curve, its rows, its numbers. Self-contained: no script, no network, no library."""

import html
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.load.loader import Loader
from penstock.load.plan import Plan

_WIDTH, _HEIGHT, _MARGIN = 860, 320, 46
_COLOURS: Final = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#e15759")
_LOOKED_AT: Final = 256
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2em auto; color: #222; }
h1 { font-size: 1.5em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; } td { padding: .15em 1.2em .15em 0; } td:last-child { text-align: right; }
pre { background: #f6f6f4; padding: 1em; white-space: pre-wrap; } svg { background: #fafafa; }
"""


def write_page(
    path: Path,
    *,
    title: str,
    records: Sequence[dict[str, Any]],
    plan: Plan,
    lines: Sequence[tuple[str, float]] = (),
    resumed_at: Sequence[int] = (),
    numbers: Sequence[tuple[str, str]] = (),
    sample: str = "",
) -> None:
    """Writes the page. `lines` are named levels to compare the curve with, `resumed_at` steps to mark."""
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        "<h2>Loss</h2>",
        loss_curve(records, lines=lines, resumed_at=resumed_at),
        "<h2>Rows</h2>",
        "<p>Of the first rows, those that most documents share. Each colour is a document; white is padding.</p>",
        packed_rows(plan),
        "<h2>Numbers</h2>",
        "<table>"
        + "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>" for name, value in numbers)
        + "</table>",
    ]
    if sample:
        parts += ["<h2>What it writes</h2>", f"<pre>{html.escape(sample)}</pre>"]
    body = "\n".join(parts)
    page = f"<!doctype html><meta charset='utf-8'><title>{html.escape(title)}</title><style>{_STYLE}</style>\n{body}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, "utf-8")


def loss_curve(
    records: Sequence[dict[str, Any]], *, lines: Sequence[tuple[str, float]] = (), resumed_at: Sequence[int] = ()
) -> str:
    """Training and validation loss by step, as SVG."""
    train = [(record["step"], record["loss"]) for record in records if record["kind"] == "train"]
    val = [(record["step"], record["val_loss"]) for record in records if record["kind"] == "val"]
    points = [*train, *val]
    if not points:
        return "<p>No steps yet.</p>"
    levels = [value for _, value in points] + [value for _, value in lines]
    last, low, high = float(max(step for step, _ in points)), float(min(levels)), float(max(levels))
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low) + 1e-9

    def x(step: float) -> float:
        return _MARGIN + (_WIDTH - 2 * _MARGIN) * step / last

    def y(value: float) -> float:
        return _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * (value - low) / (high - low)

    def path_of(some: Sequence[tuple[float, float]], colour: str) -> str:
        drawn = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in some)
        return f"<polyline points='{drawn}' fill='none' stroke='{colour}' stroke-width='2'/>"

    def said(at: float, height: float, text: str, colour: str = "#666", anchor: str = "start") -> str:
        place = f"x='{at:.0f}' y='{height:.0f}' text-anchor='{anchor}'"
        return f"<text {place} font-size='12' fill='{colour}'>{html.escape(text)}</text>"

    parts = [f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img' aria-label='loss by step'>"]
    for value in np.linspace(low, high, 5).tolist():
        parts.append(
            f"<line x1='{_MARGIN}' x2='{_WIDTH - _MARGIN}' y1='{y(value):.1f}' y2='{y(value):.1f}' stroke='#eee'/>"
        )
        parts.append(said(_MARGIN - 6, y(value) + 4, f"{value:.2f}", anchor="end"))
    for name, value in lines:
        dashes = "stroke='#999' stroke-dasharray='5 4'"
        parts.append(f"<line x1='{_MARGIN}' x2='{_WIDTH - _MARGIN}' y1='{y(value):.1f}' y2='{y(value):.1f}' {dashes}/>")
        parts.append(said(_WIDTH - _MARGIN, y(value) - 5, f"{name} {value:.2f}", anchor="end"))
    for step in resumed_at:
        place = f"x1='{x(step):.1f}' x2='{x(step):.1f}' y1='{_MARGIN}' y2='{_HEIGHT - _MARGIN}'"
        parts.append(f"<line {place} stroke='#e15759' stroke-dasharray='3 3'/>")
        parts.append(said(x(step) + 5, _MARGIN + 4, f"killed; resumed at step {step:,}", "#e15759"))
    parts += [path_of(train, _COLOURS[0]), path_of(val, _COLOURS[1])]
    parts.append(said(_MARGIN, _HEIGHT - 12, f"step 0 to {last:,.0f}"))
    parts.append(said(_WIDTH - _MARGIN, _HEIGHT - 12, "training", _COLOURS[0], "end"))
    parts.append(said(_WIDTH - _MARGIN - 70, _HEIGHT - 12, "validation", _COLOURS[1], "end"))
    return "\n".join([*parts, "</svg>"])


def packed_rows(plan: Plan, *, most_rows: int = 12) -> str:
    """How documents share rows, as SVG: of the first rows of the run, the fullest of documents."""
    looked_at: list[NDArray[np.int64]] = []
    for batch in Loader(plan, micro_batch=plan.batch_size, format="numpy", prefetch=0):
        looked_at += list(batch.doc_ids)
        if len(looked_at) >= _LOOKED_AT:
            break
    documents = sorted(looked_at, key=lambda numbers: -len(np.unique(numbers)))[:most_rows]
    height, width = 20, _WIDTH
    parts = [f"<svg width='{width}' height='{height * len(documents)}' role='img' aria-label='rows'>"]
    for row, numbers in enumerate(documents):
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, stop in pairwise(cuts):
            number = int(numbers[start])
            colour = "#ffffff" if number < 0 else _COLOURS[number % len(_COLOURS)]
            x, wide = width * start / len(numbers), width * (stop - start) / len(numbers)
            what = "padding" if number < 0 else f"document {number:,}: {stop - start:,} tokens"
            parts.append(
                f"<rect x='{x:.1f}' y='{row * height + 1}' width='{max(1.0, wide - 1):.1f}' height='{height - 3}' "
                f"fill='{colour}'><title>{what}</title></rect>"
            )
    return "\n".join([*parts, "</svg>"])
