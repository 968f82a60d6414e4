"""What is in a batch, against rows worked out slowly from the shards."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import PrepareConfig, prepare
from penstock.load.batch import Batch
from penstock.load.dataset import Dataset
from penstock.load.loader import Loader
from penstock.load.mixture import Mixture
from penstock.load.plan import Plan, RowKind
from penstock.order.items import LongDocuments

from .builders import SHARDS, Shards, every_token, natural_shards, plain_row, plain_sources, tokens_in, written

Kind = Literal["int64", "int32", "native"]


def check_batch(batch: Batch, plan: Plan, sources: list[Any], *, shift_labels: bool) -> None:
    """Everything in a batch is what the plain rows say."""
    rows = [plain_row(plan, number, sources, shift_labels=shift_labels) for number in batch.rows.tolist()]
    assert np.asarray(batch.input_ids).tolist() == [row.ids for row in rows]
    assert np.asarray(batch.labels).tolist() == [row.labels for row in rows]
    assert np.asarray(batch.position_ids).tolist() == [row.positions for row in rows]
    assert np.asarray(batch.doc_ids).tolist() == [row.documents for row in rows]
    ends = np.cumsum([0, *(run for row in rows for run in row.segments)]).tolist()
    assert np.asarray(batch.cu_seqlens).tolist() == ends
    assert np.asarray(batch.cu_seqlens).dtype == np.int32
    assert batch.max_seqlen == max(run for row in rows for run in row.segments)
    assert batch.num_labels == sum(label != -100 for row in rows for label in row.labels)
    assert batch.num_positions == len(rows) * plan.seq_len


@given(
    shards=SHARDS,
    seq_len=st.integers(1, 24),
    kind=st.sampled_from(["chunk", "best_fit"]),
    way=st.sampled_from(["split", "split", "truncate"]),
    shift=st.booleans(),
    dtype=st.sampled_from(["int64", "int32", "native"]),
    format=st.sampled_from(["numpy", "torch"]),
    token_dtype=st.sampled_from(["uint16", "uint32"]),
    compressed=st.booleans(),
    micro=st.sampled_from([1, 2, 4]),
)
@settings(max_examples=120)
def test_batches_are_what_the_shards_say(
    tmp_path_factory: pytest.TempPathFactory,
    shards: Shards,
    seq_len: int,
    kind: RowKind,
    way: LongDocuments,
    shift: bool,
    dtype: Kind,
    format: Literal["numpy", "torch"],
    token_dtype: str,
    compressed: bool,
    micro: int,
) -> None:
    directory = written(tmp_path_factory.mktemp("set"), shards, token_dtype=token_dtype, compressed=compressed)
    plan = Plan(Dataset(directory), seq_len=seq_len, batch_size=4, rows=kind, long_documents=way)
    sources = plain_sources(plan)
    loader = Loader(plan, micro_batch=micro, dtype=dtype, format=format, shift_labels=shift, prefetch=0)
    batches = list(loader)
    assert len(batches) == len(loader)
    for batch in batches:
        check_batch(batch, plan, sources, shift_labels=shift)
    seen = Counter(number for batch in batches for number in batch.rows.tolist())
    assert all(seen[number] == 1 for number in range(plan.num_rows))
    assert seen[-1] == plan.num_steps * 4 - plan.num_rows


@pytest.mark.parametrize("epochs", [1, 2, 3])
@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
def test_every_token_is_an_input_exactly_once_in_every_epoch(tmp_path: Path, kind: RowKind, epochs: int) -> None:
    dataset = Dataset(written(tmp_path, natural_shards(3)))
    plan = Plan(dataset, seq_len=32, batch_size=8, rows=kind, epochs=epochs)
    per_epoch = plan.num_rows // epochs
    passes: list[Counter[int]] = [Counter() for _ in range(epochs)]
    packs: list[set[bytes]] = [set() for _ in range(epochs)]
    for batch in Loader(plan, micro_batch=2, format="numpy"):
        for number, ids in zip(batch.rows.tolist(), batch.input_ids, strict=True):
            if number >= 0:
                passes[number // per_epoch].update(tokens_in(ids))
                packs[number // per_epoch].add(ids.tobytes())
    assert passes == [every_token(dataset)] * epochs
    if epochs > 1:
        assert (packs[0] == packs[1]) == (kind == "chunk"), "packs of documents change, cuts of the stream do not"


@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
@pytest.mark.parametrize("format", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "native"])
@pytest.mark.parametrize("shift", [True, False])
def test_a_batch_moved_to_a_device_is_the_same_batch(
    tmp_path: Path, kind: RowKind, format: Literal["numpy", "torch"], dtype: Kind, shift: bool
) -> None:
    plan = Plan(Dataset(written(tmp_path, natural_shards(5))), seq_len=16, batch_size=8, rows=kind)
    sources = plain_sources(plan)
    for batch in Loader(plan, micro_batch=4, format=format, dtype=dtype, shift_labels=shift):
        moved = batch.to("cpu")
        for name in ("input_ids", "labels", "position_ids", "cu_seqlens", "doc_ids"):
            assert isinstance(getattr(moved, name), torch.Tensor), name
        check_batch(moved, plan, sources, shift_labels=shift)
        assert (moved.step, moved.cursor, moved.rows.tolist()) == (batch.step, batch.cursor, batch.rows.tolist())
        expected = torch.int32 if dtype == "int32" else torch.int64
        assert moved.input_ids.dtype == moved.labels.dtype == expected
        check_batch(batch, plan, sources, shift_labels=shift)


@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
def test_a_filler_has_no_label_at_all(tmp_path: Path, kind: RowKind, shift: bool) -> None:
    """A loss that is divided by the number of labels must not notice a filler."""
    plan = Plan(Dataset(written(tmp_path, [[5]])), seq_len=8, batch_size=4, rows=kind)
    [batch] = Loader(plan, micro_batch=4, format="numpy", shift_labels=shift)
    fillers = batch.rows == -1
    assert fillers.tolist() == [False, True, True, True]
    assert (batch.labels[fillers] == -100).all()
    assert (batch.to("cpu").labels.numpy()[fillers] == -100).all()
    assert (batch.doc_ids[fillers] == -1).all()
    assert (batch.input_ids[fillers] == plan.eos_id).all()


@pytest.mark.parametrize(("token_dtype", "first"), [("uint16", 40_000), ("uint32", 3_000_000_000)])
@pytest.mark.parametrize("format", ["numpy", "torch"])
def test_large_ids_stay_what_they_are(
    tmp_path: Path, token_dtype: str, first: int, format: Literal["numpy", "torch"]
) -> None:
    dataset = Dataset(written(tmp_path, [[100, 200]], token_dtype=token_dtype, first_token=first))
    plan = Plan(dataset, seq_len=30, batch_size=5)
    for dtype in ("int64", "native"):
        ids: Counter[int] = Counter()
        for batch in Loader(plan, micro_batch=5, dtype=dtype, format=format):
            ids.update(tokens_in(batch.input_ids))
            assert tokens_in(batch.to("cpu").input_ids) == tokens_in(batch.input_ids)
        assert ids == Counter(range(first, first + 300))


def test_native_ids_are_of_the_shards_type_and_labels_can_be_negative(tmp_path: Path) -> None:
    plan = Plan(Dataset(written(tmp_path, [[20, 20]])), seq_len=16, batch_size=1)
    for batch in Loader(plan, micro_batch=1, dtype="native", format="torch"):
        assert batch.input_ids.dtype == torch.uint16
        assert batch.labels.dtype == torch.int64
    for batch in Loader(plan, micro_batch=1, dtype="int32", format="numpy"):
        assert batch.input_ids.dtype == batch.labels.dtype == np.int32


@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
def test_a_mixture_numbers_documents_through_its_sources(tmp_path: Path, kind: RowKind) -> None:
    one = Dataset(written(tmp_path / "one", natural_shards(1)))
    other = Dataset(written(tmp_path / "other", natural_shards(2), first_token=20_000))
    plan = Plan(Mixture({one: 0.5, other: 0.5}, block=4), seq_len=16, batch_size=4, rows=kind, max_steps=60)
    sources = plain_sources(plan)
    for batch in Loader(plan, micro_batch=4, format="numpy"):
        check_batch(batch, plan, sources, shift_labels=True)
        documents, ids = batch.doc_ids, batch.input_ids
        assert ((documents >= one.num_documents) == (ids >= 20_000))[documents >= 0].all()


def test_a_batch_is_a_mapping_that_a_model_can_be_called_with(tmp_path: Path) -> None:
    dataset = Dataset(written(tmp_path, natural_shards(5)))
    for kind, names in (("chunk", {"input_ids", "labels"}), ("best_fit", {"input_ids", "labels", "position_ids"})):
        plan = Plan(dataset, seq_len=16, batch_size=4, rows="chunk" if kind == "chunk" else "best_fit")
        batch = next(iter(Loader(plan, micro_batch=4)))
        assert set(dict(**batch)) == names
        assert len(batch) == len(names)
        with pytest.raises(KeyError):
            batch["rows"]
        row = next(iter(Loader(plan)))
        assert {name: tuple(value.shape) for name, value in row.items()} == dict.fromkeys(names, (16,))


@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
def test_a_row_longer_than_every_document_and_every_shard_works(tmp_path: Path, kind: RowKind) -> None:
    dataset = Dataset(written(tmp_path, [[3, 1, 4], [1, 5]]))
    plan = Plan(dataset, seq_len=1000, batch_size=4, rows=kind)
    sources = plain_sources(plan)
    [batch] = Loader(plan, micro_batch=4)
    check_batch(batch, plan, sources, shift_labels=True)
    assert tokens_in(batch.input_ids) == every_token(dataset)
    assert plan.num_rows == (2 if kind == "chunk" else 1)


def test_rows_come_as_numpy_arrays_where_there_is_no_torch(tmp_path: Path) -> None:
    written(tmp_path, natural_shards(5))
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from penstock.load.dataset import Dataset\n"
        "from penstock.load.loader import Loader\n"
        "from penstock.load.plan import Plan\n"
        "plan = Plan(Dataset(sys.argv[1]), seq_len=16, batch_size=4, rows='best_fit')\n"
        "batches = list(Loader(plan, micro_batch=4))\n"
        "print(len(batches), *{type(batch[name]).__module__ for batch in batches for name in batch})\n"
        "try: Loader(plan, format='torch')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found, refusal = ran.stdout.splitlines()
    plan = Plan(Dataset(tmp_path), seq_len=16, batch_size=4, rows="best_fit")
    assert found == f"{plan.num_steps} numpy"
    assert refusal.startswith("MissingExtra format='torch' needs torch: pip install")


@pytest.mark.parametrize("kind", ["chunk", "best_fit"])
@pytest.mark.parametrize("compress", [False, True])
def test_text_that_was_prepared_comes_back_token_for_token(tmp_path: Path, kind: RowKind, compress: bool) -> None:
    texts = [f"Document {number}: " + "to and fro " * (number % 17) for number in range(80)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    config = PrepareConfig(
        input_files=(str(tmp_path / "in.jsonl"),),
        out_dir=tmp_path / "set",
        tokenization="byte",
        val_fraction=0.0,
        workers=1,
        tokens_per_shard=1500,
        compress=compress,
    )
    prepare(config)
    dataset = Dataset(tmp_path / "set")
    assert len(dataset.shards) > 2
    plan = Plan(dataset, seq_len=64, batch_size=6, rows=kind)
    sources = plain_sources(plan)
    ids: Counter[int] = Counter()
    for batch in Loader(plan, micro_batch=3, format="numpy"):
        check_batch(batch, plan, sources, shift_labels=True)
        ids.update(batch.input_ids[batch.doc_ids >= 0].tolist())
    assert ids == every_token(dataset)
    assert sum(ids.values()) == dataset.num_tokens
