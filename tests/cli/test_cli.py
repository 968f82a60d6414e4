"""The command line as people and programs meet it."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = [f"Line {i} of the text, which is not like any other: {i * i}." for i in range(30)]


@pytest.fixture
def corpus(tmp_path) -> Path:
    """Twenty documents in `corpus.jsonl`, the last of them long enough for several blocks."""
    path = tmp_path / "corpus.jsonl"
    texts = [f"Document number {i}\nwith a line of its own, {i}." for i in range(19)]
    texts.append("".join(f"{i}, " for i in range(400_000)))
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


# Help


@pytest.mark.parametrize("verb", ["prepare", "verify", "show", "corpus"])
def test_help_of_every_verb_has_an_example(command_line, verb):
    ran = command_line.run(verb, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "Example: penstock " + verb in ran.out


def test_help_names_every_verb(command_line):
    ran = command_line.run("--help")
    assert (ran.code, ran.err) == (0, "")
    for verb in ("prepare", "verify", "show", "corpus"):
        assert f"  {verb} " in ran.out


def test_no_words_are_wrong_usage(command_line):
    assert command_line.run().code == 2


def test_version_is_one_line(command_line):
    import penstock

    assert command_line.run("--version").out == penstock.__version__ + "\n"


# Words


@pytest.mark.parametrize("program", [("-m", "penstock"), (str(ROOT / "scripts" / "prepare_dataset.py"),)])
@pytest.mark.parametrize("joint", ["_", "-"])
def test_words_may_be_joined_either_way_and_the_old_script_takes_them_too(command_line, tmp_path, program, joint):
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    words = ["--input_files", "a.txt", "--out_dir", "out", "--tokens_per_shard", "500", "--val_fraction", "0"]
    words = [word.replace("_", joint) for word in [*words, "--max_bad_fraction", "0", "--no_dedup"]]
    verb = ("prepare",) if program[0] == "-m" else ()
    ran = command_line.run(*verb, *words, "--tokenization", "byte", "--workers", "1", "--json", program=program)
    assert (ran.code, ran.err) == (0, "")
    assert ran.result["total_documents"] == 1
    assert ran.result["total_tokens"] == len("\n".join(LINES)) + 1


def test_json_is_one_object_and_nothing_else_is_said(command_line, tmp_path, corpus):
    ran = command_line.run("prepare", "--input_files", corpus, "--out_dir", "out", "--tokenization", "byte", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("\n") == 1
    assert ran.result["total_documents"] == 20
    assert sum(split["num_documents"] for split in ran.result["splits"].values()) == 20
    for words in (("verify", "out", "--json"), ("show", "out", "--json"), ("show", "out", "--doc", "3", "--json")):
        ran = command_line.run(*words)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.count("\n") == 1
        assert ran.result


def test_result_for_people_has_totals(command_line, tmp_path, corpus):
    ran = command_line.run("prepare", "--input_files", corpus, "--out_dir", "out", "--tokenization", "byte")
    assert (ran.code, ran.err) == (0, "")
    assert "Total tokens: " in ran.out
    assert "Train shards: 1" in ran.out


def test_warning_is_printed_for_those_who_do_not_watch(command_line, tmp_path):
    (tmp_path / "a.txt").write_text("one document cannot be split")
    ran = command_line.run("prepare", "--input_files", "a.txt", "--out_dir", "out", "--tokenization", "byte", "--json")
    assert ran.code == 0
    assert ran.err.startswith("warning: ")
    assert ran.err.count("\n") == 1
    assert ran.result["warnings"] == [ran.err.removeprefix("warning: ").strip()]


# Standard input


@pytest.mark.parametrize(
    ("words", "data", "expected"),
    [
        ((), b"one document\nof two lines", ["one document\nof two lines"]),
        (("--document_separator", r"\n\n"), b"one\n\ntwo\n\nthree\n", ["one", "two", "three"]),
        (("--input_format", "jsonl"), b'{"text": "one"}\n{"text": "two"}\n', ["one", "two"]),
        (("--input_format", "csv", "--text_column", "b"), b'a,b\n1,one\n2,"t""wo"\n', ["one", 't"wo']),
        (("--input_format", "json"), b'[{"text": "one"}, {"text": "two"}]', ["one", "two"]),
    ],
)
def test_standard_input_holds_what_it_is_said_to(command_line, words, data, expected):
    words = ("--input_files", "-", "--out_dir", "out", "--tokenization", "byte", "--val_fraction", "0", *words)
    ran = command_line.run("prepare", *words, stdin=data)
    assert (ran.code, ran.err) == (0, "")
    shown = [command_line.run_here("show", "out", "--doc", i, "--json").result for i in range(len(expected))]
    assert [document["text"] for document in shown] == expected
    assert [(document["source"], document["record"]) for document in shown] == [
        ("-", number) for number, _ in enumerate(expected, 1)
    ]


def test_same_standard_input_again_gives_the_same_dataset(command_line, tmp_path, bytes_under):
    words = ("prepare", "--input_files", "-", "--tokenization", "byte", "--val_fraction", "0", "--out_dir")
    for out in ("a", "b"):
        assert command_line.run(*words, out, stdin=b"the same text").code == 0
    assert bytes_under(tmp_path / "a") == bytes_under(tmp_path / "b")


# Show


def test_show_prints_a_document_with_its_source(command_line, tmp_path, corpus):
    command_line.prepare("--input_files", "corpus.jsonl", "--out_dir", "out")
    ran = command_line.run("show", "out", "--doc", "7")
    assert (ran.code, ran.err) == (0, "")
    heading, _, text = ran.out.partition("\n")
    assert "document 7 " in heading
    assert heading.endswith("corpus.jsonl:8")
    assert text == "Document number 7\nwith a line of its own, 7.\n"


def test_show_prints_a_summary_and_some_documents(command_line, corpus):
    command_line.prepare("--input_files", "corpus.jsonl", "--out_dir", "out")
    ran = command_line.run("show", "out", "--documents", "2")
    assert (ran.code, ran.err) == (0, "")
    assert "Total tokens" in ran.out
    assert "corpus.jsonl:1\nDocument number 0" in ran.out
    assert "corpus.jsonl:11\nDocument number 10" in ran.out


@pytest.mark.parametrize("number", ["20", "-1"])
def test_show_names_a_document_that_is_not_there(command_line, corpus, number):
    command_line.prepare("--input_files", "corpus.jsonl", "--out_dir", "out")
    assert f"no document {number}; it has 20" in command_line.refusal("out", "--doc", number, code=1, verb="show")


def test_dataset_without_documents_can_be_shown_and_verified(command_line, tmp_path):
    (tmp_path / "blank.txt").write_text(" \n\n ")
    assert command_line.prepare("--input_files", "blank.txt", "--out_dir", "out")["total_documents"] == 0
    for verb in ("show", "verify"):
        ran = command_line.run(verb, "out")
        assert (ran.code, ran.err) == (0, "")


# Verify


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("compress", [(), ("--compress",)], ids=["plain", "compressed"])
def test_verify_names_the_first_bad_block_of_a_shard(command_line, tmp_path, corpus, compress):
    command_line.prepare("--input_files", "corpus.jsonl", "--out_dir", "out", *compress)
    assert command_line.run("verify", "out").code == 0
    name = "shard_00000.bin.zst" if compress else "shard_00000.bin"
    path = tmp_path / "out" / "train" / name
    flip(path, path.stat().st_size - 9)
    ran = command_line.run("verify", "out", "--json")
    assert ran.code == 1
    last = (2 * tokens_in(command_line) - 1) // (1 << 20)
    assert last >= 4
    assert [(found["file"], found["block"]) for found in ran.result["findings"]] == [(f"train/{name}", last)]
    flip(path, 40)
    ran = command_line.run("verify", "out")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith(f"out/train/{name}: block 0: ")


def tokens_in(command_line) -> int:
    return json.loads((command_line.directory / "out" / "dataset_metadata.json").read_text())["shards"][0]["num_tokens"]


@pytest.mark.parametrize("at", [0, 12, 30, 80, -1])
@pytest.mark.parametrize("name", ["train/shard_00000.idx", "sources.jsonl", "tokenizer_state.json"])
def test_verify_names_a_side_file_in_which_one_bit_is_wrong(command_line, tmp_path, name, at):
    from penstock import verified

    (tmp_path / "a.jsonl").write_text('{"text": "some text"}\n')
    command_line.prepare("--input_files", "a.jsonl", "--out_dir", "out")
    assert verified(tmp_path / "out").ok
    flip(tmp_path / "out" / name, at)
    found = verified(tmp_path / "out").findings
    assert [finding.file.replace(".bin", ".idx") for finding in found] == [name]


def test_verify_at_the_command_line_says_which_file_to_mend(command_line, tmp_path, corpus):
    command_line.prepare("--input_files", "corpus.jsonl", "--out_dir", "out")
    flip(tmp_path / "out" / "sources.jsonl", 5)
    ran = command_line.run("verify", "out")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith("out/sources.jsonl: ")
    assert "1 problem" in ran.out


@pytest.mark.parametrize("verb", ["verify", "show"])
@pytest.mark.parametrize("damage", ["{", "[]", "{}"])
def test_manifest_that_is_damaged_is_an_error_without_a_traceback(command_line, tmp_path, verb, damage):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dataset_metadata.json").write_text(damage)
    assert "dataset_metadata.json" in command_line.refusal("out", code=1, verb=verb)


def test_verify_finds_a_shard_that_is_cut_short_or_gone(command_line, tmp_path, corpus):
    command_line.prepare("--input_files", "corpus.jsonl", "--out_dir", "out", "--tokens_per_shard", "300")
    shards = sorted((tmp_path / "out" / "train").glob("*.bin"))
    shards[0].write_bytes(shards[0].read_bytes()[:-2])
    shards[1].unlink()
    ran = command_line.run("verify", "out", "--json")
    assert ran.code == 1
    assert [found["file"] for found in ran.result["findings"]] == ["train/shard_00000.bin", "train/shard_00001.bin"]


# Corpus


def test_corpus_writes_text_that_prepare_takes(command_line, tmp_path):
    ran = command_line.run("corpus", "c.jsonl", "--max_bytes", "20000", "--json")
    assert (ran.code, ran.err) == (0, "")
    lines = (tmp_path / "c.jsonl").read_text().splitlines()
    assert ran.result["num_documents"] == len(lines) > 0
    assert command_line.prepare("--input_files", "c.jsonl", "--out_dir", "out")["total_documents"] > 0


def test_reader_that_has_seen_enough_is_no_error_worth_a_traceback(command_line, tmp_path, corpus):
    command_line.prepare("--input_files", "corpus.jsonl", "--out_dir", "out")
    program = f"{sys.executable} -m penstock show out --doc 19 | head -c 10"
    (tmp_path / "piped.py").write_text(f"import subprocess, sys; sys.exit(subprocess.call({program!r}, shell=True))")
    ran = command_line.run(program=("piped.py",))
    assert ran.code == 0
    assert ran.err == ""
