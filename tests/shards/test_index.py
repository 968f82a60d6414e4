"""The index: what was written comes back, and nothing else is believed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ManifestError
from penstock.shards.index import Index, index_bytes, parsed_index


@st.composite
def indexes(draw: st.DrawFn) -> Index:
    sizes = draw(st.lists(st.integers(1, 1000), max_size=30))
    ends = np.cumsum(np.array(sizes, np.uint64)).astype(np.uint64)
    num_tokens = int(ends[-1]) if sizes else 0
    token_bytes, block_bytes = draw(st.sampled_from([2, 4])), draw(st.sampled_from([64, 4096]))
    num_blocks = -(-num_tokens * token_bytes // block_bytes)
    frames = np.cumsum(draw(st.lists(st.integers(1, 99), min_size=num_blocks, max_size=num_blocks)), dtype=np.uint64)
    return Index(
        token_bytes=token_bytes,
        block_bytes=block_bytes,
        num_tokens=num_tokens,
        first_document=draw(st.integers(0, 1 << 40)),
        document_ends=ends,
        document_source=np.arange(len(sizes), dtype=np.uint32),
        document_record=np.arange(len(sizes), dtype=np.uint64) + np.uint64(1 << 33),
        block_hashes=np.arange(32 * num_blocks, dtype=np.int64).astype(np.uint8).reshape(num_blocks, 32),
        frame_ends=frames if draw(st.booleans()) else None,
    )


@given(indexes())
@settings(max_examples=300, deadline=None)
def test_what_is_written_comes_back(index: Index) -> None:
    again = parsed_index(index_bytes(index), where="test")
    for name in Index.__dataclass_fields__:
        assert np.array_equal(getattr(again, name), getattr(index, name)), name


@given(indexes(), st.data())
@settings(max_examples=1500, deadline=None)
def test_a_damaged_index_is_refused_or_still_fits_together(index: Index, data: st.DataObject) -> None:
    """Bytes flipped, cut off or added: an error of ours, or an index whose numbers agree with each other."""
    raw = bytearray(index_bytes(index))
    for _ in range(data.draw(st.integers(1, 4))):
        how = data.draw(st.sampled_from(["flip", "cut", "add"]))
        at = data.draw(st.integers(0, max(0, min(len(raw) - 1, 200))))
        if how == "flip" and raw:
            raw[at] ^= data.draw(st.integers(1, 255))
        elif how == "cut":
            del raw[at:]
        else:
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    try:
        got = parsed_index(bytes(raw), where="test")
    except ManifestError:
        return
    ends = got.document_ends.astype(object)
    assert (list(ends) == sorted(set(ends))) and (ends[-1] if len(ends) else 0) == got.num_tokens
    assert len(got.block_hashes) == -(-got.num_tokens * got.token_bytes // got.block_bytes)


@pytest.mark.parametrize("raw", [b"", b"PENSTIDX", b"\0" * 64, b"PENSTIDX" + b"\xff" * 56, b"PENSTIDX" + b"\0" * 56])
def test_rubbish_is_refused(raw: bytes) -> None:
    with pytest.raises(ManifestError):
        parsed_index(raw, where="test")
