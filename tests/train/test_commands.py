"""The commands as a guide writes them."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from penstock.train.generate import sampled, trained_model
from penstock.train.logs import LOG, read_log
from penstock.train.loop import train
from tests.conftest import CommandLine

from .builders import configured, documents, words

TRAIN = str(Path(__file__).parents[2] / "train.py")
SMALL = ("--model", "tiny", "--seq_len", 16, "--batch_size", 2, "--max_iters", 3, "--eval_rows", 4, "--device", "cpu")


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.usefixtures("one_thread")
def test_train_on_a_text_file_as_the_guide_writes_it(here: Path, command_line: CommandLine) -> None:
    (here / "input.txt").write_text("\n".join(documents(60)))
    ran = command_line.run("--model_name", "my_model", "--input_file", "input.txt", *SMALL, program=(TRAIN,))
    assert ran.code == 0, ran.err
    assert ran.out.startswith("runs/my_model: step 3, loss ")
    assert ", val loss " in ran.out
    assert {path.name for path in (here / "runs/my_model/data").iterdir()} >= {"train", "val"}


@pytest.mark.usefixtures("one_thread")
def test_train_on_a_dataset_as_the_guide_writes_it(command_line: CommandLine) -> None:
    ran = command_line.run("--model_name", "my_model", "--dataset_dir", "dataset", *SMALL, "--json", program=(TRAIN,))
    assert ran.code == 0, ran.err
    found = ran.result
    assert (found["run_dir"], found["step"], found["resumed_from"]) == ("runs/my_model", 3, None)
    assert found["loss"] > 0
    assert found["val_loss"] > 0
    assert found["tokens_per_s"] > 0


def test_a_run_writes_down_its_settings_and_its_numbers(here: Path, command_line: CommandLine) -> None:
    assert command_line.run_here("train", *words(eval_interval=10, eval_rows=8)).code == 0
    settings = json.loads((here / "runs/run/config.json").read_bytes())
    assert (settings["batch_size"], settings["lr"], settings["model_name"]) == (4, 3e-3, "run")
    records = read_log(here / "runs/run" / LOG)
    assert [(record["kind"], record["step"]) for record in records] == [
        ("train", 5), ("train", 10), ("val", 10), ("train", 15), ("train", 20), ("val", 20)
    ]  # fmt: skip
    assert records[0].keys() >= {"loss", "lr", "tokens_per_s", "data_stall", "rows", "row_check", "ranks", "time"}


def test_sample_goes_on_from_the_prompt_and_is_the_same_for_the_same_seed(command_line: CommandLine) -> None:
    assert command_line.run_here("train", *words()).code == 0
    ask = ("sample", "--model_name", "run", "--prompt", "ada sees ", "--max_tokens", 20, "--device", "cpu")
    first, again = command_line.run_here(*ask), command_line.run_here(*ask)
    assert first.code == 0, first.err
    assert first.out.startswith("ada sees ")
    assert len(first.out.encode()) > len("ada sees \n")
    assert again.out == first.out
    other = command_line.run_here(*ask, "--seed", 1, "--json").result
    assert other["step"] == 20
    assert other["text"].startswith("ada sees ")
    assert other["text"] != first.out.rstrip("\n")


def test_a_cold_sample_takes_the_likeliest_token_and_needs_no_prompt(here: Path) -> None:
    train(configured(here))
    trained = trained_model("run", runs_dir=here / "runs", device="cpu")
    texts = {sampled(trained, "", max_tokens=40, temperature=0.0, seed=seed) for seed in range(3)}
    assert len(texts) == 1


def test_export_opens_in_transformers_with_the_same_logits(here: Path, command_line: CommandLine) -> None:
    assert command_line.run_here("train", *words()).code == 0
    ran = command_line.run_here("export", "--model_name", "run", "--out_dir", "out", "--json")
    assert ran.code == 0, ran.err
    model = trained_model("run", runs_dir=here / "runs", device="cpu").model
    num_parameters = sum(weight.numel() for weight in model.parameters())
    assert ran.result == {"out_dir": "out", "step": 20, "parameters": num_parameters}
    theirs = AutoModelForCausalLM.from_pretrained(here / "out")
    ids_BT = torch.tensor([list(b"ada sees bob.")])
    with torch.no_grad():
        torch.testing.assert_close(model(ids_BT), theirs(ids_BT).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("verb", ["sample", "export"])
def test_a_run_that_is_not_there_is_refused_with_those_that_are(verb: str, command_line: CommandLine) -> None:
    assert command_line.run_here("train", *words(max_iters=1)).code == 0
    more = ("--out_dir", "out") if verb == "export" else ()
    said = command_line.refusal("--model_name", "other", *more, code=2, verb=verb)
    assert "runs/other: no checkpoint there (runs in runs: run)" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [(("--max_tokens", 0), "max_tokens must be positive"), (("--temperature", -1), "temperature must not be negative")],
)
def test_sample_refuses_what_makes_no_sense(more: tuple[object, ...], said: str, command_line: CommandLine) -> None:
    assert command_line.run_here("train", *words(max_iters=1)).code == 0
    assert said in command_line.refusal("--model_name", "run", *more, code=2, verb="sample")
