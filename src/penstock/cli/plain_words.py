"""Words → a dataclass with nothing but the standard library, for machines that only train.

Knows the types that the configuration of `penstock train` has, and no positional words.
"""

import argparse
import types
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.errors import ConfigError

_T = TypeVar("_T")


def plain_words(kind: type[_T], words: list[str], *, prog: str, description: str) -> _T:
    """The dataclass `kind` that `words` describe. `-` and `_` are the same in names."""
    parser = argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    _add(parser, kind)
    names = [word.partition("=") for word in words]
    found = parser.parse_args(
        [
            f"{n.replace('-', '_').replace('__', '--', 1)}{e}{v}" if n.startswith("--") else n + e + v
            for n, e, v in names
        ]
    )
    made = _made(kind, vars(found))
    assert isinstance(made, kind)
    return made


def _add(parser: argparse.ArgumentParser, kind: Any) -> None:
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint):
            _add(parser, hint)
            continue
        needed = field.default is MISSING and field.default_factory is MISSING
        words: dict[str, Any] = {"dest": field.name, "required": needed, "default": argparse.SUPPRESS}
        if hint is bool:
            parser.add_argument(f"--{field.name}", action="store_true", **words)
        elif get_origin(hint) is tuple:
            parser.add_argument(f"--{field.name}", nargs="*", type=_one(get_args(hint)[0]), **words)
        else:
            parser.add_argument(f"--{field.name}", type=_one(hint), **words)


def _one(hint: Any) -> Any:
    """What turns a word into a value of type `hint`."""
    if get_origin(hint) in (Union, types.UnionType):
        inner = next(part for part in get_args(hint) if part is not type(None))
        return lambda word: None if word == "None" else _one(inner)(word)
    if get_origin(hint) is Literal:
        choices = get_args(hint)

        def chosen(word: str) -> str:
            if word not in choices:
                raise argparse.ArgumentTypeError(f"{word!r} is not one of {', '.join(choices)}")
            return word

        return chosen
    if hint is bool:
        return _truth
    if hint not in (str, int, float, Path):
        raise ConfigError(f"a setting of type {hint} cannot be given here: pip install tyro")
    return hint


def _truth(word: str) -> bool:
    if word not in ("True", "False"):
        raise argparse.ArgumentTypeError(f"{word!r} is neither True nor False")
    return word == "True"


def _made(kind: Any, found: dict[str, Any]) -> Any:
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in fields(kind):
        if is_dataclass(hints[field.name]):
            values[field.name] = _made(hints[field.name], found)
        elif field.name in found:
            value = found[field.name]
            values[field.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)
