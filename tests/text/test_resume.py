"""Kill it anywhere, run it again: the bytes are those of an undisturbed run."""

import filecmp
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from penstock.text.work import Work

KILLS = 54
SCHEDULES = 18
_RUN_S = 120


def words(source: Path, out: Path, workers: int, *more: str, unit_bytes: int = 60_000) -> list[str]:
    options = ["--input_files", str(source), "--out_dir", str(out), "--workers", str(workers)]
    options += ["--unit_bytes", str(unit_bytes), "--tokens_per_shard", "100000"]
    return [sys.executable, "-m", "penstock", "prepare", *options, *more]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About a megabyte with duplicate lines, bad lines and documents of all sizes."""
    rng = np.random.default_rng(0)
    vocabulary = [f"w{number}" for number in range(3000)]
    lines = [" ".join(rng.choice(vocabulary, int(rng.integers(1, 15)))) for _ in range(4000)]
    path = tmp_path_factory.mktemp("source") / "corpus.jsonl"
    with open(path, "w") as out:
        for _ in range(1200):
            text = "\n".join(rng.choice(lines, int(rng.integers(1, 40))))
            out.write(json.dumps({"text": text}) + "\n")
        out.write("this line is not JSON\n")
    return path


def files_in(directory: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(directory))


def assert_same(left: Path, right: Path) -> None:
    found = sorted(path.relative_to(left) for path in left.rglob("*") if path.is_file())
    assert found == sorted(path.relative_to(right) for path in right.rglob("*") if path.is_file())
    _, different, broken = filecmp.cmpfiles(left, right, [str(path) for path in found], shallow=False)
    assert not different and not broken


def killed_when(command: list[str], out: Path, num_files: int, patience: float) -> bool:
    """Runs `command` and kills it once `out` holds so many files, or some time later. Whether it was killed."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    start = time.monotonic()
    while process.poll() is None and time.monotonic() - start < _RUN_S:
        reached = files_in(out) >= num_files
        if reached:
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                # The parent alone: its workers must end by themselves.
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                return True
    return False


@pytest.mark.parametrize("options", [(), ("--no_dedup",), ("--dedup", "documents", "--near_dedup", "--compress")])
def test_any_kill_schedule_and_any_workers_give_identical_bytes(
    source: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    more = ("--tokenization", "byte", *options)
    reference = tmp_path / "reference"
    subprocess.run(words(source, reference, 1, *more), check=True, stdout=subprocess.DEVNULL)
    chance = random.Random(" ".join(options))
    kills = 0
    for schedule in range(SCHEDULES // 3):
        out = tmp_path / f"out{schedule}"
        for _ in range(KILLS // SCHEDULES):
            command = words(source, out, chance.choice([1, 2, 3]), *more)
            kills += killed_when(command, out, chance.randint(1, 75), chance.random() * 0.05)
        subprocess.run(words(source, out, chance.choice([1, 2]), *more), check=True, stdout=subprocess.DEVNULL)
        assert_same(reference, out)
    assert kills >= KILLS // 3 - 3, "most runs were over before they could be killed"


def test_finished_units_are_not_done_again(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = words(source, out, 1, "--tokenization", "byte", "--no_dedup", unit_bytes=3_000)
    assert killed_when(command, out, 60, 0)
    before = {path.name: path.stat().st_ino for path in (out / ".prepare" / "encoded").glob("*.encoded")}
    assert len(before) >= 4
    assert killed_when(command, out, files_in(out) + 60, 0)
    after = {path.name: path.stat().st_ino for path in (out / ".prepare" / "encoded").glob("*.encoded")}
    assert {name: after.get(name) for name in before} == before, "a finished unit was written again"
    assert len(after) > len(before), "the second run did nothing"


def test_ctrl_c_stops_at_once_says_so_and_leaves_work_that_goes_on(source: Path, tmp_path: Path) -> None:
    out, reference, large = tmp_path / "out", tmp_path / "reference", tmp_path / "large.jsonl"
    # So much that it cannot be over between looking and stopping it.
    large.write_bytes(source.read_bytes() * 12)
    command = words(large, out, 2, "--tokenization", "byte")
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while files_in(out) < 12:
        assert process.poll() is None, "it was over too soon"
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=_RUN_S)
    assert process.returncode == 130
    assert output == ""
    assert "run the same command again" in errors and "Traceback" not in errors
    assert not list(out.rglob("*.partial"))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(words(large, reference, 1, "--tokenization", "byte"), check=True, stdout=subprocess.DEVNULL)
    assert_same(reference, out)


def test_a_second_run_in_the_same_directory_is_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = words(source, out, 1, "--tokenization", "byte")
    with Work(out).locked():
        second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 2 and "another" in second.stderr
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def test_running_again_when_finished_does_nothing(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [*words(source, out, 1, "--tokenization", "byte"), "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(again.stdout)["already_there"]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
