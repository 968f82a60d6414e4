"""`penstock plan` and `penstock explain`, as a user meets them."""

import json
from pathlib import Path

import pytest

from penstock import Dataset, Loader, Plan
from tests.conftest import CommandLine


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plan")
    command = CommandLine(directory)
    for name, word in (("wiki", "water"), ("code", "pipe")):
        lines = [json.dumps({"text": f"{word} {number} " * (1 + number % 40)}) for number in range(400)]
        (directory / f"{name}.jsonl").write_text("\n".join(lines), "utf-8")
        ran = command.run(
            "prepare", "--input_files", f"{name}.jsonl", "--out_dir", name, "--tokenization", "byte", "--json"
        )
        assert ran.code == 0, ran.err
    return directory


def test_the_report_counts_what_the_loader_gives(data: Path) -> None:
    words = (
        "plan",
        "wiki",
        "--seq_len",
        "64",
        "--batch_size",
        "16",
        "--world_size",
        "2",
        "--micro_batch",
        "4",
        "--json",
    )
    report = CommandLine(data).run(*words).result
    plan = Plan(Dataset(data / "wiki"), seq_len=64, batch_size=16)
    batches = list(Loader(plan, rank=1, world_size=2, micro_batch=4, format="numpy"))
    assert (report["num_rows"], report["num_steps"]) == (plan.num_rows, plan.num_steps)
    assert report["fingerprint"] == plan.fingerprint
    assert report["micro_steps"] * report["num_steps"] == len(batches)
    assert report["num_tokens"] == Dataset(data / "wiki").num_tokens
    assert report["num_fillers"] == plan.num_steps * 16 - plan.num_rows
    assert report["shuffle"] > 0.9


@pytest.mark.parametrize("rows", ["chunk", "best_fit"])
def test_a_mixture_reports_epochs_and_shares(data: Path, rows: str) -> None:
    words = ("plan", "wiki", "code", "--mixture", "0.75", "0.25", "--seq_len", "64", "--batch_size", "8")
    report = CommandLine(data).run(*words, "--rows", rows, "--max_steps", "64", "--json").result
    assert [source["share"] for source in report["sources"]] == [0.75, 0.25]
    assert report["num_rows"] == 512
    for source in report["sources"]:
        assert source["epochs"] == pytest.approx(source["share"] * 512 / source["num_rows"])


def test_people_get_a_readable_report(data: Path) -> None:
    ran = CommandLine(data).run("plan", "wiki", "code", "--seq_len", "64", "--batch_size", "8", "--rows", "best_fit")
    assert ran.code == 0
    for word in ("rows", "steps", "tokens", "padding", "balance", "shuffle", "memory", "opened in", "epochs"):
        assert word in ran.out


def test_a_window_and_no_shuffle_show_in_the_quality_of_the_shuffle(data: Path) -> None:
    def quality(*words: str) -> float:
        found = CommandLine(data).run("plan", "wiki", "--seq_len", "16", "--batch_size", "64", "--json", *words)
        return float(found.result["shuffle"])

    assert quality() > 0.95
    assert quality("--no_shuffle") < 0.5


def test_explain_names_the_lines_that_a_step_came_from(data: Path) -> None:
    command = CommandLine(data)
    words = ("explain", "wiki", "--seq_len", "64", "--batch_size", "4", "--rows", "best_fit", "--step", "3")
    found = command.run(*words, "--text", "--json").result
    lines = (data / "wiki.jsonl").read_text("utf-8").splitlines()
    documents = [document for row in found["rows"] for document in row["documents"]]
    assert found["step"] == 3
    assert len(found["rows"]) == 4
    for document in documents:
        text = json.loads(lines[document["record"] - 1])["text"].strip()
        start = document["first_token"]
        assert document["text"] in text[start:]
        assert document["source"].endswith("wiki.jsonl")
    assert "wiki.jsonl:" in command.run(*words).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "at least one dataset"),
        (("nowhere",), "penstock prepare"),
        (("wiki", "--seq_len", "0"), "seq_len must be a positive"),
        (("wiki", "--batch_size", "100", "--world_size", "8", "--micro_batch", "4"), "96 or 128"),
        (("wiki", "code", "--mixture", "0.5", "0.4"), "sum to 0.9"),
        (("wiki", "code", "--mixture", "1.0"), "one for each"),
        (("wiki", "wiki"), "named twice"),
        (("wiki", "--split", "test"), "is empty"),
        (("wiki", "--skip", "7"), "FROM-TO"),
        (("wiki", "--skip", "7-99999999"), "number of rows"),
        (("wiki", "--rows", "best_fit", "--seq_len", "1", "--long_documents", "drop"), "no row is left"),
        (("wiki", "--rows", "best_fit", "--window_tokens", "5"), "goes with rows='chunk'"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_what_to_do(data: Path, words: tuple[str, ...], said: str) -> None:
    ran = CommandLine(data).run("plan", *words)
    assert ran.code in (1, 2)
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_step_that_is_not_there_is_refused(data: Path) -> None:
    ran = CommandLine(data).run("explain", "wiki", "--step", "100000")
    assert ran.code == 2
    assert "no step 100000" in ran.err


@pytest.mark.parametrize("verb", ["plan", "explain"])
def test_help_has_an_example(data: Path, verb: str) -> None:
    ran = CommandLine(data).run(verb, "--help")
    assert ran.code == 0
    assert f"Example: penstock {verb} data/" in ran.out
