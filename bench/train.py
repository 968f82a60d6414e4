"""How fast training is, from shards on disk through the loader, against the same model on random tensors already there.

Needs a GPU, torch and numpy, and a dataset: `python bench/train.py DIR` with `src` on PYTHONPATH. Prints a table and
writes bench/results/train.json.
"""

import argparse
import json
import platform
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from penstock.model.config import GPTConfig
from penstock.model.gpt import GPT
from penstock.train.config import TrainConfig
from penstock.train.logs import LOG, read_log
from penstock.train.loop import train

SHAPE: Final = GPTConfig(
    vocab_size=50_304, max_seq_len=1024, num_layers=12, num_heads=12, dim=768, activation="gelu", tied=True
)
"""GPT-2 124M."""
BATCH: Final = 64
BARS: Final = {"chunk": 560_000.0, "best_fit ÷ chunk": 0.9, "data stall": 0.005}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {platform.python_version()}", flush=True)
    found: dict[str, Any] = {"random tensors": {"tokens_per_s": on_random_tensors(arguments.steps)}}
    print(found, flush=True)
    for rows in ("chunk", "best_fit"):
        found[rows] = from_shards(arguments.dataset, rows, arguments.steps)
        print(rows, found[rows], flush=True)
    chunk, packed = found["chunk"], found["best_fit"]
    table = [
        ("random tensors on the device, tokens/s", found["random tensors"]["tokens_per_s"], None),
        ("chunk rows from shards, tokens/s", chunk["tokens_per_s"], BARS["chunk"]),
        ("data stall, share of the step", chunk["data_stall"], -BARS["data stall"]),
        ("best_fit rows, documents masked, tokens/s", packed["tokens_per_s"], None),
        ("best_fit ÷ chunk", packed["tokens_per_s"] / chunk["tokens_per_s"], BARS["best_fit ÷ chunk"]),
    ]
    for name, value, bar in table:
        met = "" if bar is None else ("met" if (value >= bar if bar > 0 else value <= -bar) else "NOT MET")
        print(f"{name:<45} {value:>14,.4f}  {'' if bar is None else abs(bar):>10}  {met}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "numpy": np.__version__}
    (arguments.out / "train.json").write_text(json.dumps({"about": about, "found": found}, indent=1))


def on_random_tensors(num_steps: int) -> float:
    """Forward, backward and AdamW on one batch that never changes."""
    torch.set_float32_matmul_precision("high")
    model = GPT(SHAPE).cuda()
    model.initialize(None)
    model.compile(dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(0, 50_000, (BATCH, SHAPE.max_seq_len), device="cuda")
    for step in range(num_steps):
        if step == num_steps // 4:
            torch.cuda.synchronize()
            began = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(ids, ids)
        (loss / ids.numel()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    return (num_steps - num_steps // 4) * ids.numel() / (time.perf_counter() - began)


def from_shards(dataset: Path, rows: str, num_steps: int) -> dict[str, float]:
    """The whole loop, as `penstock train` runs it; the median of its own log, without the first quarter."""
    runs = Path(tempfile.mkdtemp())
    shape = runs / "shape.json"
    shape.write_text(json.dumps(replace(SHAPE).as_dict()))
    config = TrainConfig(
        model_name=rows,
        dataset_dir=dataset,
        runs_dir=runs,
        config_file=shape,
        max_iters=num_steps,
        batch_size=BATCH,
        rows=rows,  # type: ignore[arg-type]
        compile=True,
        eval_interval=0,
        save_interval=0,
        log_interval=20,
    )
    train(config)
    records = [record for record in read_log(config.run_dir / LOG) if record["kind"] == "train"][num_steps // 80 :]
    shutil.rmtree(runs)
    return {
        name: float(np.median([record[name] for record in records])) for name in ("tokens_per_s", "data_stall", "mfu")
    }


if __name__ == "__main__":
    main()
