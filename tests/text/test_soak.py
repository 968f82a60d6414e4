"""Long runs, for `make soak`: minutes of kills on real text, a gigabyte in one line."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock import ShardSet, verified
from penstock.text.corpus import write_corpus

from .test_resume import assert_same, killed_when, words

pytestmark = pytest.mark.soak
MINUTES = float(os.environ.get("PENSTOCK_SOAK_MINUTES", "50"))


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def test_kills_for_most_of_an_hour_never_change_a_byte(tmp_path: Path) -> None:
    source, reference = tmp_path / "corpus.jsonl", tmp_path / "reference"
    write_corpus(source)
    size = 1_000_000
    run(*words(source, reference, 2, unit_bytes=size))
    chance = random.Random(0)
    end = time.monotonic() + 60 * MINUTES
    kills = rounds = 0
    while time.monotonic() < end:
        out = tmp_path / f"out{rounds}"
        for _ in range(chance.randint(1, 5)):
            command = words(source, out, chance.choice([1, 2, 3, 4]), unit_bytes=size)
            kills += killed_when(command, out, chance.randint(1, 260), chance.random() * 0.3)
        run(*words(source, out, chance.choice([1, 2]), unit_bytes=size))
        assert_same(reference, out)
        run("rm", "-r", str(out))
        rounds += 1
    print(f"{kills} kills in {rounds} rounds")
    assert kills > rounds


@pytest.mark.parametrize("word", ["word ", "x"])
def test_a_gigabyte_in_one_line_stays_within_memory(tmp_path: Path, word: str) -> None:
    source, out = tmp_path / "line.txt", tmp_path / "out"
    with open(source, "w") as file:
        for _ in range(1000):
            file.write(word * (1_000_000 // len(word)))
    command = [sys.executable, "-m", "penstock", "prepare", "--input_files", str(source), "--out_dir", str(out)]
    with subprocess.Popen([*command, "--workers", "1", "--val_fraction", "0", "--no_dedup"]) as process:
        peak = 0
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            found = [line for line in status.splitlines() if line.startswith("RssAnon")]
            peak = max(peak, int(found[0].split()[1]) if found else 0)
    assert process.returncode == 0
    assert peak < 1_300_000, f"{peak} kB"
    assert ShardSet(out).num_documents == 1 and verified(out).ok
