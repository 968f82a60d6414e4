"""Whatever is wrong with the input, the words or the disk: one message that says what to do, and no damage."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.text.builders import COMPRESSED, arrow, csv_bytes, documents_in, json_array, jsonl, parquet, written

TEXTS = [f"Document {i} tells of {i * i} things.\nIts second line is its own: {i}." for i in range(40)]
BytesUnder = Callable[[Path], dict[str, bytes]]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--input_files", "none.txt"), 1),
        (("--input_files", "a.txt", "--seed", "-1"), 2),
        (("--input_files", "a.txt", "--tokenization", "none.json"), 1),
        (("--input_files", "a.txt", "--append"), 1),
        (("--input_files", "bad.jsonl"), 1),
        (("--input_files", "torn.txt.gz"), 1),
        (("--input_files", "torn.parquet", "--workers", "2"), 1),
        (("--input_files", "-"), 1),
    ],
)
def test_command_ends_with_one_message_and_no_traceback(command_line, tmp_path, words, code):
    written(tmp_path / "a.txt", "text")
    written(tmp_path / "bad.jsonl", "no JSON\n")
    written(tmp_path / "torn.txt.gz", COMPRESSED[".gz"](b"text")[:-9])
    written(tmp_path / "torn.parquet", parquet(TEXTS)[:-9])
    message = command_line.refusal("--out_dir", "out", *words, code=code, elsewhere=True)
    # What the tests below run without another process is what a user sees.
    assert message == command_line.refusal("--out_dir", "out", *words, code=code)


# Nothing to read


def test_missing_file_is_named(command_line, tmp_path):
    message = command_line.refusal("--input_files", "none.txt", "--out_dir", "out", code=1)
    assert "none.txt: no such file" in message
    assert not (tmp_path / "out").exists()


def test_empty_file_is_refused_and_leaves_nothing_behind(command_line, tmp_path):
    written(tmp_path / "empty.txt", "")
    message = command_line.refusal("--input_files", "empty.txt", "--out_dir", "out", code=1)
    assert "empty.txt: empty" in message
    assert not (tmp_path / "out").exists()


def test_empty_file_among_others_is_no_document(command_line, tmp_path):
    written(tmp_path / "a.txt", "")
    written(tmp_path / "b.txt", "something")
    command_line.prepare("--input_files", "a.txt", "b.txt", "--out_dir", "out")
    assert documents_in(tmp_path / "out") == ["something"]


def test_empty_standard_input_is_refused(command_line, tmp_path):
    assert "standard input is empty" in command_line.refusal("--input_files", "-", "--out_dir", "out", code=1)
    assert not (tmp_path / "out").exists()


def test_directory_without_files_is_named(command_line, tmp_path):
    (tmp_path / "texts").mkdir()
    assert "texts: no text" in command_line.refusal("--input_files", "texts", "--out_dir", "out", code=1)


def test_directory_with_unknown_suffixes_only_lists_the_known_ones(command_line, tmp_path):
    written(tmp_path / "texts" / "a.pdf", "x")
    written(tmp_path / "texts" / ".hidden.txt", "x")
    message = command_line.refusal("--input_files", "texts", "--out_dir", "out", code=1)
    assert "texts: no text" in message
    assert ".jsonl" in message


def test_glob_that_matches_nothing_is_named(command_line):
    message = command_line.refusal("--input_files", "*.jsonl", "--out_dir", "out", code=1)
    assert "*.jsonl: matches no file" in message


def test_named_pipe_is_refused_rather_than_waited_for(command_line, tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    assert "not a regular file" in command_line.refusal("--input_files", "pipe.txt", "--out_dir", "out", code=1)


# Bytes that are not quite text


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", b"good \xff bad \xc3( end"),
        ("a.jsonl", b'{"text": "good \xff bad \xc3( end"}\n'),
        ("a.json", b'[{"text": "good \xff bad \xc3( end"}]'),
        ("a.csv", b"text\ngood \xff bad \xc3( end\n"),
    ],
)
def test_invalid_utf8_is_replaced_and_counted(command_line, tmp_path, name, data):
    written(tmp_path / name, data)
    result = command_line.prepare("--input_files", name, "--out_dir", "out")
    assert documents_in(tmp_path / "out") == ["good \ufffd bad \ufffd( end"]
    assert result["stages"][0]["replaced"] == {"invalid_utf8": 2, "lone_surrogates": 0}


def test_replacement_characters_that_were_there_are_not_counted(command_line, tmp_path):
    written(tmp_path / "a.txt", b"\xef\xbf\xbd \xff")
    result = command_line.prepare("--input_files", "a.txt", "--out_dir", "out")
    assert result["stages"][0]["replaced"]["invalid_utf8"] == 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_lone_surrogates_are_replaced_and_counted_and_pairs_are_not(command_line, tmp_path, name):
    written(tmp_path / name, r'{"text": "a \ud800 b \udc00 \ud83d\ude00"}')
    result = command_line.prepare("--input_files", name, "--out_dir", "out")
    assert documents_in(tmp_path / "out") == ["a \ufffd b \ufffd \U0001f600"]
    assert result["stages"][0]["replaced"] == {"invalid_utf8": 0, "lone_surrogates": 2}


@pytest.mark.parametrize(("words", "expected"), [((), "ab\nc"), (("--no_normalize",), "a\0b\n\0c")])
def test_nul_bytes_go_with_normalisation_and_stay_without(command_line, tmp_path, words, expected):
    written(tmp_path / "a.txt", b"a\0b\n\0c")
    command_line.prepare("--input_files", "a.txt", "--out_dir", "out", *words)
    assert documents_in(tmp_path / "out") == [expected]


@pytest.mark.parametrize(
    ("name", "data"), [("a.txt", b"text"), ("a.jsonl", b'{"text": "text"}\n'), ("a.csv", b"text\ntext\n")]
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_byte_order_mark_is_no_text(command_line, tmp_path, name, data, suffix):
    written(tmp_path / (name + suffix), COMPRESSED[suffix](b"\xef\xbb\xbf" + data))
    command_line.prepare("--input_files", name + suffix, "--out_dir", "out", "--no_normalize")
    assert documents_in(tmp_path / "out") == ["text"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    ("name", "text"), [("a.txt", "some text"), ("a.jsonl", '{"text": "x"}\n'), ("a.csv", "text\nx\n")]
)
def test_utf16_is_refused_with_the_command_that_converts_it(command_line, tmp_path, name, text, encoding):
    written(tmp_path / name, ("\ufeff" + text).encode(encoding))
    message = command_line.refusal("--input_files", name, "--out_dir", "out", code=1)
    assert name in message
    assert "iconv" in message


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", b"one\r\ntwo\rthree\r\n", ["one\ntwo\nthree"]),
        ("a.jsonl", b'{"text": "one\\r\\ntwo\\rthree"}\r\n{"text": "b"}\r\n', ["one\ntwo\nthree", "b"]),
        ("a.csv", b'id,text\r\n1,"one\r\ntwo\rthree"\r\n2,b\r\n', ["one\ntwo\nthree", "b"]),
    ],
)
def test_every_newline_becomes_one_kind(command_line, tmp_path, name, data, expected):
    written(tmp_path / name, data)
    command_line.prepare("--input_files", name, "--out_dir", "out", "--no_dedup")
    assert documents_in(tmp_path / "out") == expected


# Records that cannot be used


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"this is not JSON", "not_json"),
        (b'{"text": "torn', "not_json"),
        (b'["text"]', "not_an_object"),
        (b'{"body": "x"}', "missing_column"),
        (b'{"text": 3}', "not_text"),
        (b'{"text": null}', "not_text"),
    ],
)
def test_bad_line_stops_the_run_with_its_number_unless_it_is_allowed(command_line, tmp_path, line, reason):
    lines = jsonl(TEXTS[:9]).splitlines(keepends=True)
    written(tmp_path / "a.jsonl", b"".join([*lines[:4], line + b"\n", *lines[4:]]))
    words = ("--input_files", "a.jsonl", "--out_dir", "out")
    message = command_line.refusal(*words, code=1)
    assert "1 of 10 records" in message
    assert "a.jsonl:5: " in message
    result = command_line.prepare(*words, "--max_bad_fraction", "0.1")
    assert result["stages"][0]["dropped"] == {reason: {"records": 1}}
    assert [example.startswith("a.jsonl:5: ") for example in result["stages"][0]["bad_examples"]] == [True]
    assert len(documents_in(tmp_path / "out")) == 9


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "a.jsonl"])
def test_wrong_column_lists_those_there_are(command_line, tmp_path, name):
    data = {"a.csv": csv_bytes(["x"]), "a.parquet": parquet(["x"]), "a.arrow": arrow(["x"]), "a.jsonl": jsonl(["x"])}
    written(tmp_path / name, data[name])
    message = command_line.refusal("--input_files", name, "--out_dir", "out", "--text_column", "body", code=1)
    assert name in message
    assert "'body'" in message
    assert "id" in message
    assert "text" in message.replace("--text_column", "")


def test_csv_row_with_too_many_fields_is_counted_by_its_number(command_line, tmp_path):
    written(tmp_path / "a.csv", "id,text\n1,one\n2,two,too,many\n3,three\n")
    result = command_line.prepare("--input_files", "a.csv", "--out_dir", "out", "--max_bad_fraction", "0.5")
    assert result["stages"][0]["dropped"] == {"wrong_number_of_fields": {"records": 1}}
    assert "a.csv:2: " in result["stages"][0]["bad_examples"][0]
    assert documents_in(tmp_path / "out") == ["one", "three"]


# Files that end too early

_TRUNCATED = {
    "a.txt.gz": COMPRESSED[".gz"](("\n".join(TEXTS)).encode()),
    "a.jsonl.zst": COMPRESSED[".zst"](jsonl(TEXTS)),
    "a.txt.xz": COMPRESSED[".xz"](("\n".join(TEXTS)).encode()),
    "a.parquet": parquet(TEXTS),
    "a.arrow": arrow(TEXTS),
    "b.arrow": arrow(TEXTS, stream=True),
    "a.parquet.gz": COMPRESSED[".gz"](parquet(TEXTS)),
    "a.json": json_array(TEXTS),
}


@pytest.mark.parametrize("name", _TRUNCATED)
def test_truncated_file_is_named_and_mended_by_a_good_one(
    command_line, tmp_path, bytes_under: BytesUnder, name: str
) -> None:
    good = _TRUNCATED[name]
    written(tmp_path / "first.txt", "text that is fine")
    written(tmp_path / name, good[: len(good) * 2 // 3])
    words = ("--input_files", "first.txt", name, "--out_dir")
    message = command_line.refusal(*words, "out", code=1)
    assert name in message
    assert not (tmp_path / "out" / "dataset_metadata.json").exists()
    written(tmp_path / name, good)
    mended, fresh = command_line.prepare(*words, "out"), command_line.prepare(*words, "fresh")
    assert mended | {"out_dir": ""} == fresh | {"out_dir": ""}
    assert bytes_under(tmp_path / "out") == bytes_under(tmp_path / "fresh")


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz"])
def test_file_that_is_not_compressed_as_it_says_is_named(command_line, tmp_path, suffix):
    written(tmp_path / f"a.txt{suffix}", "this was never compressed, whatever its name says")
    assert f"a.txt{suffix}: damaged" in command_line.refusal(
        "--input_files", f"a.txt{suffix}", "--out_dir", "out", code=1
    )


# Output directories that hold something else


@pytest.fixture
def finished(command_line, tmp_path) -> Path:
    """A dataset of a.txt in `out`."""
    written(tmp_path / "a.txt", "\n".join(TEXTS))
    command_line.prepare("--input_files", "a.txt", "--out_dir", "out")
    return tmp_path / "out"


def test_dataset_of_another_configuration_is_not_touched(command_line, finished, bytes_under):
    before = bytes_under(finished)
    message = command_line.refusal("--input_files", "a.txt", "--out_dir", "out", "--seed", "1", code=2)
    assert "seed is 0 there and 1 here" in message
    assert bytes_under(finished) == before


def test_dataset_of_other_inputs_is_not_touched(command_line, finished, bytes_under):
    before = bytes_under(finished)
    written(finished.parent / "b.txt", "other")
    message = command_line.refusal("--input_files", "b.txt", "--out_dir", "out", code=2)
    assert "inputs not in it: b.txt" in message
    assert "inputs no longer given: a.txt" in message
    assert bytes_under(finished) == before


def test_dataset_of_inputs_that_changed_since_is_not_touched(command_line, finished):
    written(finished.parent / "a.txt", "something else")
    message = command_line.refusal("--input_files", "a.txt", "--out_dir", "out", code=2)
    assert "inputs that changed since: a.txt" in message


def test_the_same_command_again_finds_the_dataset_finished(command_line, finished, bytes_under):
    before = bytes_under(finished)
    assert command_line.prepare("--input_files", "a.txt", "--out_dir", "out")["already_there"] is True
    assert bytes_under(finished) == before


def test_unfinished_work_of_another_configuration_is_refused(command_line, tmp_path):
    written(tmp_path / "a.txt", "fine")
    # Too many bad records are found when all has been read: work was done, and is kept.
    written(tmp_path / "b.jsonl", jsonl(TEXTS) + b"no JSON\n")
    words = ("--input_files", "a.txt", "b.jsonl", "--out_dir", "out")
    command_line.refusal(*words, code=1)
    message = command_line.refusal(*words, "--seed", "1", code=2)
    assert "unfinished work of another configuration" in message
    assert "seed is 0 there and 1 here" in message
    message = command_line.refusal("--input_files", "a.txt", "--out_dir", "out", code=2)
    assert "inputs no longer given: b.jsonl" in message


def test_out_dir_that_is_a_file_is_refused(command_line, tmp_path):
    written(tmp_path / "a.txt", "text")
    written(tmp_path / "out", "precious")
    assert "out: is a file" in command_line.refusal("--input_files", "a.txt", "--out_dir", "out", code=2)
    assert (tmp_path / "out").read_text() == "precious"


def test_out_dir_below_a_file_is_refused(command_line, tmp_path):
    written(tmp_path / "a.txt", "text")
    assert "a.txt" in command_line.refusal("--input_files", "a.txt", "--out_dir", "a.txt/out", code=2)


def test_out_dir_with_files_of_someone_else_is_refused(command_line, tmp_path):
    written(tmp_path / "a.txt", "text")
    foreign = written(tmp_path / "out" / "train" / "model.pt", "precious")
    message = command_line.refusal("--input_files", "a.txt", "--out_dir", "out", code=2)
    assert "out/train/model.pt" in message
    assert foreign.read_text() == "precious"
    assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / "train"]


def test_append_without_a_dataset_is_refused(command_line, tmp_path):
    written(tmp_path / "a.txt", "text")
    message = command_line.refusal("--input_files", "a.txt", "--out_dir", "out", "--append", code=1)
    assert "nothing to --append to" in message
    assert not (tmp_path / "out").exists()


# Words that do not fit


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--val_fraction", "2"), "--val_fraction must be from 0 to 1, got 2"),
        (("--val_fraction", "nan"), "--val_fraction must be from 0 to 1, got nan"),
        (("--val_fraction", "1"), "nothing to train on"),
        (("--tokens_per_shard", "0"), "--tokens_per_shard must be positive, got 0"),
        (("--max_memory", "lots"), "--max_memory 'lots'"),
        (("--max_memory", "10MB"), "--max_memory 10MB: one worker needs at least"),
        (("--tokenization", "bpe:3"), "--tokenization bpe:3: expected bpe:N"),
        (("--tokenization", "bpe:many"), "--tokenization bpe:many: expected bpe:N"),
        (("--workers", "-1"), "--workers must not be negative, got -1"),
        (("--seed", "-1"), "--seed must be from 0"),
        (("--document_separator", ""), "--document_separator must not be empty"),
    ],
)
def test_wrong_value_is_named_with_what_was_expected(command_line, tmp_path, words, named):
    written(tmp_path / "a.txt", "text")
    assert named in command_line.refusal("--input_files", "a.txt", "--out_dir", "out", *words, code=2)
    assert not (tmp_path / "out" / "dataset_metadata.json").exists()


def test_vocabulary_that_does_not_fit_the_dtype_is_refused(command_line, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {**{f"word{i}": i for i in range(70_000)}, "<eos>": 70_000}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="word0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    written(tmp_path / "a.txt", "word1 word69999")
    words = ("--input_files", "a.txt", "--out_dir", "out", "--tokenization", "tokenizer.json", "--token_dtype")
    message = command_line.refusal(*words, "uint16", code=2)
    assert "70,001 ids" in message
    assert "65,536" in message


@pytest.mark.parametrize("tokenization", ["missing.json", "broken.json", "empty.json", "no/such-model"])
def test_tokenizer_that_cannot_be_had_is_named(command_line, tmp_path, tokenization):
    written(tmp_path / "a.txt", "text")
    written(tmp_path / "broken.json", "{")
    written(tmp_path / "empty.json", "{}")
    words = ("--input_files", "a.txt", "--out_dir", "out", "--tokenization", tokenization)
    assert tokenization in command_line.refusal(*words, code=1)


@pytest.mark.parametrize("words", [("--tokenization", "none.json"), ("--tokenization", "bpe:3")])
def test_words_that_were_refused_do_not_stand_in_the_way_of_the_right_ones(command_line, tmp_path, words):
    written(tmp_path / "a.txt", "text")
    ran = command_line.run_here("prepare", "--input_files", "a.txt", "--out_dir", "out", *words)
    assert ran.code in (1, 2)
    assert not (tmp_path / "out").exists()
    command_line.prepare("--input_files", "a.txt", "--out_dir", "out")
    assert documents_in(tmp_path / "out") == ["text"]


@pytest.mark.parametrize(
    "words",
    [
        ("destroy", "everything"),
        ("prepare", "--out_dir", "out"),
        ("prepare", "--input_files", "a.txt"),
        ("prepare", "--input_files", "a.txt", "--out_dir", "out", "--tokens_per_shard", "ten"),
        ("prepare", "--input_files", "a.txt", "--out_dir", "out", "--dedup", "sometimes"),
        ("prepare", "--input_files", "a.txt", "--out_dir", "out", "--colour", "red"),
        ("show",),
        ("verify",),
    ],
)
def test_wrong_usage_exits_with_two_and_a_word_on_standard_error(command_line, tmp_path, words):
    written(tmp_path / "a.txt", "text")
    ran = command_line.run_here(*words)
    assert ran.code == 2
    assert ran.err.strip()
    assert ran.out == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["show", "verify"])
def test_directory_that_is_no_dataset_is_named(command_line, verb):
    assert "nowhere" in command_line.refusal("nowhere", code=1, verb=verb)


def test_file_name_that_is_not_unicode_is_no_obstacle_or_is_refused(command_line, tmp_path):
    name = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    Path(os.fsdecode(name)).write_text("text")
    ran = command_line.run(
        "prepare", "--input_files", name, "--out_dir", "out", "--tokenization", "byte", "--val_fraction", "0"
    )
    assert ran.code in (0, 1)
    if ran.code == 0:
        assert documents_in(tmp_path / "out") == ["text"]
    else:
        assert "caf" in ran.err


# Disks that are too small


def test_disk_too_small_by_estimate_is_refused_with_both_figures(command_line, tmp_path):
    path = written(tmp_path / "a.jsonl", jsonl(TEXTS * 100))
    # More than is free; all but the beginning takes no space.
    os.truncate(path, shutil.disk_usage(tmp_path).free)
    message = command_line.refusal("--input_files", "a.jsonl", "--out_dir", "out", code=1)
    assert "GB are needed" in message
    assert "GB are free" in message
    assert not (tmp_path / "out" / "dataset_metadata.json").exists()


_LIMITED = """
import resource, sys
from pathlib import Path
from penstock import PenstockError, PrepareConfig, prepare
source, out_dir, dedup, compress, workers, limit = sys.argv[1:]
if __name__ == "__main__":
    if limit != "none":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    config = PrepareConfig(
        input_files=(source,), out_dir=Path(out_dir), tokenization="byte", dedup=dedup, workers=int(workers),
        compress=compress == "yes", unit_bytes=8192,
    )
    try:
        prepare(config)
    except PenstockError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
"""


@pytest.mark.parametrize(
    ("dedup", "compress", "workers", "limit"),
    [
        ("lines", "no", "1", "4000"),  # the clean lines of a unit
        ("documents", "no", "1", "10000"),  # the ids of a unit
        ("none", "no", "1", "60000"),  # a shard
        ("none", "yes", "1", "24000"),  # a compressed shard
        ("none", "no", "2", "60000"),  # a shard, in another process
        ("none", "no", "1", "100"),  # the plan
    ],
)
def test_disk_that_fills_up_leaves_nothing_half_written_and_the_same_command_goes_on(
    command_line, tmp_path, bytes_under, dedup, compress, workers, limit
):
    program = written(tmp_path / "limited.py", _LIMITED)
    # Text that does not compress well, so that compressed shards are large as well.
    written(tmp_path / "a.jsonl", jsonl([Random(i).randbytes(30).hex() for i in range(1000)]))

    def run(out_dir: str, limit: str):
        return command_line.run("a.jsonl", out_dir, dedup, compress, workers, limit, program=(str(program),))

    full = run("out", limit)
    assert full.code == 1
    assert "run the same command again" in full.err
    assert [path for path in tmp_path.rglob("*.partial") if path.is_file()] == []
    assert not (tmp_path / "out" / "dataset_metadata.json").exists()
    assert run("out", "none").code == run("fresh", "none").code == 0
    assert bytes_under(tmp_path / "out") == bytes_under(tmp_path / "fresh")


_ON_SMALL_DISK = """
set -u
mount -t tmpfs -o size=1500k tmpfs disk || exit 77
"$@" --out_dir disk/out >full.out 2>full.err
echo $? >full.code
find disk -name '*.partial' >full.partials
mount -o remount,size=64m disk
"$@" --out_dir disk/out >/dev/null 2>again.err
echo $? >again.code
cp -r disk/out copied
"""


def test_file_system_that_fills_up_is_survived_by_the_same_command(command_line, tmp_path, bytes_under):
    # So repetitive that no estimate from its stored size can foresee how much it holds.
    written(tmp_path / "a.txt.gz", COMPRESSED[".gz"](b"the same again and again, " * 40_000))
    (tmp_path / "disk").mkdir()
    words = ("-m", "penstock", "prepare", "--input_files", "a.txt.gz", "--tokenization", "byte", "--val_fraction", "0")
    mounted = subprocess.run(
        ["unshare", "-m", "sh", "-c", _ON_SMALL_DISK, "sh", sys.executable, *words, "--workers", "1"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a file system here: {mounted.stderr.decode()}")
    assert (tmp_path / "full.code").read_text() == "1\n"
    assert "run the same command again" in (tmp_path / "full.err").read_text()
    assert "Traceback" not in (tmp_path / "full.err").read_text()
    assert (tmp_path / "full.out").read_text() == ""
    assert (tmp_path / "full.partials").read_text() == ""
    assert (tmp_path / "again.code").read_text() == "0\n", (tmp_path / "again.err").read_text()
    command_line.prepare("--input_files", "a.txt.gz", "--out_dir", "fresh")
    assert bytes_under(tmp_path / "copied") == bytes_under(tmp_path / "fresh")


def test_result_is_json_that_a_program_can_read_even_after_bad_records(command_line, tmp_path):
    written(tmp_path / "a.jsonl", jsonl(TEXTS) + b'oops \xff "\n')
    ran = command_line.run(
        "prepare", "--input_files", "a.jsonl", "--out_dir", "out", "--max_bad_fraction", "1", "--json"
    )
    assert ran.code == 0
    assert json.loads(ran.out)["stages"][0]["dropped"]["not_json"] == {"records": 1}
