"""Say which documents, from which files, a step of a run is made of.

Example: penstock explain data/corpus --seq_len 1024 --batch_size 512 --step 1200 --text
"""

import json as json_module
from dataclasses import dataclass

from penstock.cli.plan_words import PlanWords, plan_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """The words of `penstock explain`. Those that describe the plan are the same as for `penstock plan`."""

    plan: PlanWords
    step: int
    """Which step, from 0."""
    text: bool = False
    """Print the text of every document, as far as it is in the step."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Arguments) -> int:
    """Prints the documents."""
    explanation = plan_of(arguments.plan).explain(arguments.step, text=arguments.text)
    print(json_module.dumps(explanation.as_dict()) if arguments.json else explanation)
    return 0
