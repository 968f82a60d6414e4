"""Let a trained model write.

Example: penstock sample --model_name my_model --prompt "Once upon a time"
"""

import json as json_module
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """The words of `penstock sample`."""

    model_name: str
    """The run to take the newest checkpoint of."""
    prompt: str = ""
    """What the text begins with."""
    max_tokens: int = 200
    """The most it may write."""
    temperature: float = 0.8
    """Lower is safer; 0 always takes the likeliest token."""
    top_k: int = 50
    """Draw from so many tokens only; 0 for all."""
    seed: int = 0
    """Another seed, another text."""
    runs_dir: Path = Path("runs")
    """Where runs are kept."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto takes an accelerator if there is one."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Arguments) -> int:
    """Prints the text."""
    from penstock.cli.terminal import shown_progress
    from penstock.train.generate import sampled, trained_model

    with shown_progress() as progress:
        trained = trained_model(
            arguments.model_name, runs_dir=arguments.runs_dir, device=arguments.device, progress=progress
        )
    text = sampled(
        trained,
        arguments.prompt,
        max_tokens=arguments.max_tokens,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        seed=arguments.seed,
    )
    print(json_module.dumps({"text": text, "step": trained.step}) if arguments.json else text)
    return 0
