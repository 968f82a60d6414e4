"""Say what a run will be like before anything is spent on it: rows, steps, padding, balance, shuffling.

Example: penstock plan data/wiki data/code --mixture 0.7 0.3 --seq_len 2048 --batch_size 512 --world_size 8
"""

import json as json_module
import time
from dataclasses import dataclass
from typing import Any

from penstock.cli.plan_words import PlanWords, plan_of
from penstock.load.report import PlanReport, plan_report


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """The words of `penstock plan`."""

    plan: PlanWords
    world_size: int = 1
    """Ranks that share a step."""
    micro_batch: int | None = None
    """Rows that a rank takes at a time. Without it, its whole share of a step."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Arguments) -> int:
    """Prints the report."""
    began = time.perf_counter()
    plan = plan_of(arguments.plan)
    opened = time.perf_counter() - began
    # Rows are counted, and packed, when they are first asked for.
    _ = plan.num_rows
    planned = time.perf_counter() - began - opened
    report = plan_report(plan, world_size=arguments.world_size, micro_batch=arguments.micro_batch)
    if arguments.json:
        print(json_module.dumps(report.as_dict() | {"open_s": opened, "plan_s": planned}))
    else:
        print(readable(report, opened, planned))
    return 0


def readable(report: PlanReport, opened: float, planned: float) -> str:
    """The report for people."""
    lines: list[tuple[str, Any]] = [
        ("rows", f"{report.num_rows:,} of {report.seq_len:,} tokens ({report.rows})"),
        ("steps", f"{report.num_steps:,} of {report.batch_size:,} rows, {report.batch_size * report.seq_len:,} tokens"),
        ("tokens", f"{report.num_tokens:,}"),
        ("padding", f"{report.padding:.3%}"),
    ]
    if report.num_fillers:
        lines.append(("fillers", f"{report.num_fillers:,} rows without labels fill up the last step"))
    if report.num_skipped:
        lines.append(("skipped", f"{report.num_skipped:,} rows"))
    for source in report.sources:
        said = f"{source.share:.2%} of the rows, {source.epochs:.3g} epochs of {source.num_rows:,} rows"
        if source.num_split:
            said += f"; {source.num_split:,} documents are longer than a row"
        if source.num_lost_tokens:
            said += f", {source.num_lost_tokens:,} tokens cut off or dropped"
        lines.append((source.name, said))
    ranks = f"{report.world_size} rank{'s' if report.world_size > 1 else ''} × {report.micro_steps} micro-steps"
    lines += [
        ("ranks", f"{ranks} of {report.micro_batch} rows, the same number on every rank"),
        ("balance", f"slowest rank {report.balance:.3f} × the mean ({report.balance_as_it_comes:.3f} as rows come)"),
        ("shuffle", f"{report.shuffle:.3f} (1 is a full shuffle)"),
        ("memory", f"{report.table_bytes / 1e6:,.1f} MB of tables"),
        ("time", f"opened in {opened * 1e3:,.0f} ms, planned in {planned * 1e3:,.0f} ms"),
        ("plan", report.fingerprint.partition("|")[0]),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:>{width}}  {said}" for name, said in lines)
