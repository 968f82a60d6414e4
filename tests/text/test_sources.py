"""Every format, compressed or not, cut into units anywhere: the same documents, each once and in order."""

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import InputError
from tests.text.builders import (
    COMPRESSED,
    arrow,
    csv_bytes,
    documents_in,
    json_array,
    json_concatenated,
    jsonl,
    parquet,
    prepared,
    rows_in,
    smaller,
    written,
)

TEXTS = [
    'He said "yes", and\nthen, on a new line, "no".',
    "plain",
    '"',
    'quotes at the end ""',
    "comma, tab\tand a\r\nWindows newline",
    "naïve café 日本語 \U0001f600",
    "two\n\nparagraphs\n",
    " spaces kept ",
    "backslash \\n and \\",
    "\u2028 separators \u0085 inside",
]
SEPARATOR = "\n%%\n"
KINDS: dict[str, Callable[[list[str]], bytes]] = {
    "array.json": json_array,
    "concatenated.json": json_concatenated,
    "lines.json": jsonl,
    "lines.jsonl": jsonl,
    "lines.ndjson": jsonl,
    "minimal.csv": csv_bytes,
    "quoted.csv": lambda texts: csv_bytes(texts, quoting=csv.QUOTE_ALL, lineterminator="\r\n"),
    "groups.parquet": parquet,
    "file.arrow": arrow,
    "stream.arrow": lambda texts: arrow(texts, stream=True),
    "file.feather": arrow,
    "separated.txt": lambda texts: SEPARATOR.join(texts).encode(),
    "separated.md": lambda texts: (SEPARATOR.join(texts) + SEPARATOR).encode(),
}
# Anything UTF-8 can write, with what formats trip over drawn often.
ANY_TEXT = st.text(st.one_of(st.sampled_from('\n\r",\\ \t\u2028é😀a'), st.characters(exclude_categories=["Cs"])))
FULL_TEXTS = st.lists(ANY_TEXT.filter(bool), min_size=1, max_size=12)
UNIT_BYTES = st.integers(8, 200)
# Not minimal quotes with "\n": there Python writes a lone "\r" as it is, which ends a row for everyone else.
CSV_STYLES = [(csv.QUOTE_ALL, "\n"), (csv.QUOTE_ALL, "\r\n"), (csv.QUOTE_MINIMAL, "\r\n"), (csv.QUOTE_NONNUMERIC, "\n")]


@pytest.fixture(params=[False, True], ids=["whole", "in pieces"])
def piecewise(request) -> Iterator[None]:
    """Once as it is, and once with blocks so small that documents come in pieces."""
    with smaller(16, 24) if request.param else nullcontext():
        yield


def documents_of(name: str, data: bytes, **settings) -> list[str]:
    return [text for _, text in records_of(name, data, **settings)]


def records_of(name: str, data: bytes, **settings) -> list[tuple[int, str]]:
    """Record and text of the documents that `prepare` finds in a file."""
    with TemporaryDirectory() as directory:
        path = written(Path(directory) / name, data)
        prepared(path, Path(directory) / "out", max_bad_fraction=1.0, **settings)
        return [(record, text) for _, record, text in rows_in(Path(directory) / "out")]


# Formats


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("name", KINDS)
def test_every_format_gives_the_same_documents(tmp_path, piecewise, name, suffix):
    path = written(tmp_path / (name + suffix), COMPRESSED[suffix](KINDS[name](TEXTS)))
    prepared(path, tmp_path / "out", document_separator=SEPARATOR, unit_bytes=64)
    assert rows_in(tmp_path / "out") == [(str(path), number, text) for number, text in enumerate(TEXTS, 1)]


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.text"])
def test_text_file_is_one_document_to_the_byte(tmp_path, piecewise, name, suffix):
    text = "\n".join(TEXTS)
    path = written(tmp_path / (name + suffix), COMPRESSED[suffix](text.encode()))
    prepared(path, tmp_path / "out", unit_bytes=64)
    assert rows_in(tmp_path / "out") == [(str(path), 1, text)]


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_json_file_may_be_one_object(tmp_path, piecewise, suffix):
    path = written(tmp_path / f"a.json{suffix}", COMPRESSED[suffix](json.dumps({"text": TEXTS[0]}).encode()))
    prepared(path, tmp_path / "out")
    assert documents_in(tmp_path / "out") == [TEXTS[0]]


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz"])
def test_compressed_members_laid_end_to_end_are_all_read(tmp_path, suffix):
    data = b"".join(COMPRESSED[suffix](jsonl([text])) for text in TEXTS)
    path = written(tmp_path / f"a.jsonl{suffix}", data)
    prepared(path, tmp_path / "out")
    assert documents_in(tmp_path / "out") == TEXTS


def test_inputs_keep_their_order_and_each_file_counts_once(tmp_path):
    for name in ("d/b.txt", "d/a.txt", "d/deep/c.txt", "z.txt"):
        written(tmp_path / name, name)
    inputs = [tmp_path / "z.txt", tmp_path / "d", tmp_path / "d" / "*.txt", tmp_path / "z.txt"]
    prepared(inputs, tmp_path / "out", unit_bytes=8)
    assert documents_in(tmp_path / "out") == ["z.txt", "d/a.txt", "d/b.txt", "d/deep/c.txt"]


def test_utf16_is_refused_wherever_the_file_is_cut(tmp_path):
    path = written(tmp_path / "a.txt", "\ufefflong enough for several units".encode("utf-16-le"))
    for number, settings in enumerate(({}, {"document_separator": "\\n"})):
        with pytest.raises(InputError, match="iconv"):
            prepared(path, tmp_path / f"out{number}", unit_bytes=16, **settings)


@pytest.mark.parametrize("name", ["separated.txt", "lines.jsonl", "minimal.csv"])
def test_byte_order_mark_is_no_text_wherever_the_file_is_cut(piecewise, name):
    data = b"\xef\xbb\xbf" + KINDS[name](TEXTS)
    assert documents_of(name, data, document_separator=SEPARATOR, unit_bytes=64) == TEXTS


# Properties


@given(texts=FULL_TEXTS, unit_bytes=UNIT_BYTES, ascii_only=st.booleans())
def test_json_lines_come_out_once_and_in_order(texts, unit_bytes, ascii_only):
    data = "".join(json.dumps({"text": text}, ensure_ascii=ascii_only) + "\n" for text in texts).encode()
    assert records_of("a.jsonl", data, unit_bytes=unit_bytes) == list(enumerate(texts, 1))


@given(
    lines=st.lists(st.one_of(ANY_TEXT.filter(bool), st.none(), st.just(0)), min_size=1, max_size=12),
    unit_bytes=UNIT_BYTES,
    newline=st.sampled_from(["\n", "\r\n"]),
    at_end=st.booleans(),
)
def test_json_lines_are_numbered_through_blank_and_bad_ones(lines, unit_bytes, newline, at_end):
    written_as = ["" if line is None else "[1" if line == 0 else json.dumps({"text": line}) for line in lines]
    data = newline.join(written_as) + (newline if at_end else "")
    expected = [(number, line) for number, line in enumerate(lines, 1) if isinstance(line, str)]
    assert records_of("a.jsonl", (data or "\n").encode(), unit_bytes=unit_bytes) == expected


@st.composite
def separated(draw) -> tuple[str, str]:
    """A separator, and text in which it, and parts of it, are common."""
    separator = draw(st.sampled_from(["\n\n", "aa", "--", "<|endoftext|>", "aba", "é😀", "\n"]))
    parts = [separator, separator[:1], separator[1:], *"a\n b-é"]
    return separator, "".join(draw(st.lists(st.sampled_from(parts), min_size=1, max_size=60)))


def documents_between(separator: str, text: str) -> list[str]:
    """What `--document_separator` promises: `str.split`, without empty documents and a blank last one."""
    documents = text.split(separator)
    if not documents[-1].strip():
        documents.pop()
    return [document for document in documents if document]


@given(case=separated(), unit_bytes=UNIT_BYTES)
@example(case=("aa", "a" * 99), unit_bytes=8)
@example(case=("\n\n", "x\n\n\ny\n\n\n\n\nz" * 9), unit_bytes=9)
def test_separated_documents_are_those_of_split(case, unit_bytes):
    separator, text = case
    found = documents_of("a.txt", text.encode(), document_separator=separator, unit_bytes=unit_bytes)
    assert found == documents_between(separator, text)


@given(case=separated(), unit_bytes=UNIT_BYTES, chunk=st.integers(4, 40), block=st.integers(8, 40))
def test_separated_documents_in_pieces_are_those_of_split(case, unit_bytes, chunk, block):
    separator, text = case
    with smaller(chunk, block):
        found = documents_of("a.txt", text.encode(), document_separator=separator, unit_bytes=unit_bytes)
    assert found == documents_between(separator, text)


@given(case=separated(), suffix=st.sampled_from([".gz", ".zst", ".xz"]), chunk=st.integers(8, 40))
def test_separated_documents_of_a_compressed_file_are_those_of_split(case, suffix, chunk):
    separator, text = case
    with smaller(chunk, chunk):
        found = documents_of(f"a.txt{suffix}", COMPRESSED[suffix](text.encode()), document_separator=separator)
    assert found == documents_between(separator, text)


@given(case=separated(), unit_bytes=UNIT_BYTES)
def test_separated_documents_are_numbered_by_their_place_between_separators(case, unit_bytes):
    separator, text = case
    found = records_of("a.txt", text.encode(), document_separator=separator, unit_bytes=unit_bytes)
    places = text.split(separator)
    assert [places[record - 1] for record, _ in found] == [document for _, document in found]
    assert [record for record, _ in found] == sorted({record for record, _ in found})


@given(text=ANY_TEXT.filter(bool), repeat=st.integers(1, 5), unit_bytes=UNIT_BYTES)
def test_file_that_is_one_document_keeps_every_byte(text, repeat, unit_bytes):
    whole = text * repeat
    assert documents_of("a.txt", whole.encode(), unit_bytes=unit_bytes) == [whole.removeprefix("\ufeff")]


@given(
    text=st.text("ab \n\té😀", min_size=1, max_size=300),
    unit_bytes=UNIT_BYTES,
    chunk=st.integers(4, 40),
    block=st.integers(8, 40),
)
def test_document_in_pieces_keeps_every_byte(text, unit_bytes, chunk, block):
    with smaller(chunk, block):
        assert documents_of("a.txt", text.encode(), unit_bytes=unit_bytes) == [text]


@given(
    texts=FULL_TEXTS,
    unit_bytes=UNIT_BYTES,
    style=st.sampled_from(CSV_STYLES),
    step=st.integers(8, 64),
)
def test_csv_rows_come_out_once_and_in_order(texts, unit_bytes, style, step):
    data = csv_bytes(texts, quoting=style[0], lineterminator=style[1])
    with smaller(step, step):
        found = records_of("a.csv", data, unit_bytes=unit_bytes)
    assert found == list(enumerate(texts, 1))


@given(
    rows=st.lists(st.tuples(st.text('ab\n",é', min_size=1), st.integers(1, 3)), min_size=1, max_size=12),
    unit_bytes=UNIT_BYTES,
)
def test_csv_rows_are_numbered_through_bad_ones(rows, unit_bytes):
    quoted = [",".join(['"' + text.replace('"', '""') + '"'] * count) for text, count in rows]
    data = "\n".join(["text,note", *quoted]) + "\n"
    with smaller(16, 16):
        found = records_of("a.csv", data.encode(), unit_bytes=unit_bytes)
    assert found == [(number, text) for number, (text, count) in enumerate(rows, 1) if count == 2]


@given(
    texts=st.lists(st.one_of(ANY_TEXT.filter(bool), st.none()), min_size=1, max_size=20),
    make=st.sampled_from([parquet, arrow, lambda texts: arrow(texts, stream=True)]),
    unit_bytes=st.integers(100, 2000),
)
def test_rows_of_tables_are_numbered_through_those_without_text(texts, make, unit_bytes):
    name = "a.parquet" if make is parquet else "a.arrow"
    if not any(texts):
        texts = [*texts, "some text"]
    found = records_of(name, make(texts), unit_bytes=unit_bytes)
    assert found == [(number, text) for number, text in enumerate(texts, 1) if text is not None]


@given(texts=FULL_TEXTS, chunk=st.integers(8, 60), make=st.sampled_from([json_array, json_concatenated]))
def test_json_values_come_out_once_and_in_order_however_they_are_read(texts, chunk, make):
    with smaller(chunk, chunk):
        assert records_of("a.json", make(texts)) == list(enumerate(texts, 1))
