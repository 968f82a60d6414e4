"""One small dataset for all tests of training, and copies of it to run in."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import CommandLine

from .builders import prepared


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a dataset and a model's sizes. Not to be written to."""
    return prepared(tmp_path_factory.mktemp("train") / "here")


@pytest.fixture
def here(made_once: Path, tmp_path: Path) -> Path:
    """A directory of one's own with a dataset and a model's sizes."""
    return Path(shutil.copytree(made_once, tmp_path / "here"))


@pytest.fixture
def command_line(here: Path) -> CommandLine:
    """The command line in that directory."""
    return CommandLine(here)
