"""What a step of training gets.

Shapes: B rows of the micro-batch, T tokens of a row, S segments (documents and stretches of padding) in all of them.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

MASKED: Final = -100
"""The label of a position that has none: what torch's cross entropy ignores."""

Array = Any
"""A numpy array or a torch tensor, as the loader was asked for."""

Augment = Callable[[NDArray[Any], NDArray[Any], NDArray[np.int64]], tuple[NDArray[Any], NDArray[Any]]]
"""Input ids, labels and row numbers → other input ids and labels. Pure, so that a run stays a pure function."""


class Documented(Protocol):
    """What knows how some rows are made up."""

    def masked_in(self, first: int, last: int) -> NDArray[np.int64]:
        """Positions without a label in rows `first` up to `last`, end to end from the first of all rows on."""
        ...

    def bounds_in(self, first: int, last: int) -> NDArray[np.int64]:
        """Where the segments of these rows begin, padding included, and where the last one ends."""
        ...

    def documents_in(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lengths of these segments, and the document of each."""
        ...


class Group:
    """Batches that lie in one block of memory. Most of a batch is made only if it is asked for, from what is here."""

    def __init__(
        self,
        *,
        tokens: NDArray[Any],
        documented: Documented,
        first: int,
        micro: int,
        numbers: NDArray[np.int64],
        steps: list[int],
        cursors: list[int],
        keys: tuple[str, ...],
        wrap: Callable[[NDArray[Any]], Array],
        shift_labels: bool = True,
        augment: Augment | None = None,
    ) -> None:
        self.tokens = tokens
        """(rows, T + 1): each row and the token after it."""
        self.documented, self.first = documented, first
        """What knows how the rows are made up, and which of its rows is the first here."""
        self.micro = micro
        """B."""
        self.numbers, self.steps, self.cursors = numbers, steps, cursors
        """Of the rows in the plan; of the batches."""
        self.keys, self.wrap, self.shift_labels, self.augment = keys, wrap, shift_labels, augment
        self.plain = shift_labels and augment is None and tokens.dtype.kind != "u"
        """Whether labels are simply the tokens one further on, wherever none is masked."""


class Batch(Mapping[str, Any]):
    """Rows of a micro-step. Also a mapping, so that a model can be called with `**batch`."""

    __slots__ = ("_group", "_made", "_number")

    def __init__(self, group: Group, number: int) -> None:
        self._group, self._number = group, number
        self._made: dict[str, Any] = {}

    # Where it stands in the run

    @property
    def rows(self) -> NDArray[np.int64]:
        """The numbers of the rows in the plan; -1 for a filler."""
        return self._group.numbers[self._own]

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
        found = self._made.get("input_ids")
        return self._make_inputs()[0] if found is None else found

    @property
    def labels(self) -> Array:
        """The token after each, (B, T); -100 where there is none."""
        found = self._made.get("labels")
        return self._make_inputs()[1] if found is None else found

    @property
    def position_ids(self) -> Array:
        """Places counted from the start of each document, or of the part of it that is in the row; (B, T), int32."""
        return self._once("position_ids", self._positions)

    @property
    def cu_seqlens(self) -> Array:
        """Where segments end when all rows lie end to end, a 0 before them: (S + 1,), as varlen attention takes it."""
        return self._once("cu_seqlens", self._cu_seqlens)

    @property
    def doc_ids(self) -> Array:
        """The document of each token, numbered through the split, and on through the sources of a mixture; (B, T).

        -1 in padding.
        """
        return self._once("doc_ids", self._doc_ids)

    @property
    def max_seqlen(self) -> int:
        """The longest segment."""
        return int(np.diff(self._bounds()).max())

    @property
    def num_positions(self) -> int:
        """B times T."""
        return int(self._group.micro * (self._group.tokens.shape[1] - 1))

    @property
    def num_labels(self) -> int:
        """Positions that have a label: what a loss is divided by, summed over ranks."""
        if self._group.augment is None and self._group.shift_labels:
            return self.num_positions - len(self._masked())
        return int((np.asarray(self.labels) != MASKED).sum())

    def first_row(self) -> dict[str, Array]:
        """The first row on its own."""
        return {name: self[name][0] for name in self._group.keys}

    def to(self, device: Any, *, non_blocking: bool = True) -> "Batch":
        """The batch with ids and labels on a torch device. One copy goes over; casts and labels are made there."""
        import torch

        group = self._group
        tokens = group.tokens[self._own]
        # torch knows little of unsigned types: they travel as signed ones of the same size.
        signed = torch.from_numpy(tokens.view(tokens.dtype.str.replace("u", "i")))
        there = signed.to(device, non_blocking=non_blocking)
        if tokens.dtype.kind == "u":
            there = there.to(torch.int64) & ((1 << 8 * tokens.itemsize) - 1)
        moved = Batch(group, self._number)
        if group.augment is not None:
            both = (self.input_ids, self.labels)
            ids, labels = (torch.as_tensor(one).to(device, non_blocking=non_blocking) for one in both)
        else:
            ids, labels = there[:, :-1], there[:, 1:] if group.shift_labels else there[:, :-1]
            if len(masked := self._masked_labels()):
                labels = labels.clone(memory_format=torch.contiguous_format)
                labels.view(-1)[torch.from_numpy(masked).to(device, non_blocking=non_blocking)] = MASKED
        moved._made = {"input_ids": ids, "labels": labels, "device": device}
        return moved

    def pin_memory(self) -> "Batch":
        """For DataLoader(pin_memory=True)."""
        import torch

        pinned = torch.from_numpy(self._group.tokens[self._own]).pin_memory()
        _, (_, *rest) = self.__reduce__()
        return _received(pinned, *rest)

    @property
    def _own(self) -> slice:
        first = self._number * self._group.micro
        return slice(first, first + self._group.micro)

    def _once(self, name: str, make: Callable[[], NDArray[Any]]) -> Array:
        found = self._made.get(name)
        if found is None:
            array = make()
            if "device" in self._made:
                import torch

                found = torch.from_numpy(array).to(self._made["device"], non_blocking=True)
            else:
                found = self._group.wrap(array)
            self._made[name] = found
        return found

    def _make_inputs(self) -> tuple[Array, Array]:
        group = self._group
        first = self._number * group.micro
        tokens = group.tokens[first : first + group.micro]
        ids = tokens[:, :-1]
        masked = self._masked_labels()
        if group.plain and not len(masked):
            found = self._made["input_ids"], self._made["labels"] = group.wrap(ids), group.wrap(tokens[:, 1:])
            return found
        labels = tokens[:, 1:] if group.shift_labels else ids
        if len(masked) or labels.dtype.kind == "u":
            labels = _masked_labels(labels, masked)
        if group.augment is not None:
            ids, labels = group.augment(ids, labels, self.rows)
        found = self._made["input_ids"], self._made["labels"] = group.wrap(ids), group.wrap(labels)
        return found

    def _masked(self) -> NDArray[np.int64]:
        group = self._group
        first = group.first + self._number * group.micro
        masked = group.documented.masked_in(first, first + group.micro)
        return masked - first * (group.tokens.shape[1] - 1) if len(masked) else masked

    def _masked_labels(self) -> NDArray[np.int64]:
        """Where labels are masked. Those that are not shifted are masked one further on, unless that is in another row,
        and from the start in a filler."""
        masked = self._masked()
        if self._group.shift_labels or not len(masked):
            return masked
        seq_len = self._group.tokens.shape[1] - 1
        fillers = np.flatnonzero(self.rows < 0) * seq_len
        return np.concatenate([fillers, masked[(masked + 1) % seq_len != 0] + 1])

    def _bounds(self) -> NDArray[np.int64]:
        found: NDArray[np.int64] | None = self._made.get("bounds")
        if found is None:
            group = self._group
            first = group.first + self._number * group.micro
            found = self._made["bounds"] = group.documented.bounds_in(first, first + group.micro)
        return found

    def _cu_seqlens(self) -> NDArray[np.int32]:
        return self._bounds().astype(np.int32)

    def _positions(self) -> NDArray[np.int32]:
        shape = (self._group.micro, self._group.tokens.shape[1] - 1)
        upward = _upward(shape[1])
        bounds = self._bounds()
        flat = np.empty(shape[0] * shape[1], np.int32)
        np.concatenate([upward[:length] for length in (bounds[1:] - bounds[:-1]).tolist()], out=flat)
        return flat.reshape(shape)

    def _documents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        group = self._group
        first = group.first + self._number * group.micro
        return group.documented.documents_in(first, first + group.micro)

    def _doc_ids(self) -> NDArray[np.int64]:
        lengths, documents = self._documents()
        return np.repeat(documents, lengths).reshape(self._group.micro, -1)

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
        width = self._group.tokens.shape[1] - 1
        return f"Batch(step={self.step}, cursor={self.cursor}, {self._group.micro} rows of {width} tokens)"

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has no files open: what could be asked for is made now.
        group = self._group
        inputs = (self.input_ids, self.labels) if group.augment is not None else None
        where = (self.rows, self.step, self.cursor)
        look = (group.keys, group.shift_labels)
        tokens = group.wrap(group.tokens[self._own])
        return _received, (tokens, self._masked(), *self._documents(), inputs, where, look)


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


def _masked_labels(labels_BT: NDArray[Any], masked: NDArray[np.int64]) -> NDArray[Any]:
    """A copy with -100 where there is no label."""
    labels_BT = labels_BT.astype(np.int64 if labels_BT.dtype.kind == "u" else labels_BT.dtype, order="C")
    labels_BT.reshape(-1)[masked] = MASKED
    return labels_BT


@lru_cache(maxsize=4)
def _upward(length: int) -> NDArray[np.int32]:
    return np.arange(length, dtype=np.int32)


def itself(array: NDArray[Any]) -> NDArray[Any]:
    """For users of numpy."""
    return array
