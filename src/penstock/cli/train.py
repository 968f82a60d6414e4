"""Train a model on a dataset or on a text file, or go on training it.

Example: penstock train --model_name my_model --dataset_dir data/corpus --config_file configs/150M_1024.json --compile
Example: torchrun --nproc_per_node 8 -m penstock train --model_name my_model --dataset_dir data/corpus --parallel fsdp
"""

import json as json_module
from dataclasses import asdict, dataclass

from penstock.train.config import TrainConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """The words of `penstock train`."""

    config: TrainConfig
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Arguments) -> int:
    """Trains and says what came of it."""
    from penstock.cli.terminal import shown_progress
    from penstock.train.loop import train

    with shown_progress() as progress:
        trained = train(arguments.config, progress=progress)
    if arguments.json:
        print(json_module.dumps(asdict(trained), default=str))
    elif trained.loss is None:
        print(f"{trained.run_dir}: was done before, at step {trained.step:,}")
    else:
        val = "" if trained.val_loss is None else f", val loss {trained.val_loss:.4f}"
        print(f"{trained.run_dir}: step {trained.step:,}, loss {trained.loss:.4f}{val}")
    return 0
