"""Trainers that others wrote, fed with our rows: no row lost, none repeated, and labels that they understand."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from penstock.load.batch import Batch
from penstock.load.dataset import Dataset
from penstock.load.loader import Loader
from penstock.load.plan import Plan, RowKind

from .builders import every_token, natural_shards, tokens_in, written

pytestmark = [
    # What torch says where a machine has one core.
    pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes:UserWarning"),
    # What Python 3.12 says of any fork once a library has started a thread.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning"),
]
VOCAB_SIZE = 2048
SEQ_LEN = 16
ROWS_AT_ONCE = 4


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    found = Dataset(written(tmp_path_factory.mktemp("set"), natural_shards(2, num_documents=40)))
    assert found.num_tokens < VOCAB_SIZE
    return found


def planned(dataset: Dataset, kind: RowKind, *, odd_steps: bool) -> Plan:
    """Steps of as many rows as the trainer takes at once, in the numbers that workers find hard to share, or easy."""
    plan = Plan(dataset, seq_len=SEQ_LEN, batch_size=ROWS_AT_ONCE, rows=kind)
    if (plan.num_steps % 2 == 1) != odd_steps:
        skipped = plan.num_rows - (plan.num_steps - 1) * ROWS_AT_ONCE
        plan = plan.with_skip((plan.num_rows - skipped, plan.num_rows))
    assert (plan.num_steps % 2 == 1) == odd_steps
    return plan


def tokens_of(plan: Plan) -> Counter[int]:
    found: Counter[int] = Counter()
    for batch in Loader(plan, micro_batch=ROWS_AT_ONCE):
        found.update(tokens_in(batch.input_ids))
    return found


class Recording(Trainer):
    """A trainer that writes down what its model is shown."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shown: list[torch.Tensor] = []
        self.losses: list[float] = []

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.shown.append(inputs["input_ids"].clone())
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        self.losses.append(loss.item())
        return loss


def trainer(plan: Plan, directory: Path, model: Any, **settings: Any) -> Recording:
    arguments: dict[str, Any] = {
        "output_dir": str(directory / "out"),
        "per_device_train_batch_size": ROWS_AT_ONCE,
        "num_train_epochs": 1,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        **settings,
    }
    return Recording(model=model, args=TrainingArguments(**arguments), train_dataset=Loader(plan, shift_labels=False))


def tiny_gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB_SIZE, n_positions=64, n_embd=8, n_layer=1, n_head=1))


def tiny_llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    return LlamaForCausalLM(config)


@pytest.mark.parametrize(
    ("kind", "odd_steps", "num_workers"),
    [("chunk", False, 0), ("best_fit", True, 0), ("best_fit", False, 2), ("chunk", True, 2)],
)
def test_the_trainer_of_hugging_face_shows_its_model_every_row_once(
    dataset: Dataset, tmp_path: Path, kind: RowKind, odd_steps: bool, num_workers: int
) -> None:
    plan = planned(dataset, kind, odd_steps=odd_steps)
    model = tiny_gpt2() if kind == "chunk" else tiny_llama()
    found = trainer(plan, tmp_path, model, dataloader_num_workers=num_workers)
    result = found.train()
    shown = sum((tokens_in(ids) for ids in found.shown), Counter[int]())
    assert shown == tokens_of(plan)
    assert all(ids.shape == (ROWS_AT_ONCE, SEQ_LEN) for ids in found.shown)
    assert result.global_step == plan.num_steps == len(found.shown)
    assert all(torch.isfinite(torch.tensor(found.losses)))


def test_the_whole_dataset_is_shown_in_two_epochs_of_the_plan(dataset: Dataset, tmp_path: Path) -> None:
    plan = Plan(dataset, seq_len=SEQ_LEN, batch_size=2 * ROWS_AT_ONCE, rows="best_fit", epochs=2)
    found = trainer(plan, tmp_path, tiny_llama(), gradient_accumulation_steps=2)
    result = found.train()
    assert result.global_step == plan.num_steps
    shown = sum((tokens_in(ids) for ids in found.shown), Counter[int]())
    assert shown == Counter(dict.fromkeys(every_token(dataset), 2))


def test_the_loss_of_a_model_that_shifts_is_the_loss_over_shifted_labels(dataset: Dataset) -> None:
    plan = Plan(dataset, seq_len=SEQ_LEN, batch_size=ROWS_AT_ONCE, rows="best_fit")
    model = tiny_llama().eval()
    plain = Loader(plan, micro_batch=ROWS_AT_ONCE, shift_labels=False)
    shifted = Loader(plan, micro_batch=ROWS_AT_ONCE)
    for one, other in zip(plain, shifted, strict=True):
        if (one.rows < 0).any():
            continue
        with torch.no_grad():
            output = model(**one)
            # The model cannot use the label of a row's last token, which only a shifted row has.
            logits, labels = output.logits[:, :-1], other.labels[:, :-1]
            expected = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB_SIZE), labels.reshape(-1))
        assert output.loss == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning")
@pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined:UserWarning")
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
@pytest.mark.parametrize("num_workers", [0, 2, None], ids=["0", "2", "without a DataLoader"])
def test_the_trainer_of_lightning_shows_its_module_every_row_once(
    dataset: Dataset, tmp_path: Path, num_workers: int | None
) -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(VOCAB_SIZE, 4)
            self.head = torch.nn.Linear(4, VOCAB_SIZE)
            self.shown: Counter[int] = Counter()
            self.cursors: list[int] = []

        def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
            self.shown.update(tokens_in(batch.input_ids))
            self.cursors.append(batch.cursor)
            logits = self.head(self.embedding(batch.input_ids))
            return torch.nn.functional.cross_entropy(logits.view(-1, VOCAB_SIZE), batch.labels.reshape(-1))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    plan = Plan(dataset, seq_len=SEQ_LEN, batch_size=ROWS_AT_ONCE, rows="best_fit")
    loader: Any = Loader(plan, micro_batch=ROWS_AT_ONCE)
    if num_workers is not None:
        loader = DataLoader(loader, batch_size=None, num_workers=num_workers, collate_fn=as_it_is)
    module = Module()
    runner = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    runner.fit(module, loader)
    assert module.shown == every_token(dataset)
    assert module.cursors == [batch.cursor for batch in Loader(plan, micro_batch=ROWS_AT_ONCE)]
    assert runner.global_step == plan.num_steps


def as_it_is(batch: Batch) -> Batch:
    return batch
