"""What a step of training gets.

Shapes: B rows of the micro-batch, T tokens of a row, S segments (documents and stretches of padding) in all of them.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.load.group import MASKED, Array, Group, itself


class Batch(Mapping[str, Any]):
    """Rows of a micro-step. Also a mapping, so that a model can be called with `**batch`."""

    __slots__ = ("_group", "_moved", "_number")

    def __init__(self, group: Group, number: int) -> None:
        self._group, self._number = group, number
        self._moved: dict[str, Any] | None = None
        """On a device: what is already there."""

    # Where it stands in the run

    @property
    def rows(self) -> NDArray[np.int64]:
        """The numbers of the rows in the plan; -1 for a filler."""
        return self._group.numbers[self._group.rows(self._number)]

    @property
    def step(self) -> int:
        return self._group.steps[self._number]

    @property
    def cursor(self) -> int:
        """Rows of the run that are behind once this batch is done, on all ranks together."""
        return self._group.cursors[self._number]

    # What is in it

    @property
    def input_ids(self) -> Array:
        """Tokens, (B, T)."""
        return self._group.inputs[0][self._number] if self._moved is None else self._moved["input_ids"]

    @property
    def labels(self) -> Array:
        """The token after each, (B, T); -100 where there is none."""
        return self._group.inputs[1][self._number] if self._moved is None else self._moved["labels"]

    @property
    def position_ids(self) -> Array:
        """Places counted from the start of each document, or of the part of it that is in the row; (B, T), int32."""
        return self._here("position_ids", lambda: self._group.positions[self._number])

    @property
    def cu_seqlens(self) -> Array:
        """Where segments end when all rows lie end to end, a 0 before them: (S + 1,), as varlen attention takes it."""
        return self._here("cu_seqlens", lambda: self._group.wrap(self._group.bounds(self._number)))

    @property
    def doc_ids(self) -> Array:
        """The document of each token, numbered through the split, and on through the sources of a mixture; (B, T).

        -1 in padding.
        """
        return self._here("doc_ids", self._doc_ids)

    @property
    def max_seqlen(self) -> int:
        """The longest segment."""
        return int(np.diff(self._group.bounds(self._number)).max())

    @property
    def num_positions(self) -> int:
        """B times T."""
        return self._group.micro * self._group.seq_len

    @property
    def num_labels(self) -> int:
        """Positions that have a label: what a loss is divided by, summed over ranks."""
        if self._group.augment is None:
            return self.num_positions - len(self._group.masked_labels_of(self._number))
        return int((np.asarray(self._group.inputs[1][self._number]) != MASKED).sum())

    def first_row(self) -> dict[str, Array]:
        """The first row on its own."""
        return {name: self[name][0] for name in self._group.keys}

    def to(self, device: Any, *, non_blocking: bool = True) -> "Batch":
        """The batch with ids and labels on a torch device. One copy goes over; casts and labels are made there."""
        import torch

        group = self._group
        moved = Batch(group, self._number)
        if group.augment is not None:
            both = (group.inputs[0][self._number], group.inputs[1][self._number])
            ids, labels = (torch.as_tensor(one).to(device, non_blocking=non_blocking) for one in both)
        else:
            tokens = group.tokens[group.rows(self._number)]
            # torch knows little of unsigned types: they travel as signed ones of the same size.
            there = torch.from_numpy(tokens.view(tokens.dtype.str.replace("u", "i"))).to(
                device, non_blocking=non_blocking
            )
            if tokens.dtype.kind == "u":
                there = there.to(torch.int64) & ((1 << 8 * tokens.itemsize) - 1)
            ids, labels = there[:, :-1], there[:, 1:] if group.shift_labels else there[:, :-1]
            if len(masked := group.masked_labels_of(self._number)):
                labels = labels.clone(memory_format=torch.contiguous_format)
                labels.view(-1)[torch.from_numpy(masked).to(device, non_blocking=non_blocking)] = MASKED
        moved._moved = {"input_ids": ids, "labels": labels, "device": device}
        return moved

    def pin_memory(self) -> "Batch":
        """For DataLoader(pin_memory=True)."""
        import torch

        _, (tokens, *rest) = self.__reduce__()
        return _received(torch.as_tensor(tokens).pin_memory(), *rest)

    def _here(self, name: str, make: Callable[[], Array]) -> Array:
        if self._moved is None:
            return make()
        if name not in self._moved:
            import torch

            self._moved[name] = torch.as_tensor(make()).to(self._moved["device"], non_blocking=True)
        return self._moved[name]

    def _doc_ids(self) -> Array:
        lengths, documents = self._group.documents(self._number)
        return self._group.wrap(np.repeat(documents, lengths).reshape(self._group.micro, -1))

    # As a mapping

    def __getitem__(self, name: str) -> Array:
        if name not in self._group.keys:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._group.keys)

    def __len__(self) -> int:
        return len(self._group.keys)

    def __repr__(self) -> str:
        group = self._group
        return f"Batch(step={self.step}, cursor={self.cursor}, {group.micro} rows of {group.seq_len} tokens)"

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has no files open: what could be asked for is made now.
        group, number = self._group, self._number
        inputs = None if group.augment is None else (group.inputs[0][number], group.inputs[1][number])
        where = (self.rows, self.step, self.cursor)
        tokens = group.wrap(group.tokens[group.rows(number)])
        look = (group.keys, group.shift_labels)
        return _received, (tokens, group.masked(number), *group.documents(number), inputs, where, look)


class _Known:
    """What came with a batch from another process."""

    def __init__(self, masked: NDArray[np.int64], lengths: NDArray[np.int64], documents: NDArray[np.int64]) -> None:
        self._masked, self._lengths, self._documents = masked, lengths, documents

    def masked_in(self, first: int, last: int) -> NDArray[np.int64]:
        return self._masked

    def bounds_in(self, first: int, last: int) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self._lengths)])

    def documents_in(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self._lengths, self._documents


def _received(
    tokens: Array,
    masked: NDArray[np.int64],
    lengths: NDArray[np.int64],
    documents: NDArray[np.int64],
    inputs: tuple[Array, Array] | None,
    where: tuple[NDArray[np.int64], int, int],
    look: tuple[tuple[str, ...], bool],
) -> Batch:
    wrap: Callable[[NDArray[Any]], Array] = itself
    if not isinstance(tokens, np.ndarray):
        import torch

        tokens, wrap = tokens.numpy(), torch.from_numpy
    group = Group(
        tokens=tokens,
        documented=_Known(masked, lengths, documents),
        first=0,
        micro=len(tokens),
        numbers=where[0],
        steps=[where[1]],
        cursors=[where[2]],
        keys=look[0],
        wrap=wrap,
        shift_labels=look[1],
        augment=None if inputs is None else partial(_as_it_was, inputs),
    )
    return Batch(group, 0)


def _as_it_was(inputs: tuple[Array, Array], *_: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """What an augmentation made of a batch before it was sent here."""
    return np.asarray(inputs[0]), np.asarray(inputs[1])
