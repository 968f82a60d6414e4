"""Which tokenizer a plan uses, and where its state lies while preparing."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError
from penstock.shards.atomic import replacing
from penstock.text.encode import remember_tokenizer
from penstock.text.planning import Plan
from penstock.text.preflight import sampled_texts
from penstock.text.tokenizers import Tokenizer, chosen_tokenizer, tokenizer_from_state
from penstock.text.tokenizers.base import state_file
from penstock.text.work import Work, fingerprint
from penstock.types import Progress

_BPE_SAMPLE_BYTES: Final = 32 << 20
_BPE_SAMPLE_UNITS: Final = 256


@dataclass(frozen=True, slots=True)
class PlanTokenizer:
    """The tokenizer of a plan."""

    tokenizer: Tokenizer
    state: Path
    """Its `tokenizer_state.json`, from which workers load it."""
    hash: str
    """Of everything that decides an id."""
    dtype: str
    """Of the ids on disk."""


def plan_tokenizer(plan: Plan, work: Work, progress: Progress, characters: Callable[[], str]) -> PlanTokenizer:
    """Chooses, loads or trains the tokenizer. `characters` are those of the corpus, asked for only if needed."""
    if plan.base is not None:
        state = plan.config.out_dir / plan.base.tokenizer.state.file
        tokenizer = tokenizer_from_state(state)
    else:
        trained = plan.tokenization == "char" or plan.tokenization.startswith("bpe:")
        name = fingerprint([plan.identity["tokenization"], plan.config.eos_token, plan.fingerprint if trained else ""])
        state = work.directory("tokenizer") / f"{name}.json"
        if trained and state.exists():
            tokenizer = tokenizer_from_state(state)
        else:
            if trained:
                progress.stage(f"training {plan.tokenization}", 0)
            tokenizer = chosen_tokenizer(
                plan.tokenization,
                eos_token=plan.config.eos_token,
                sample=lambda: sampled_texts(plan, _BPE_SAMPLE_BYTES, most_units=_BPE_SAMPLE_UNITS),
                characters=characters,
            )
    dtype = _dtype(plan, tokenizer)
    written = state_file(tokenizer)
    if plan.base is None:
        with replacing(state, durable=False) as file:
            file.write(written.data)
    for warning in tokenizer.warnings:
        progress.warn(warning)
    remember_tokenizer(state, tokenizer)
    return PlanTokenizer(tokenizer, state, written.hash, dtype)


def _dtype(plan: Plan, tokenizer: Tokenizer) -> str:
    wanted = plan.config.token_dtype
    if plan.base is not None:
        return plan.base.token_dtype
    fits = tokenizer.vocab_size <= 1 << 16
    if wanted == "uint16" and not fits:
        raise ConfigError(
            f"--token_dtype uint16: {tokenizer.name} has {tokenizer.vocab_size:,} ids, uint16 holds 65,536; "
            "use auto or uint32"
        )
    return "uint16" if fits and wanted != "uint32" else "uint32"
