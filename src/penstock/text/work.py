"""What is already done, so that it is not done again.

Everything unfinished lives in `.prepare` inside the output directory. A unit's result is a few files and a mark; the
mark is written last and carries the fingerprint of what went in. Nothing here is part of a finished dataset.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from blake3 import blake3

from penstock.errors import ConfigError
from penstock.shards.atomic import PARTIAL, replacing

WORK: Final = ".prepare"


def fingerprint(value: object) -> str:
    """A short name for a JSON value: equal values, equal names."""
    return str(blake3(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32])


class Work:
    """The work directory of one output directory."""

    def __init__(self, out_dir: Path) -> None:
        self.root = out_dir / WORK
        self.accepted = False
        """Whether this run was found to be possible. Until then it leaves no trace."""

    def directory(self, kind: str = "") -> Path:
        """Where things of one kind are kept. It exists."""
        directory = self.root / kind
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    @contextmanager
    def locked(self) -> Iterator[None]:
        """No other process prepares into the same directory meanwhile."""
        self.root.mkdir(parents=True, exist_ok=True)
        with open(self.root / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ConfigError(
                    f"{self.root.parent}: another `penstock prepare` is at work here; wait for it"
                ) from error
            yield

    def has_results(self) -> bool:
        """Whether a unit is finished: something that a later run can build on."""
        return any(any(self.root.glob(pattern)) for pattern in ("read/*.gathered", "encoded/*.encoded"))

    def discard_partials(self) -> None:
        """Takes away what a killed run left half-written, here and beside the shards."""
        out_dir = self.root.parent
        found = [*self.root.rglob("*" + PARTIAL), *out_dir.glob("*" + PARTIAL), *out_dir.glob("*/shard_*" + PARTIAL)]
        for partial in found:
            partial.unlink(missing_ok=True)

    def remove(self) -> None:
        """The dataset is finished: nothing here is needed any more."""
        shutil.rmtree(self.root, ignore_errors=True)


def write_mark(path: Path, content: dict[str, Any], files: list[Path]) -> dict[str, Any]:
    """Says that `files` are complete. The last thing written for a unit."""
    mark = {**content, "files": {file.name: file.stat().st_size for file in files}}
    with replacing(path, durable=False) as out:
        out.write(json.dumps(mark).encode())
    return mark


def read_mark(path: Path) -> dict[str, Any] | None:
    """The mark at `path`, if it is there and everything that it speaks of is as it was."""
    try:
        mark: dict[str, Any] = json.loads(path.read_bytes())
        whole = all((path.parent / name).stat().st_size == size for name, size in mark["files"].items())
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return mark if whole else None
