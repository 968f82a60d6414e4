"""`penstock VERB …`: finds the verb, runs it, and turns what it raises into a message and an exit code.

0: done. 1: failed. 2: wrong usage.
"""

import os
import sys
from importlib import import_module
from typing import Any, Final

VERBS: Final = {
    "prepare": "text files, jsonl, csv, parquet, arrow → verified token shards",
    "verify": "check every byte of a dataset against its manifest",
    "show": "print a summary of a dataset and some of its documents",
    "plan": "say what a run will be like: rows, steps, padding, balance, shuffling",
    "train": "train a model on a dataset or a text file, on one process or under torchrun",
    "sample": "let a trained model write",
    "export": "write a trained model as a directory that transformers opens",
    "explain": "say which documents a step of a run is made of",
    "demo": "see everything at once, on text that every Python has on disk",
    "corpus": "write a text corpus that every Python has on disk, to try things on",
}
_ONE_THREAD: Final = ("POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS")


def main(argv: list[str] | None = None) -> int:
    """Runs one command line. Returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0 if words else 2
    if words[0] == "--version":
        import penstock

        print(penstock.__version__)
        return 0
    if words[0] not in VERBS:
        print(f"penstock: no verb {words[0]!r}; try one of: {', '.join(VERBS)}", file=sys.stderr)
        return 2
    # Processes share the work; threads under them would only fight for the same cores.
    for name in _ONE_THREAD:
        os.environ.setdefault(name, "1")
    from penstock.engines import tune_process

    tune_process()
    return run_verb(words[0], words[1:])


def run_verb(verb: str, words: list[str]) -> int:
    """Parses the words of one verb and runs it."""
    from penstock.errors import ConfigError, PenstockError

    try:
        module: Any = import_module(f"penstock.cli.{verb}")
        return int(module.run(_parsed(module, verb, words)))
    except SystemExit as error:
        return int(error.code or 0) if not isinstance(error.code, str) else 2
    except ConfigError as error:
        print(f"penstock {verb}: {error}", file=sys.stderr)
        return 2
    except PenstockError as error:
        print(f"penstock {verb}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\npenstock {verb}: stopped; run the same command again to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parsed(module: Any, verb: str, words: list[str]) -> Any:
    prog, said = f"penstock {verb}", str(module.__doc__)
    try:
        import tyro
    except ImportError:
        from penstock.cli.plain_words import plain_words

        return plain_words(module.Arguments, words, prog=prog, description=said)
    how = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    return tyro.cli(module.Arguments, args=words, prog=prog, description=said, use_underscores=True, config=how)


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {what}" for verb, what in VERBS.items())
    return (
        "penstock: from text to accelerators\n\n"
        f"{verbs}\n\n"
        "example:\n"
        "  penstock corpus corpus.jsonl\n"
        "  penstock prepare --input_files corpus.jsonl --out_dir data/corpus\n"
        "  penstock show data/corpus\n"
        "  penstock train --model_name my_model --dataset_dir data/corpus\n\n"
        "`penstock VERB --help` tells more."
    )


def entry() -> None:
    """The console script."""
    sys.exit(main())
