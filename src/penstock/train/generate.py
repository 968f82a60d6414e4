"""Text from a trained model, and models for other people's programs."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from penstock.errors import ConfigError
from penstock.model.config import GPTConfig, config_from
from penstock.model.export import export_model
from penstock.model.gpt import GPT
from penstock.train import checkpoint
from penstock.train.parallel import chosen_device
from penstock.types import Progress, Silence

if TYPE_CHECKING:
    from penstock.text.tokenizers import Tokenizer

TOKENIZER: Final = "tokenizer_state.json"


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model from a run's newest checkpoint."""

    model: GPT
    config: GPTConfig
    step: int
    run_dir: Path

    def tokenizer(self) -> "Tokenizer":
        """The one that the run's dataset was made with."""
        from penstock.text.tokenizers import tokenizer_from_state

        return tokenizer_from_state(self.run_dir / TOKENIZER)


def trained_model(
    model_name: str, *, runs_dir: Path = Path("runs"), device: str = "auto", progress: Progress | None = None
) -> TrainedModel:
    """The model of the run called `model_name`, ready to be asked."""
    run_dir = runs_dir / model_name
    saved = checkpoint.newest(run_dir, progress or Silence())
    if saved is None:
        there = ", ".join(sorted(path.parent.name for path in runs_dir.glob(f"*/{checkpoint.DIRECTORY}"))) or "none"
        raise ConfigError(
            f"{run_dir}: no checkpoint there (runs in {runs_dir}: {there}); train it with `penstock train`"
        )
    config = config_from(saved.model, where=str(saved.path))
    model = GPT(config)
    checkpoint.load_weights(saved, model)
    return TrainedModel(model.to(chosen_device(device)).eval(), config, saved.step, run_dir)


@torch.no_grad()
def sampled(
    trained: TrainedModel,
    prompt: str,
    *,
    max_tokens: int = 200,
    temperature: float = 0.8,
    top_k: int = 50,
    seed: int = 0,
) -> str:
    """`prompt` and what the model writes after it, up to its end of text."""
    if max_tokens < 1:
        raise ConfigError(f"max_tokens must be positive, got {max_tokens}")
    if temperature < 0:
        raise ConfigError(f"temperature must not be negative, got {temperature:g}")
    tokenizer = trained.tokenizer()
    ids = [int(token) for token in tokenizer.encode([prompt])[0]] if prompt else []
    device = next(trained.model.parameters()).device
    random = torch.Generator(device).manual_seed(seed)
    # A text begins where another ends.
    written = [tokenizer.eos_id, *ids]
    for _ in range(max_tokens):
        seen = torch.tensor([written[-trained.config.max_seq_len :]], device=device)
        token = _drawn(trained.model(seen)[0, -1, : tokenizer.vocab_size].float(), temperature, top_k, random)
        if token == tokenizer.eos_id:
            break
        written.append(token)
    return tokenizer.decode(np.array(written[1:], np.uint32))


def _drawn(logits_V: torch.Tensor, temperature: float, top_k: int, random: torch.Generator) -> int:
    if temperature == 0:
        return int(logits_V.argmax())
    logits_V = logits_V / temperature
    if 0 < top_k < len(logits_V):
        logits_V = logits_V.masked_fill(logits_V < logits_V.topk(top_k).values[-1], -torch.inf)
    return int(torch.multinomial(logits_V.softmax(-1), 1, generator=random))


def exported(trained: TrainedModel, out_dir: Path, *, dtype: torch.dtype = torch.float32) -> None:
    """Writes a directory that `transformers` opens, with the tokenizer where it has a `tokenizer.json`."""
    state: dict[str, Any] = json.loads((trained.run_dir / TOKENIZER).read_bytes())
    out_dir.mkdir(parents=True, exist_ok=True)
    if "tokenizer" in state:
        (out_dir / "tokenizer.json").write_text(json.dumps(state["tokenizer"], ensure_ascii=False), "utf-8")
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": state["eos_token"]}
        (out_dir / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), "utf-8")
    else:
        shutil.copy(trained.run_dir / TOKENIZER, out_dir / TOKENIZER)
    export_model(out_dir, trained.config, trained.model.state_dict(), eos_id=state.get("eos_id"), dtype=dtype)
