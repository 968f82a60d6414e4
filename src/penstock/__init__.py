"""Penstock carries tokens to accelerators.

The front door: the names below, each loaded when it is first touched.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from penstock.errors import PenstockError as PenstockError
    from penstock.load.augment import MaskTokens as MaskTokens
    from penstock.load.augment import RandomNoise as RandomNoise
    from penstock.load.batch import Batch as Batch
    from penstock.load.dataset import Dataset as Dataset
    from penstock.load.gpt import GPTDataLoader as GPTDataLoader
    from penstock.load.loader import Loader as Loader
    from penstock.load.mixture import Mixture as Mixture
    from penstock.load.plan import Plan as Plan
    from penstock.shards.manifest import Manifest as Manifest
    from penstock.shards.reader import ShardSet as ShardSet
    from penstock.shards.verify import verified as verified
    from penstock.text.config import PrepareConfig as PrepareConfig
    from penstock.text.prepare import prepare as prepare
    from penstock.text.tokenizers import tokenizer_from_state as tokenizer_from_state

_HOMES = {
    "PenstockError": "penstock.errors",
    "Batch": "penstock.load.batch",
    "Dataset": "penstock.load.dataset",
    "GPTDataLoader": "penstock.load.gpt",
    "Loader": "penstock.load.loader",
    "MaskTokens": "penstock.load.augment",
    "Mixture": "penstock.load.mixture",
    "Plan": "penstock.load.plan",
    "RandomNoise": "penstock.load.augment",
    "Manifest": "penstock.shards.manifest",
    "ShardSet": "penstock.shards.reader",
    "verified": "penstock.shards.verify",
    "PrepareConfig": "penstock.text.config",
    "prepare": "penstock.text.prepare",
    "tokenizer_from_state": "penstock.text.tokenizers",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
