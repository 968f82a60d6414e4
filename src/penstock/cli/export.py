"""Write a trained model as a directory that `transformers` opens.

Example: penstock export --model_name my_model --out_dir exported/my_model
"""

import json as json_module
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """The words of `penstock export`."""

    model_name: str
    """The run to take the newest checkpoint of."""
    out_dir: Path
    """Where to: config.json, model.safetensors, and the tokenizer."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """What weights are written in."""
    runs_dir: Path = Path("runs")
    """Where runs are kept."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Arguments) -> int:
    """Exports, and says what."""
    import torch

    from penstock.cli.terminal import shown_progress
    from penstock.train.generate import exported, trained_model

    with shown_progress() as progress:
        trained = trained_model(arguments.model_name, runs_dir=arguments.runs_dir, device="cpu", progress=progress)
    exported(trained, arguments.out_dir, dtype=getattr(torch, arguments.dtype))
    result = {"out_dir": str(arguments.out_dir), "step": trained.step, "parameters": trained.config.num_parameters}
    said = (
        f"{arguments.out_dir}: step {trained.step:,}, {trained.config.num_parameters:,} parameters, {arguments.dtype}"
    )
    print(json_module.dumps(result) if arguments.json else said)
    return 0
