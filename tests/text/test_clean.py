"""What cleaning promises, on text that is mostly blanks, newlines and oddities."""

import re
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.text.clean import cleaned
from penstock.text.sources.block import WHOLE
from tests.text.builders import documents_in, prepared, smaller, written

# Newlines of every kind, blanks, controls, a letter with its accents, and a blank that is none of ours.
ALPHABET = "ab  \t\t\n\n\n\r\x85\u2028\u2029\0\x1b\x7f\x9f\x0b\x0ce\u0301\u0327é\u1100\u1161\xa0\u3000\ufeff😀"
TEXT = st.text(ALPHABET, max_size=60)
EXAMPLES = settings(max_examples=400)


def clean(text: str) -> str:
    """One document, cleaned; "" if nothing is left."""
    return clean_all([text])[0]


def clean_all(texts: list[str]) -> list[str]:
    lines = cleaned(texts, np.full(len(texts), WHOLE, np.uint8))
    return [text or "" for text in lines.joined()]


def slowly_clean(text: str) -> str:
    """The same, step by step."""
    for newline in ("\r\n", "\r", "\x85", "\u2028", "\u2029"):
        text = text.replace(newline, "\n")
    text = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")
    lines = [clean_line(line) for line in unicodedata.normalize("NFC", text).split("\n")]
    kept: list[str] = []
    for line in lines:
        if line or (kept and kept[-1]):
            kept.append(line)
    if kept and not kept[-1]:
        kept.pop()
    return "\n".join(kept)


def clean_line(line: str) -> str:
    line = line.rstrip(" \t")
    body = line.lstrip(" \t")
    indentation = line[: len(line) - len(body)]
    return indentation + re.sub("[ \t]{2,}", " ", body)


@EXAMPLES
@given(text=TEXT)
@example(text="a \t\0 b")
@example(text="e\0\u0301")
@example(text="a" + " " * 100 + "b" + "\t" * 100 + "\n" + " " * 100 + "c" + " " * 100)
@example(text="\u212b \u2126 \uac01")
def test_cleaning_is_what_the_slow_way_gives(text):
    assert clean(text) == slowly_clean(text)


@EXAMPLES
@given(texts=st.lists(TEXT, min_size=1, max_size=8))
def test_documents_cleaned_together_are_cleaned_as_if_alone(texts):
    assert clean_all(texts) == [slowly_clean(text) for text in texts]


@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=8))
def test_any_unicode_is_cleaned_as_the_slow_way_does(texts):
    texts = [text.encode(errors="replace").decode() for text in texts]
    assert clean_all(texts) == [slowly_clean(text) for text in texts]


@EXAMPLES
@given(text=TEXT)
def test_cleaning_twice_is_cleaning_once(text):
    assert clean(clean(text)) == clean(text)


@EXAMPLES
@given(text=TEXT)
def test_clean_text_is_composed(text):
    assert unicodedata.is_normalized("NFC", clean(text))


@EXAMPLES
@given(text=TEXT)
def test_clean_text_has_no_control_characters_but_newline_and_tab(text):
    assert {c for c in clean(text) if unicodedata.category(c) == "Cc"} <= {"\n", "\t"}
    assert not set(clean(text)) & {"\u2028", "\u2029"}


@EXAMPLES
@given(text=TEXT)
def test_clean_text_has_no_spare_blanks(text):
    lines = clean(text).split("\n")
    assert [line for line in lines if line.endswith((" ", "\t"))] == []
    assert [line for line in lines if re.search(r"[^ \t][ \t]{2,}", line)] == []
    assert "\n\n\n" not in clean(text)
    assert lines == [""] or (lines[0] and lines[-1])


@given(indentation=st.text(" \t", max_size=50), word=st.text("ab", min_size=1), before=st.text("ab\n"))
def test_indentation_is_kept(indentation, word, before):
    text = f"{before}|\n{indentation}{word}"
    assert clean(text).endswith(f"|\n{indentation}{word}")


def test_single_tab_inside_a_line_is_kept():
    assert clean("a\tb") == "a\tb"


# Lines short enough to be cut at their ends, and what may be torn apart there.
LINES = st.lists(st.text("ab  \t\r\0é\u0301", max_size=6), min_size=1, max_size=40).map("\n".join).filter(bool)


@given(text=LINES, unit_bytes=st.integers(8, 60))
@example(text="aaaaaa\r\na", unit_bytes=8)
@example(text="aaaaaa\n\n\n\na", unit_bytes=8)
def test_document_over_several_units_is_cleaned_as_if_whole(text, unit_bytes):
    assert prepared_text(text, unit_bytes=unit_bytes) == slowly_clean(text)


@given(text=LINES, chunk=st.integers(16, 60), dedup=st.sampled_from(["none", "documents"]))
@example(text="a" * 14 + "\r\na", chunk=16, dedup="none")
def test_document_in_pieces_is_cleaned_as_if_whole(text, chunk, dedup):
    with smaller(chunk, chunk):
        assert prepared_text(text, dedup=dedup) == slowly_clean(text)


WORDS = st.lists(st.sampled_from(["ab", "aé", "e\u0301a\u0301b", "ééé", "a" * 30]), min_size=1, max_size=20)


@given(text=st.builds(str.join, st.sampled_from([" ", "  ", "\t", " \t "]), WORDS), chunk=st.integers(16, 24))
@example(text="a" * 20 + "\u0301" + "b" * 20, chunk=20)
def test_line_longer_than_a_block_is_cleaned_as_if_whole(text, chunk):
    with smaller(chunk, chunk):
        assert prepared_text(text) == slowly_clean(text)


def prepared_text(text: str, **settings: Any) -> str:
    """The text of a file that is one document, as it comes out of a dataset; "" if it has none."""
    with TemporaryDirectory() as directory:
        path = written(Path(directory) / "a.txt", text)
        prepared(path, Path(directory) / "out", normalize=True, **settings)
        return "".join(documents_in(Path(directory) / "out"))
