"""Documents that share a row do not see each other."""

import itertools

import pytest
import torch

from penstock.model.attention import attended, padded_bounds, same_document
from penstock.model.gpt import IGNORED

from .builders import VARIANTS, made, shape

SEQ_LEN = 16
ROWS = ((5, 1, 10), (16,), (1, 1, 7, 4, 3))
"""The lengths of the documents in each row."""


def packed() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random ids in rows, positions that begin again with each document, and bounds."""
    ids_BT = torch.randint(0, 64, (len(ROWS), SEQ_LEN), generator=torch.Generator().manual_seed(1))
    positions_BT = torch.stack([torch.cat([torch.arange(length) for length in row]) for row in ROWS])
    bounds_S = torch.tensor([0, *itertools.accumulate(length for row in ROWS for length in row)], dtype=torch.int32)
    return ids_BT, positions_BT, bounds_S


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_document_in_a_packed_row_has_the_logits_that_it_has_alone(variant: str) -> None:
    model = made(shape(**VARIANTS[variant]))
    ids_BT, positions_BT, bounds_S = packed()
    together_PV = model(ids_BT, None, positions_BT, bounds_S).flatten(0, 1)
    for start, stop in itertools.pairwise(bounds_S.tolist()):
        alone_PV = model(ids_BT.flatten()[None, start:stop])[0]
        torch.testing.assert_close(together_PV[start:stop], alone_PV, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_another_document_in_the_row_changes_no_bit_of_the_loss_of_this_one() -> None:
    model = made(shape(num_kv_heads=2, qk_norm=True))
    ids_BT, positions_BT, bounds_S = packed()
    labels_BT = torch.full_like(ids_BT, IGNORED)
    labels_BT[0, 6:15] = ids_BT[0, 7:16]
    before = model(ids_BT, labels_BT, positions_BT, bounds_S)
    ids_BT[0, :6] = (ids_BT[0, :6] + 1) % 64
    ids_BT[1:] = (ids_BT[1:] + 1) % 64
    assert torch.equal(model(ids_BT, labels_BT, positions_BT, bounds_S), before)


@torch.no_grad()
def test_without_bounds_a_row_is_one_document_and_no_position_sees_a_later_one() -> None:
    model = made(shape())
    ids_BT, _, _ = packed()
    logits_BTV = model(ids_BT)
    whole_S = torch.arange(0, ids_BT.numel() + 1, SEQ_LEN, dtype=torch.int32)
    torch.testing.assert_close(model(ids_BT, None, None, whole_S), logits_BTV, rtol=1e-4, atol=1e-5)
    changed_BT = ids_BT.clone()
    changed_BT[:, 9] = (changed_BT[:, 9] + 1) % 64
    changed_BTV = model(changed_BT)
    torch.testing.assert_close(changed_BTV[:, :9], logits_BTV[:, :9], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(changed_BTV[:, 9:], logits_BTV[:, 9:], atol=1e-2)


def test_the_mask_lets_a_position_see_itself_and_what_is_before_it_in_its_document() -> None:
    _, _, bounds_S = packed()
    mask_BTT = same_document(bounds_S, len(ROWS), SEQ_LEN)[:, 0]
    for number, row in enumerate(ROWS):
        document = [name for name, length in enumerate(row) for _ in range(length)]
        wanted = [[document[i] == document[j] and j <= i for j in range(SEQ_LEN)] for i in range(SEQ_LEN)]
        assert mask_BTT[number].tolist() == wanted


@torch.no_grad()
@pytest.mark.parametrize("num_bounds", [2, 63, 64, 65, 129, 200])
def test_padded_bounds_repeat_the_end_up_to_a_power_of_two(num_bounds: int) -> None:
    bounds_S = torch.arange(num_bounds, dtype=torch.int32)
    padded_S = padded_bounds(bounds_S)
    assert padded_S.dtype == torch.int32
    assert torch.equal(padded_S[:num_bounds], bounds_S)
    assert set(padded_S[num_bounds:].tolist()) <= {num_bounds - 1}
    assert len(padded_S) >= max(64, num_bounds)
    assert len(padded_S).bit_count() == 1


@torch.no_grad()
def test_padded_bounds_change_nothing() -> None:
    _, _, bounds_S = packed()
    q, k, v = torch.randn(3, len(ROWS), SEQ_LEN, 4, 8, generator=torch.Generator().manual_seed(2))
    assert torch.equal(attended(q, k, v, padded_bounds(bounds_S)), attended(q, k, v, bounds_S))


@torch.no_grad()
@pytest.mark.parametrize("masked", [False, True])
def test_the_loss_is_the_sum_over_positions_that_have_a_label(masked: bool) -> None:
    model = made(shape())
    ids_BT, positions_BT, bounds_S = packed()
    where = (positions_BT, bounds_S) if masked else (None, None)
    labels_BT = ids_BT.roll(-1, dims=1)
    labels_BT[:, -1] = IGNORED
    logits_BTV = model(ids_BT, None, *where)
    logs_BTV = logits_BTV.double().log_softmax(-1)
    wanted = -sum(float(logs_BTV[row, at, labels_BT[row, at]]) for row in range(len(ROWS)) for at in range(SEQ_LEN - 1))
    assert float(model(ids_BT, labels_BT, *where)) == pytest.approx(wanted, rel=1e-5)
