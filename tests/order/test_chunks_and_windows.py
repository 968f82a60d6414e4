"""Rows cut from the stream, and passes that stay inside windows of shards."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.order.best_fit import runs
from penstock.order.chunks import ChunkRows
from penstock.order.shuffle import FullShuffle, NoShuffle, WindowShuffle

TOKENS = st.lists(st.integers(1, 200) | st.integers(1, 5), min_size=1, max_size=12)
KEYS = st.integers(0, 2**64 - 1)


@given(TOKENS, st.integers(1, 60))
@settings(max_examples=150)
def test_every_token_is_in_exactly_one_row(shard_tokens: list[int], seq_len: int) -> None:
    rows = ChunkRows(shard_tokens, seq_len)
    found = rows.segments(np.arange(rows.num_rows), 0)
    bases = np.cumsum(shard_tokens) - shard_tokens
    stream = runs(bases[found.shard] + found.start, found.length)
    assert (stream == np.arange(sum(shard_tokens))).all()
    assert rows.num_tokens == sum(shard_tokens)
    assert rows.num_rows == sum(-(-tokens // seq_len) for tokens in shard_tokens)
    assert found.length.max() <= seq_len
    assert rows.costs(np.arange(rows.num_rows)) is None


@given(TOKENS, st.integers(1, 60))
@settings(max_examples=100)
def test_a_row_has_a_label_for_its_last_token_unless_the_shard_ends_there(
    shard_tokens: list[int], seq_len: int
) -> None:
    rows = ChunkRows(shard_tokens, seq_len)
    found = rows.segments(np.arange(rows.num_rows), 0)
    sizes = np.array(shard_tokens)[found.shard]
    assert (found.goes_on == (found.start + found.length < sizes)).all()
    assert (found.length[found.goes_on] == seq_len).all()


@given(TOKENS, st.integers(1, 60), st.data())
@settings(max_examples=100)
def test_one_row_is_found_as_many_are(shard_tokens: list[int], seq_len: int, data: st.DataObject) -> None:
    rows = ChunkRows(np.array(shard_tokens), seq_len)
    which = np.array(data.draw(st.lists(st.integers(0, rows.num_rows - 1), min_size=1, max_size=10)))
    found = rows.segments(which, 0)
    many = zip(found.shard.tolist(), found.start.tolist(), found.length.tolist(), strict=True)
    assert list(many) == [rows.segment(row) for row in which.tolist()]
    assert found.row.tolist() == list(range(len(which)))


def test_every_pass_cuts_the_stream_in_the_same_rows() -> None:
    rows = ChunkRows([100, 37], 16)
    every = np.arange(rows.num_rows)
    assert (rows.segments(every, 0).start == rows.segments(every, 7).start).all()


SHARD_ROWS = st.lists(st.integers(1, 40), min_size=1, max_size=15)


@given(SHARD_ROWS, st.integers(1, 120), KEYS, st.integers(0, 9))
@settings(max_examples=150)
def test_a_windowed_pass_shows_every_row_exactly_once(
    shard_rows: list[int], window_rows: int, key: int, epoch: int
) -> None:
    shuffle = WindowShuffle(np.array(shard_rows), window_rows=window_rows, key=key)
    total = sum(shard_rows)
    rows = shuffle.rows(np.arange(total), epoch)
    assert (np.sort(rows) == np.arange(total)).all()
    some = np.arange(0, total, 3)[::-1]
    assert (shuffle.rows(some, epoch) == rows[some]).all()
    assert shuffle.row(total - 1, epoch) == rows[-1]


@given(SHARD_ROWS, st.integers(1, 120), KEYS, st.integers(0, 9))
@settings(max_examples=150)
def test_the_rows_of_a_window_come_together_and_fit_it(
    shard_rows: list[int], window_rows: int, key: int, epoch: int
) -> None:
    shuffle = WindowShuffle(np.array(shard_rows), window_rows=window_rows, key=key)
    windows = [window.tolist() for window in shuffle.windows(epoch)]
    assert sorted(shard for window in windows for shard in window) == list(range(len(shard_rows)))
    shard_of_row = np.repeat(np.arange(len(shard_rows)), shard_rows)
    order = shuffle.rows(np.arange(sum(shard_rows)), epoch)
    at = 0
    for number, window in enumerate(windows):
        size = sum(shard_rows[shard] for shard in window)
        assert size <= window_rows or len(window) == 1, "a window holds more than it may"
        if number + 1 < len(windows):
            assert size + shard_rows[windows[number + 1][0]] > window_rows, "the next shard would have fitted"
        assert set(shard_of_row[order[at : at + size]].tolist()) == set(window)
        at += size


def test_a_window_over_everything_mixes_everything() -> None:
    shard_rows = np.full(20, 50)
    order = WindowShuffle(shard_rows, window_rows=1000, key=3).rows(np.arange(1000), 0)
    shards_of_first_rows = set((order[:100] // 50).tolist())
    assert len(shards_of_first_rows) > 15
    narrow = WindowShuffle(shard_rows, window_rows=100, key=3).rows(np.arange(1000), 0)
    assert len(set((narrow[:100] // 50).tolist())) == 2


@pytest.mark.parametrize("window_rows", [1, 100, 500])
def test_another_pass_has_other_windows_and_another_order_inside(window_rows: int) -> None:
    shuffle = WindowShuffle(np.full(20, 50), window_rows=window_rows, key=3)
    index = np.arange(1000)
    orders = [shuffle.rows(index, epoch) for epoch in range(4)]
    assert len({order.tobytes() for order in orders}) == 4
    assert len({b"".join(window.tobytes() for window in shuffle.windows(epoch)) for epoch in range(4)}) == 4
    # Two passes are remembered: those forgotten come back the same.
    assert (shuffle.rows(index, 0) == orders[0]).all()


@given(st.integers(1, 3000), KEYS, st.integers(0, 9))
@settings(max_examples=100)
def test_a_full_shuffle_shows_every_row_exactly_once_and_no_shuffle_leaves_them(
    num_rows: int, key: int, epoch: int
) -> None:
    index = np.arange(num_rows)
    assert (np.sort(FullShuffle(num_rows, key=key).rows(index, epoch)) == index).all()
    assert (NoShuffle().rows(index, epoch) == index).all()
    assert NoShuffle().row(num_rows - 1, epoch) == num_rows - 1
