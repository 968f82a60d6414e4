"""Where the numbers of a run go."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.errors import MissingExtra
from penstock.train.config import TrainConfig

LOG: Final = "log.jsonl"


class Logs:
    """Writes each record to `log.jsonl`, and its numbers to what else was asked for."""

    def __init__(self, config: TrainConfig) -> None:
        config.run_dir.mkdir(parents=True, exist_ok=True)
        self._file = open(config.run_dir / LOG, "a", encoding="utf-8")  # closed in close()
        self._board: Any = None
        self._wandb: Any = None
        if "tensorboard" in config.log:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise MissingExtra("--log tensorboard: pip install tensorboard") from error
            self._board = SummaryWriter(str(config.run_dir / "tensorboard"))
        if "wandb" in config.log:
            try:
                import wandb
            except ImportError as error:
                raise MissingExtra("--log wandb: pip install wandb") from error
            self._wandb = wandb.init(
                project="penstock", name=config.model_name, dir=str(config.run_dir), resume="allow"
            )

    def write(self, record: Mapping[str, Any]) -> None:
        """Adds a record, which has a `step`."""
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        numbers = {name: value for name, value in record.items() if isinstance(value, int | float) and name != "step"}
        if self._board is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, record["step"])
        if self._wandb is not None:
            self._wandb.log(numbers, step=record["step"])

    def close(self) -> None:
        """Ends the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a run's log, without what a kill left half-written. Of steps done twice, the last."""
    records: dict[tuple[str, int], dict[str, Any]] = {}
    if not path.exists():
        return []
    for line in path.read_text("utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
            records[(record["kind"], record["step"])] = record
        except (ValueError, KeyError, TypeError):
            continue
    return sorted(records.values(), key=lambda record: (record["step"], record["kind"]))
