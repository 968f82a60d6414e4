"""See everything at once: prepare, plan, train, kill, resume on two ranks, write. Takes about two minutes on two cores.

Example: penstock demo --out_dir demo
"""

import json as json_module
import sys
from dataclasses import dataclass

from penstock.train.demo import DemoConfig, demo


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """The words of `penstock demo`."""

    config: DemoConfig
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Arguments) -> int:
    """Runs the demonstration."""

    def say(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    found = demo(arguments.config, say)
    if arguments.json:
        print(json_module.dumps(found))
    return 0
