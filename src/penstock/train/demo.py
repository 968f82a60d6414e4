"""Everything at once, on text that every Python has on disk, in about two minutes on two cores.

Prepares, plans, trains, is killed in the middle, resumes on two ranks, checks that the rows go on exactly, writes a
text and leaves a page. Every part is the real command, run as a user would run it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.errors import PenstockError
from penstock.load.dataset import Dataset
from penstock.load.loader import Loader
from penstock.load.plan import Plan
from penstock.train.baseline import Baselines, baselines
from penstock.train.logs import LOG, read_log
from penstock.train.loop import row_check
from penstock.train.page import write_page

_NAME: Final = "demo"
_SHAPE: Final = {"vocab_size": 384, "max_seq_len": 128, "num_layers": 4, "num_heads": 4, "dim": 128}
_BATCH: Final = 16
_LOG_INTERVAL: Final = 10
_PROMPT: Final = "def "


class DemoFailed(PenstockError):
    """Something did not hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoConfig:
    """How long, and where."""

    out_dir: Path = Path("demo")
    """Where everything goes."""
    steps: int = 400
    """Of training."""


def demo(config: DemoConfig, say: Callable[[str], None]) -> dict[str, Any]:
    """Runs it all. What it returns was measured."""
    began = time.perf_counter()
    out = config.out_dir
    out.mkdir(parents=True, exist_ok=True)
    say("1. text that every Python has on disk → verified shards")
    _penstock("corpus", str(out / "corpus.jsonl"))
    words = ("--input_files", str(out / "corpus.jsonl"), "--out_dir", str(out / "dataset"), "--tokenization", "byte")
    _penstock("prepare", *words, "--tokens_per_shard", "8000000")
    _penstock("verify", str(out / "dataset"))
    say("\n2. what the run will be like")
    seq_len = str(_SHAPE["max_seq_len"])
    shape = ("--seq_len", seq_len, "--batch_size", str(_BATCH), "--rows", "best_fit")
    _penstock("plan", str(out / "dataset"), *shape, "--world_size", "2", "--max_steps", str(config.steps))

    say("\n3. training, and a kill -9 in the middle")
    (out / "shape.json").write_text(json.dumps(_SHAPE), "utf-8")
    killed = _trained_until(config, config.steps // 2, say)
    say(f"   killed at step {killed}\n\n4. the same command on two ranks")
    _follow(config, _train_words(config, ranks=2), say, since=killed)
    records = read_log(out / "runs" / _NAME / LOG)
    resumed = _resumed_at(records)
    say("\n5. are these the rows of a run that nobody disturbed?")
    plan = _plan(config)
    checked = _check_rows(plan, records)
    say(f"   yes: {checked:,} steps on 1 and 2 ranks took exactly the rows of the plan, in its order")

    say("\n6. what was learned")
    train, val = Dataset(out / "dataset"), Dataset(out / "dataset", "val")
    base = baselines(train, val)
    losses = [record["val_loss"] for record in records if record["kind"] == "val"]
    say(f"   nats a byte on val: unigram {base.unigram:.3f}, bigram {base.bigram:.3f}, the model {losses[-1]:.3f}")
    if losses[-1] >= base.bigram:
        raise DemoFailed(f"the model's loss of {losses[-1]:.3f} is not below the bigram's {base.bigram:.3f}")
    text = _sampled(config)
    say("\n" + "\n".join(f"   │ {line}" for line in text.splitlines()[:12]) + "\n")
    found = _numbers(plan, records, base, time.perf_counter() - began)
    write_page(
        out / "report.html",
        title="Penstock demo",
        records=records,
        plan=plan,
        lines=[("unigram", base.unigram), ("bigram", base.bigram)],
        resumed_at=[resumed],
        numbers=[(name, f"{value:,.4g}" if isinstance(value, float) else str(value)) for name, value in found.items()],
        sample=text,
    )
    say(f"7. {out / 'report.html'} has the curve, the rows and the numbers ({found['seconds']:.0f} s in all)")
    return found


def _penstock(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "penstock", *words], check=False)
    if done.returncode:
        raise DemoFailed(f"penstock {words[0]} failed with code {done.returncode}")


def _train_words(config: DemoConfig, *, ranks: int) -> list[str]:
    out = config.out_dir
    start = [sys.executable, "-m"]
    if ranks > 1:
        start += ["torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks), "-m"]
    words = {
        "model_name": _NAME,
        "dataset_dir": out / "dataset",
        "runs_dir": out / "runs",
        "config_file": out / "shape.json",
        "rows": "best_fit",
        "batch_size": _BATCH,
        "max_iters": config.steps,
        "lr": 3e-3,
        "warmup": 0.05,
        "eval_interval": max(1, config.steps // 4),
        "eval_rows": 256,
        "save_interval": max(1, config.steps // 8),
        "log_interval": _LOG_INTERVAL,
        "device": "cpu",
    }
    return [*start, "penstock", "train", *(word for name, value in words.items() for word in (f"--{name}", str(value)))]


def _environment() -> dict[str, str]:
    # Two ranks on two cores: more threads would only wait for each other.
    return os.environ | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def _started(words: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(words, env=_environment(), stdout=subprocess.DEVNULL, start_new_session=True)


def _trained_until(config: DemoConfig, step: int, say: Callable[[str], None]) -> int:
    """Starts training and kills it, outright, once it is past `step` and a checkpoint."""
    process = _started(_train_words(config, ranks=1))
    try:
        last = _watch(config, process, say, until=step)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return last


def _follow(config: DemoConfig, words: list[str], say: Callable[[str], None], *, since: int) -> None:
    process = _started(words)
    try:
        _watch(config, process, say, until=config.steps, since=since)
        code = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if code:
        raise DemoFailed(f"training ended with code {code}")


def _watch(
    config: DemoConfig,
    process: "subprocess.Popen[bytes]",
    say: Callable[[str], None],
    *,
    until: int,
    since: int = -1,
) -> int:
    """Prints the log as it grows, until it reaches a step or the process ends. The last step that it saw."""
    path = config.out_dir / "runs" / _NAME / LOG
    seen = path.stat().st_size if path.exists() else 0
    last = since
    while True:
        ended = process.poll() is not None
        with open(path, "rb") if path.exists() else open(os.devnull, "rb") as file:
            file.seek(seen)
            lines = file.read().split(b"\n")
        seen += sum(len(line) + 1 for line in lines[:-1])
        for line in lines[:-1]:
            record = json.loads(line)
            last = record["step"]
            if record["kind"] == "val":
                say(f"   step {last:>4} · val loss {record['val_loss']:.3f}")
            elif last % (4 * _LOG_INTERVAL) == 0:
                ranks = f"{record['ranks']} rank{'s' if record['ranks'] > 1 else ''}"
                say(f"   step {last:>4} · loss {record['loss']:.3f} · {record['tokens_per_s']:,.0f} tokens/s · {ranks}")
        if ended or last >= until:
            if ended and process.returncode and last < until:
                raise DemoFailed(f"training ended with code {process.returncode} at step {last}")
            return last
        time.sleep(0.1)


def _plan(config: DemoConfig) -> Plan:
    from penstock.train.config import TrainConfig
    from penstock.train.data import RunData, train_plan

    wanted = TrainConfig(
        model_name=_NAME,
        dataset_dir=config.out_dir / "dataset",
        rows="best_fit",
        batch_size=_BATCH,
        max_iters=config.steps,
    )
    return train_plan(wanted, RunData(Dataset(config.out_dir / "dataset"), None), int(_SHAPE["max_seq_len"]))


def _resumed_at(records: list[dict[str, Any]]) -> int:
    """The first step that two ranks took."""
    return int(min(record["since"] for record in records if record.get("ranks") == 2))


def _check_rows(plan: Plan, records: list[dict[str, Any]]) -> int:
    """Compares which rows each stretch of the log saw with the plan. How many steps were compared."""
    steps = 0
    for record in records:
        if record["kind"] != "train":
            continue
        first = record["since"]
        places = np.arange(first * plan.batch_size, min(record["step"] * plan.batch_size, plan.num_rows))
        if row_check(plan.schedule.numbered(places)) != record["row_check"]:
            raise DemoFailed(f"steps {first} to {record['step']} took other rows than the plan's")
        steps += record["step"] - first
    return steps


def _sampled(config: DemoConfig) -> str:
    from penstock.train.generate import sampled, trained_model

    return sampled(trained_model(_NAME, runs_dir=config.out_dir / "runs"), _PROMPT, max_tokens=300, seed=1)


def _numbers(plan: Plan, records: list[dict[str, Any]], base: Baselines, seconds: float) -> dict[str, Any]:
    train = [record for record in records if record["kind"] == "train"]
    losses = [record["val_loss"] for record in records if record["kind"] == "val"]
    began, rows = time.perf_counter(), 0
    for batch in Loader(plan, micro_batch=plan.batch_size):
        _ = batch.input_ids, batch.labels
        rows += plan.batch_size
    ceiling = rows * plan.seq_len / (time.perf_counter() - began)
    speed = [float(np.median([r["tokens_per_s"] for r in train if r["ranks"] == ranks] or [0])) for ranks in (1, 2)]
    return {
        "steps": train[-1]["step"],
        "rows": plan.num_rows,
        "tokens/s, one rank": speed[0],
        "tokens/s, two ranks": speed[1],
        "tokens/s, the loader alone": ceiling,
        "waiting for data, share of the time": float(np.median([record["data_stall"] for record in train])),
        "val loss": losses[-1],
        "unigram": base.unigram,
        "bigram": base.bigram,
        "seconds": seconds,
    }
