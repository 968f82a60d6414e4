"""The settings of a training run. Knows no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """A training run: its data, its model, how long, how fast."""

    model_name: str
    """What the run is called: it lives in RUNS_DIR/MODEL_NAME, and `penstock sample` finds it by this name."""
    input_file: Path | None = None
    """Train on this text file. Or give dataset_dir."""
    dataset_dir: Path | None = None
    """Train on this dataset, made by `penstock prepare`. Or give input_file."""
    runs_dir: Path = Path("runs")
    """Where runs are kept."""
    model: str = "small"
    """tiny, small, medium or large."""
    config_file: Path | None = None
    """A JSON file with the model's sizes, instead of a named one."""
    tokenization: str = "gpt2"
    """How input_file becomes tokens, as for `penstock prepare`."""

    max_iters: int = 5000
    """Steps."""
    batch_size: int = 64
    """Rows in a step, over all ranks."""
    micro_batch: int | None = None
    """Rows that a rank takes at a time; the rest of its share is accumulated. Without it, all at once."""
    seq_len: int | None = None
    """Tokens in a row. Without it, the model's max_seq_len."""
    rows: Literal["chunk", "best_fit"] = "chunk"
    """chunk: the stream of tokens, cut every seq_len. best_fit: whole documents, packed."""
    document_mask: bool | None = None
    """Whether documents in one row see only themselves. Without it: yes for best_fit, no for chunk."""
    skip: tuple[str, ...] = ()
    """Rows to leave out, as FROM-TO, for example 512000-517120."""

    lr: float = 6e-4
    """The highest learning rate."""
    min_lr: float = 0.1
    """The last learning rate, as a share of lr."""
    schedule: Literal["cosine", "wsd"] = "cosine"
    """How the rate falls: along a cosine, or stable and then straight down."""
    warmup: float = 0.02
    """Share of the run's tokens over which the rate rises."""
    decay: float = 0.2
    """wsd: share of the run's tokens over which the rate falls."""
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    grad_clip: float = 1.0
    """Longest gradient; 0 for no limit."""

    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto takes an accelerator if there is one."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """What the model computes in; auto is bfloat16 on accelerators that have it. Weights are kept in float32."""
    compile: bool = False
    """Let torch.compile make the model fast. Takes a minute at the start."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """Under torchrun: copies of the model (ddp), or one copy in pieces (fsdp)."""

    eval_interval: int = 250
    """Steps between evaluations; 0 for none."""
    eval_rows: int = 256
    """Rows of val in an evaluation: always the same ones."""
    save_interval: int = 500
    """Steps between checkpoints; 0 for only one at the end."""
    keep: int = 2
    """Checkpoints that are kept."""
    resume: Literal["auto", "never"] = "auto"
    """auto: go on from the last good checkpoint, if there is one. never: refuse to start where there is one."""
    log: tuple[Literal["jsonl", "tensorboard", "wandb"], ...] = ("jsonl",)
    """Where numbers go. log.jsonl in the run's directory is always written."""
    log_interval: int = 10
    """Steps between lines of the log."""
    seed: int = 0
    """Of the weights and of the order of rows."""

    def __post_init__(self) -> None:
        if (self.input_file is None) == (self.dataset_dir is None):
            got = "both" if self.input_file else "neither"
            raise ConfigError(
                "give exactly one of --input_file FILE (a text) and --dataset_dir DIR (made by `penstock prepare`), "
                f"got {got}"
            )
        if not self.model_name or "/" in self.model_name or self.model_name.startswith("."):
            raise ConfigError(f"--model_name {self.model_name!r}: expected a plain name, for example my_model")
        for name in ("max_iters", "batch_size", "eval_rows", "keep", "log_interval"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} must be positive, got {getattr(self, name)}")
        for name in ("eval_interval", "save_interval", "grad_clip", "weight_decay"):
            if getattr(self, name) < 0:
                raise ConfigError(f"--{name} must not be negative, got {getattr(self, name)}")
        for name in ("min_lr", "warmup", "decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"--{name} is a share, from 0 to 1, got {getattr(self, name)}")
        if not self.lr > 0:
            raise ConfigError(f"--lr must be positive, got {self.lr}")
        if self.seq_len is not None and self.seq_len < 1:
            raise ConfigError(f"--seq_len must be positive, got {self.seq_len}")

    @property
    def run_dir(self) -> Path:
        """Where the run is kept."""
        return self.runs_dir / self.model_name

    @property
    def masks_documents(self) -> bool:
        return self.rows == "best_fit" if self.document_mask is None else self.document_mask
