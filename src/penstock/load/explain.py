"""Which documents a step is made of: from rows back to lines of input files.

Opens the indexes of the shards that the step touches, and their tokens only if text is asked for.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from penstock.errors import ConfigError
from penstock.load.dataset import Dataset
from penstock.load.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """A document, or a part of one, in a row."""

    dataset: str
    document: int
    """Its number in the split."""
    first_token: int
    """Of the document; more than 0 where the row begins inside it."""
    num_tokens: int
    source: str
    """The input file."""
    record: int
    """Which line, row or document of that file, from 1."""
    shard: str
    text: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainedRow:
    """A row of the run."""

    row: int
    """Its number in the plan."""
    epoch: int
    """Of the pass over its dataset, from 0."""
    documents: tuple[Explained, ...]
    num_padding: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The rows of a step."""

    step: int
    rows: tuple[ExplainedRow, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"step {self.step:,}: {len(self.rows):,} rows"]
        for row in self.rows:
            padding = f", {row.num_padding:,} of padding" if row.num_padding else ""
            lines.append(f"row {row.row:,} · pass {row.epoch + 1}{padding}")
            for document in row.documents:
                start = f" from its token {document.first_token:,} on" if document.first_token else ""
                lines.append(
                    f"  {document.source}:{document.record} · {document.dataset} document {document.document:,} · "
                    f"{document.num_tokens:,} tokens{start}"
                )
                if document.text is not None:
                    lines += [f"  │ {line}" for line in document.text.splitlines()]
        return "\n".join(lines)


def explained(plan: Plan, *, step: int, text: bool = False) -> Explanation:
    """The documents in `step`, row by row, in the order in which rows are dealt; with their text if asked for."""
    if not 0 <= step < plan.num_steps:
        raise ConfigError(f"no step {step}: the plan has {plan.num_steps:,}, numbered from 0")
    places = plan.schedule.step_places(step)
    return Explanation(step=step, rows=tuple(_row(plan, int(place), text) for place in places if place >= 0))


def _row(plan: Plan, place: int, text: bool) -> ExplainedRow:
    located = plan.schedule.located(np.array([place]))
    pieces = plan.row(place)
    documents: list[Explained] = []
    for piece in pieces:
        documents += _documents(plan.datasets[piece.source], piece.shard, piece.start, piece.length, text)
    return ExplainedRow(
        row=int(located.row[0]),
        epoch=int(located.epoch[0]),
        documents=tuple(documents),
        num_padding=plan.seq_len - sum(piece.length for piece in pieces),
    )


def _documents(dataset: Dataset, shard: int, start: int, length: int, text: bool) -> list[Explained]:
    numbers, sizes = dataset.documents(shard, start, length)
    ends = dataset.reader(shard).index.document_ends
    first_document = int(dataset.first_documents[shard])
    found: list[Explained] = []
    for number, size in zip(numbers.tolist(), sizes.tolist(), strict=True):
        local = number - first_document
        begins = int(ends[local - 1]) if local else 0
        source, record = dataset.origin(shard, number)
        found.append(
            Explained(
                dataset=dataset.name,
                document=number,
                first_token=start - begins,
                num_tokens=size,
                source=source,
                record=record,
                shard=dataset.shards[shard].name,
                text=_text(dataset, shard, start, start + size) if text else None,
            )
        )
        start += size
    return found


def _text(dataset: Dataset, shard: int, start: int, stop: int) -> str:
    ids = dataset.reader(shard).tokens(start, stop)
    if len(ids) and int(ids[-1]) == dataset.manifest.eos_id:
        ids = ids[:-1]
    return dataset.tokenizer.decode(ids)
