"""What tests of every room share: the command line as a user meets it, and datasets read back."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from penstock.cli.main import main

# No network, for us and for the processes we start.
os.environ["HF_HUB_OFFLINE"] = "1"

# Properties prepare whole datasets: what one example takes depends on the disk, not on the code under test.
settings.register_profile(
    "penstock",
    deadline=None,
    max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "40")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
settings.load_profile("penstock")


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


class CommandLine:
    """Runs `python -m penstock …` in a directory of its own, as a user would."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, *words: object, stdin: bytes = b"", program: tuple[str, ...] = ("-m", "penstock")) -> Ran:
        """Runs a command to its end, whatever that is."""
        done = subprocess.run(
            [sys.executable, *program, *map(os.fspath, map(_word, words))],
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            timeout=120,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )
        ran = Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
        assert "Traceback" not in ran.err, ran.err
        return ran

    def run_here(self, *words: object, stdin: bytes = b"") -> Ran:
        """The same in this process, which saves the start of another. An exception that gets out fails the test."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.directory), redirect_stdout(out), redirect_stderr(err), _standard_input(stdin):
            code = main([str(word) for word in words])
        return Ran(code, out.getvalue(), err.getvalue())

    def prepare(self, *words: object) -> dict[str, Any]:
        """What a `prepare` that must succeed prints. Bytes as tokens, no validation set, unless told otherwise."""
        ran = self.run_here("prepare", *_defaults(words), *words, "--json")
        assert ran.code == 0, ran.err
        return ran.result

    def refusal(
        self, *words: object, code: int, stdin: bytes = b"", verb: str = "prepare", elsewhere: bool = False
    ) -> str:
        """The message of a command that must fail with `code`: one line on standard error, nothing on the other."""
        run = self.run if elsewhere else self.run_here
        ran = run(verb, *(_defaults(words) if verb == "prepare" else ()), *words, stdin=stdin)
        assert ran.code == code, (ran.code, ran.err)
        assert ran.out == ""
        assert ran.err.startswith(f"penstock {verb}: "), ran.err
        assert ran.err.strip().count("\n") == 0, ran.err
        return ran.err.strip()


@contextmanager
def _standard_input(data: bytes) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        yield


def _word(word: object) -> str | bytes:
    return word if isinstance(word, str | bytes) else str(word)


def _defaults(words: tuple[object, ...]) -> list[str]:
    defaults = {"--tokenization": "byte", "--val_fraction": "0", "--workers": "1"}
    return [part for pair in defaults.items() if pair[0] not in words for part in pair]


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    """The command line in an empty directory."""
    return CommandLine(tmp_path)


@pytest.fixture
def bytes_under() -> Callable[[Path], dict[str, bytes]]:
    """Every file under a directory by its name, hidden ones included: two datasets are equal if these are."""

    def found(directory: Path) -> dict[str, bytes]:
        files = (path for path in sorted(directory.rglob("*")) if path.is_file())
        return {str(path.relative_to(directory)): path.read_bytes() for path in files}

    return found
