"""The rows of a run: what it trains on and what it is measured on."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blake3 import blake3

from penstock.errors import ConfigError, InputError
from penstock.load.dataset import Dataset
from penstock.load.plan import Plan, parsed_range
from penstock.shards.layout import MANIFEST
from penstock.train.config import TrainConfig
from penstock.types import Progress

_VAL_FRACTION: Final = 0.1


@dataclass(frozen=True, slots=True)
class RunData:
    """The datasets of a run."""

    train: Dataset
    val: Dataset | None


def opened_data(config: TrainConfig, progress: Progress) -> RunData:
    """The datasets that the configuration names; a text file becomes datasets first."""
    if config.dataset_dir is not None:
        train = Dataset(config.dataset_dir, "train")
        val = Dataset(config.dataset_dir, "val") if train.manifest.of("val") else None
        return RunData(train, val)
    assert config.input_file is not None
    directories = _prepared(config, progress)
    return RunData(*(Dataset(directory, "train") for directory in directories))


def train_plan(config: TrainConfig, data: RunData, seq_len: int) -> Plan:
    """Rows for max_iters steps, in as many epochs as that takes."""
    once = Plan(data.train, seq_len=seq_len, batch_size=config.batch_size, rows=config.rows, seed=config.seed)
    skipped = sum(stop - start for start, stop in map(parsed_range, config.skip))
    epochs = max(1, -(-(config.max_iters * config.batch_size + skipped) // once.num_rows))
    return Plan(
        data.train,
        seq_len=seq_len,
        batch_size=config.batch_size,
        rows=config.rows,
        seed=config.seed,
        epochs=epochs,
        max_steps=config.max_iters,
        skip=tuple(map(parsed_range, config.skip)),
    )


def val_plan(config: TrainConfig, data: RunData, seq_len: int, *, unit: int) -> Plan | None:
    """The rows that every evaluation looks at, in steps of `unit` rows."""
    if data.val is None or not config.eval_interval:
        return None
    steps = max(1, -(-config.eval_rows // unit))
    return Plan(data.val, seq_len=seq_len, batch_size=unit, rows=config.rows, seed=0, max_steps=steps)


def _prepared(config: TrainConfig, progress: Progress) -> list[Path]:
    """The text as two datasets in the run's directory: its first nine tenths, and the rest for evaluation."""
    from penstock.text.config import PrepareConfig
    from penstock.text.prepare import prepare

    assert config.input_file is not None
    directory = config.run_dir / "data"
    found = [directory / "train", directory / "val"]
    try:
        text = config.input_file.read_text("utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{config.input_file}: cannot be read ({error.strerror})") from error
    made_of = f"{config.tokenization} {blake3(text.encode()).hexdigest()}\n"
    mark = directory / "made_of"
    if all((path / MANIFEST).exists() for path in found):
        if mark.read_text("utf-8") != made_of:
            raise ConfigError(
                f"{config.run_dir}: was begun with another text or --tokenization than {config.input_file} as it is "
                "now; use another --model_name"
            )
        return found
    cut = _cut(text)
    if not text[:cut].strip() or not text[cut:].strip():
        raise InputError(f"{config.input_file}: too short to train on and to measure with")
    parts = directory / "text"
    parts.mkdir(parents=True, exist_ok=True)
    mark.write_text(made_of, "utf-8")
    for path, part in zip(found, (text[:cut], text[cut:]), strict=True):
        file = parts / f"{path.name}.txt"
        file.write_text(part, "utf-8")
        tokenization = config.tokenization if path.name == "train" else str(found[0])
        if tokenization == str(found[0]):
            tokenization = _same_tokenizer(found[0], config.tokenization)
        prepare(
            PrepareConfig(
                input_files=(str(file),),
                out_dir=path,
                tokenization=tokenization,
                normalize=False,
                dedup="none",
                val_fraction=0.0,
                workers=1,
            ),
            progress=progress,
        )
    shutil.rmtree(parts)
    return found


def _cut(text: str) -> int:
    """Where the last tenth begins: after a line, if there is one near."""
    wanted = int(len(text) * (1 - _VAL_FRACTION))
    newline = text.rfind("\n", max(0, wanted - 2000), wanted)
    return newline + 1 if newline >= 0 else wanted


def _same_tokenizer(train: Path, tokenization: str) -> str:
    if tokenization == "char" or tokenization.startswith("bpe:"):
        raise ConfigError(
            f"--tokenization {tokenization} is learned from a text, and the two parts of --input_file would learn "
            "different ones; prepare the text with `penstock prepare` and give --dataset_dir"
        )
    return tokenization
