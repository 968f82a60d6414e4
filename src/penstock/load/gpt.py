"""Random pieces of a text or of a dataset, as small training scripts ask for them: `get_batch(split)` → `(x, y)`.

Draws starts evenly over all tokens, so that a short shard is not seen more often than a long one. For an order that
shows every row exactly once and can be resumed, use `Plan` and `Loader`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigError, DatasetError
from penstock.load.dataset import Dataset
from penstock.shards.manifest import read_manifest

MOST_OPEN: Final = 10
"""Shards that are open at a time."""
_LENGTH_NAMES: Final = ("block_size", "seq_len", "max_seq_len", "context_length", "n_positions")


class GPTDataLoader:
    """Random batches from a text in memory, or from the shards in `dataset_dir`.

    `config` has `batch_size`, `block_size` (or `seq_len`) and perhaps `device`, as attributes or as keys.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        dataset_dir: Path | str | None = None,
        *,
        seed: int = 0,
        val_fraction: float = 0.1,
    ) -> None:
        self.batch_size = _size(config, ("batch_size",))
        self.seq_len = _size(config, _LENGTH_NAMES)
        self.device = _setting(config, ("device",), "cpu")
        self.tokenizer = tokenizer
        self._val_fraction = val_fraction
        self._random = np.random.default_rng(seed)
        self._texts: dict[str, NDArray[Any]] = {}
        self._datasets: dict[str, Dataset] = {}
        self._starts: dict[str, NDArray[np.int64]] = {}
        if dataset_dir is not None:
            self._open(Path(dataset_dir))

    def prepare_data(self, text: str) -> None:
        """Tokenizes `text`; its last tenth is for validation."""
        if self._datasets:
            raise ConfigError("this loader reads shards from dataset_dir; make another without it for a text in memory")
        ids = _encoded(self.tokenizer, text)
        cut = len(ids) - int(len(ids) * self._val_fraction)
        self._texts = {"train": ids[:cut], "val": ids[cut:]}
        self._starts = {split: np.array([len(part) - self.seq_len]) for split, part in self._texts.items()}

    def get_batch(self, split: str = "train") -> tuple[Any, Any]:
        """Tokens and the token after each, both (batch_size, seq_len), on the device."""
        import torch

        tokens = self._drawn(split)
        batch = torch.from_numpy(tokens)
        if str(self.device) != "cpu":
            batch = batch.pin_memory() if str(self.device).startswith("cuda") else batch
            batch = batch.to(self.device, non_blocking=True)
        return batch[:, :-1], batch[:, 1:]

    def _drawn(self, split: str) -> NDArray[np.int64]:
        if split not in self._starts:
            there = ", ".join(self._starts) or "none: call prepare_data(text) first, or give a dataset_dir"
            raise ConfigError(f"no split {split!r}; there is {there}")
        # How many places a row can begin at, shard by shard.
        counts = np.maximum(self._starts[split], 0)
        ends = np.cumsum(counts)
        if not ends[-1]:
            longest = int(self._starts[split].max()) + self.seq_len
            raise DatasetError(
                f"{split}: a row takes {self.seq_len + 1} tokens, the longest stretch has {longest}; use a smaller "
                "block_size or more text"
            )
        drawn = self._random.integers(0, ends[-1], self.batch_size)
        shards = np.searchsorted(ends, drawn, side="right")
        starts = drawn - (ends - counts)[shards]
        batch = np.empty((self.batch_size, self.seq_len + 1), np.int64)
        # Shard by shard, so that few have to be open.
        for row in np.argsort(shards, kind="stable").tolist():
            start, stop = int(starts[row]), int(starts[row]) + self.seq_len + 1
            if self._texts:
                batch[row] = self._texts[split][start:stop]
            else:
                batch[row] = self._datasets[split].reader(int(shards[row])).tokens(start, stop)
        return batch

    def _open(self, directory: Path) -> None:
        try:
            manifest = read_manifest(directory)
        except DatasetError as error:
            raise DatasetError(f"No training shards found in {directory}: {error}") from error
        if not manifest.of("train"):
            there = ", ".join(manifest.splits) or "none"
            raise DatasetError(
                f"No training shards found in {directory}: its manifest lists none of split 'train' (splits: {there}); "
                "prepare it again with more text or a smaller --val_fraction"
            )
        self._datasets = {split: Dataset(directory, split, max_open=MOST_OPEN) for split in manifest.splits}
        self._starts = {split: dataset.shard_tokens - self.seq_len for split, dataset in self._datasets.items()}


def _encoded(tokenizer: Any, text: str) -> NDArray[Any]:
    """The ids of a text, from a tokenizer of ours, of `tokenizers` or of `transformers`, or any with `encode(text)`."""
    if hasattr(tokenizer, "token_bytes"):
        ids, _ = tokenizer.encode([text])
        return np.asarray(ids)
    found = tokenizer.encode(text)
    return np.asarray(getattr(found, "ids", found), np.uint32)


def _setting(config: Any, names: tuple[str, ...], default: Any = None) -> Any:
    for name in names:
        if isinstance(config, Mapping) and name in config:
            return config[name]
        if hasattr(config, name):
            return getattr(config, name)
    return default


def _size(config: Any, names: tuple[str, ...]) -> int:
    value = _setting(config, names)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"the configuration needs a positive {' or '.join(names[:2])}, got {value!r}")
    return value
