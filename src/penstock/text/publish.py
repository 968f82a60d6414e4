"""Encoded units → shards in their final place, the manifest last.

Until the manifest is there, nothing of the new data counts; a dataset that is added to stays valid throughout.
"""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from penstock.shards.atomic import disk_full_as_error, replacing, sync_directory, sync_file
from penstock.shards.layout import BLOCK_BYTES, SOURCES, SPLITS, TOKENIZER_STATE, index_name, shard_name, shard_number
from penstock.shards.manifest import Manifest, Shard, SideFile, TokenizerInfo, write_manifest
from penstock.text.accounts import Accounts
from penstock.text.assemble import AssembleJob, Documents, SplitQueue, assemble_shard, token_runs
from penstock.text.encode import TOKEN_FILES, EncodeJob, read_documents
from penstock.text.plan_tokenizer import PlanTokenizer
from penstock.text.planning import Plan
from penstock.text.sequence import DocumentSequence
from penstock.text.work import Work, read_mark, write_mark
from penstock.types import Progress


@dataclass(frozen=True, slots=True)
class ShardTask:
    """A shard that a worker should write."""

    split: str
    number: int
    call: tuple[Callable[..., Any], AssembleJob]
    uses: tuple[tuple[int, int], ...]
    """Files of tokens, and how many of their documents are in this shard."""


class Publisher:
    """Takes encoded units in order, hands out shards to write, and publishes the dataset."""

    def __init__(self, plan: Plan, work: Work, accounts: Accounts, chosen: PlanTokenizer) -> None:
        self._plan, self._accounts, self._chosen = plan, accounts, chosen
        tokenizer, dtype = chosen.tokenizer, chosen.dtype
        config = plan.config
        self._directory = work.directory(f"shards/{plan.fingerprint}-{dtype}")
        self._sequence = DocumentSequence(
            tokenizer,
            seed=config.seed,
            val_fraction=config.val_fraction,
            normalize=config.normalize,
            dtype=dtype,
            seam_path=work.directory("encoded") / f"{plan.fingerprint}.seams",
        )
        first = {split: plan.base.num_documents(split) if plan.base else 0 for split in SPLITS}
        self._queues = {split: SplitQueue(config.tokens_per_shard, first[split]) for split in SPLITS}
        self._tokens = _TokenFiles()
        self._shards: dict[tuple[str, int], Shard] = {}
        self._records: dict[int, int] = {}
        # Waiting for the disk must not hold up the work.
        self._settling = ThreadPoolExecutor(1, "settle")
        self._settled: list[Future[None]] = []

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, *_: object) -> None:
        self._settling.shutdown(cancel_futures=True)

    def add_unit(self, job: EncodeJob, mark: dict[str, Any]) -> Iterator[ShardTask]:
        """The next unit in order. The shards that are full with it and not written yet."""
        number = job.unit.unit.number
        columns = read_documents(job.path(".documents"))
        # Records count on from the units before; sources from the dataset that is added to.
        first = self._first_record(job, mark)
        columns = {
            **columns,
            "record": columns["record"] + (1 + first),
            "source": columns["source"] + self._plan.num_old_sources,
        }
        self._tokens.add(job, mark, columns["place"])
        train, val = self._sequence.add(number, job.path(".tokens"), columns, mark["open"])
        for split, documents in zip(SPLITS, (train, val), strict=True):
            self._queues[split].add(documents)
            yield from self._tasks(split, final=False)

    def last_shards(self) -> Iterator[ShardTask]:
        """No more units: what is left, in shards that are not full."""
        for split in SPLITS:
            yield from self._tasks(split, final=True)

    def shard_written(self, task: ShardTask, shard: Shard) -> None:
        """A worker has written a shard: it counts once it is on the disk for good."""
        self._shards[task.split, task.number] = shard
        self._settled.append(self._settling.submit(self._settle, task, shard))

    def published(self, progress: Progress) -> Manifest:
        """Puts everything in its final place."""
        for future in self._settled:
            future.result()
        out_dir, base = self._plan.config.out_dir, self._plan.base
        first = max((shard_number(shard.name) + 1 for shard in base.shards), default=0) if base else 0
        shards: list[Shard] = []
        for split in SPLITS:
            for number in range(self._queues[split].num_shards):
                shard = self._shards[split, number]
                name = shard_name(split, first + len(shards), compressed=self._plan.config.compress)
                (out_dir / split).mkdir(exist_ok=True)
                tokens, index = self._paths(split, number)
                _link(tokens, out_dir / name)
                _link(index, out_dir / index_name(name))
                shards.append(replace(shard, name=name))
        for split in {shard.split for shard in shards}:
            sync_directory(out_dir / split)
        manifest = self._manifest(shards, progress)
        write_manifest(manifest, out_dir)
        if base is not None and base.sources.file != manifest.sources.file:
            (out_dir / base.sources.file).unlink(missing_ok=True)
        return manifest

    def _first_record(self, job: EncodeJob, mark: dict[str, Any]) -> int:
        """Records of the same file in earlier units. Units come in order, so a running count will do."""
        parts = job.unit.unit.parts
        first = self._records.get(parts[0].source, 0) if len(parts) == 1 else 0
        for number, part in enumerate(parts):
            tally = self._accounts.tally(job.unit.unit.number, number)
            self._records[part.source] = self._records.get(part.source, 0) + tally["num_records"]
        return first

    def _tasks(self, split: str, *, final: bool) -> Iterator[ShardTask]:
        for number, first_document, documents in self._queues[split].shards(final=final):
            files, counts = np.unique(documents.file[documents.file >= 0], return_counts=True)
            uses = tuple(zip(files.tolist(), counts.tolist(), strict=True))
            if (shard := self._finished(split, number)) is not None:
                self._shards[split, number] = shard
                self._tokens.used(uses)
            else:
                job = self._job(split, number, first_document, documents)
                yield ShardTask(split, number, (assemble_shard, job), uses)

    def _job(self, split: str, number: int, first_document: int, documents: Documents) -> AssembleJob:
        tokens, index = self._paths(split, number)
        runs = token_runs(documents, self._tokens.paths, self._sequence.scattered)
        return AssembleJob(
            split=split,
            number=number,
            compressed=self._plan.config.compress,
            dtype=self._chosen.dtype,
            runs=runs,
            lost=self._tokens.lost({path for path, _, _ in runs}),
            document_ends=np.cumsum(documents.num_tokens).astype(np.uint64),
            document_source=documents.source.astype(np.uint32),
            document_record=documents.record.astype(np.uint64),
            first_document=first_document,
            tokens_path=tokens.with_name(tokens.name + ".partial"),
            index_path=index.with_name(index.name + ".partial"),
        )

    def _paths(self, split: str, number: int) -> tuple[Path, Path]:
        suffix = ".bin.zst" if self._plan.config.compress else ".bin"
        return self._directory / f"{split}_{number:05d}{suffix}", self._directory / f"{split}_{number:05d}.idx"

    def _finished(self, split: str, number: int) -> Shard | None:
        mark = read_mark(self._directory / f"{split}_{number:05d}.json")
        return Shard(**mark["shard"]) if mark else None

    def _settle(self, task: ShardTask, shard: Shard) -> None:
        job = task.call[1]
        for partial, path in zip((job.tokens_path, job.index_path), self._paths(task.split, task.number), strict=True):
            sync_file(partial)
            os.replace(partial, path)
        mark = self._directory / f"{task.split}_{task.number:05d}.json"
        write_mark(mark, {"shard": asdict(shard)}, list(self._paths(task.split, task.number)))
        self._tokens.used(task.uses)

    def _manifest(self, shards: list[Shard], progress: Progress) -> Manifest:
        plan, config, base = self._plan, self._plan.config, self._plan.base
        splits = {
            split: (
                sum(shard.num_documents for shard in shards if shard.split == split),
                sum(shard.num_tokens for shard in shards if shard.split == split),
            )
            for split in SPLITS
        }
        stages = self._accounts.stages(
            num_tokens=sum(tokens for _, tokens in splits.values()),
            splits=splits,
            num_dropped=self._sequence.num_dropped,
            seam_bytes=self._sequence.num_bytes,
        )
        all_shards = (*base.shards, *shards) if base else tuple(shards)
        tokenizer = self._chosen.tokenizer
        warnings = _split_warnings(splits, config.val_fraction, bool(base))
        for warning in warnings:
            progress.warn(warning)
        sources, num_sources = self._written_sources()
        state = self._written_state()
        return Manifest(
            token_dtype=self._chosen.dtype,
            tokenizer=TokenizerInfo(
                name=tokenizer.name,
                hash=self._chosen.hash,
                backend=tokenizer.backend,
                version=tokenizer.version,
                vocab_size=tokenizer.vocab_size,
                lossless=tokenizer.lossless,
                state=state,
            ),
            eos_id=tokenizer.eos_id,
            eos_token=tokenizer.eos_token,
            tokens_per_shard=config.tokens_per_shard,
            block_bytes=BLOCK_BYTES,
            shards=all_shards,
            sources=sources,
            num_sources=num_sources,
            stages=(*(base.stages if base else ()), *stages),
            config=base.config if base else plan.identity,
            warnings=(*tokenizer.warnings, *warnings),
        )

    def _written_sources(self) -> tuple[SideFile, int]:
        out_dir, base = self._plan.config.out_dir, self._plan.base
        lines = [json.dumps(line, ensure_ascii=False) for line in self._accounts.source_lines()]
        data = "".join(line + "\n" for line in lines).encode()
        name = SOURCES
        if base is not None:
            # Another name: the manifest in force still speaks of the old file.
            data = (out_dir / base.sources.file).read_bytes() + data
            name = f"sources-{blake3(data).hexdigest()[:8]}.jsonl"
        with replacing(out_dir / name) as file:
            file.write(data)
        return _side_file(name, data), self._plan.num_old_sources + len(lines)

    def _written_state(self) -> SideFile:
        if self._plan.base is not None:
            return self._plan.base.tokenizer.state
        data = self._chosen.state.read_bytes()
        with replacing(self._plan.config.out_dir / TOKENIZER_STATE) as file:
            file.write(data)
        return _side_file(TOKENIZER_STATE, data)


class _TokenFiles:
    """The units' files of tokens. Each is taken away when the last shard that needs it is on the disk."""

    def __init__(self) -> None:
        self.paths: dict[int, Path] = {}
        self._jobs: dict[Path, tuple[EncodeJob, int]] = {}
        self._unused: dict[int, int] = {}
        self._lock = threading.Lock()

    def add(self, job: EncodeJob, mark: dict[str, Any], place: NDArray[np.int64]) -> None:
        """The files of a unit; `place` says which of them each document is in."""
        for number, suffix in enumerate(TOKEN_FILES):
            file, path = job.unit.unit.number * len(TOKEN_FILES) + number, job.path(suffix)
            self.paths[file] = path
            self._jobs[path] = (job, mark["token_bytes"][number])
            if mark["open"] is None:
                with self._lock:
                    self._unused[file] = int(np.count_nonzero(place == number))

    def used(self, uses: tuple[tuple[int, int], ...]) -> None:
        """A shard with so many documents of each file will not be written again."""
        with self._lock:
            for file, count in uses:
                self._unused[file] -= count
                if self._unused[file] == 0:
                    self.paths[file].unlink(missing_ok=True)

    def lost(self, needed: set[Path]) -> tuple[EncodeJob, ...]:
        """The units of which a needed file is not there as it was."""
        gone: dict[str, EncodeJob] = {}
        for path in needed & self._jobs.keys():
            job, size = self._jobs[path]
            if not path.exists() or path.stat().st_size != size:
                gone[job.key] = job
        return tuple(gone.values())


def _side_file(name: str, data: bytes) -> SideFile:
    return SideFile(file=name, hash=str(blake3(data).hexdigest()), num_bytes=len(data))


def _split_warnings(splits: dict[str, tuple[int, int]], val_fraction: float, appended: bool) -> list[str]:
    train, val = splits["train"][0], splits["val"][0]
    advice = "the split goes by whole documents: cut the text into more with --document_separator, or change --seed"
    if not train and not val:
        return ["nothing new: every document was empty or a duplicate"]
    if appended:
        return []
    if not train:
        return [f"train is empty: all {val} documents fell into val; {advice}"]
    if not val and val_fraction:
        return [f"val is empty: none of the {train} documents fell into it; {advice}"]
    return []


def _link(source: Path, target: Path) -> None:
    """`target` is `source` under another name; the work directory keeps its own until all is done."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        # Not every file system has links.
        with disk_full_as_error(target), replacing(target) as out, open(source, "rb") as file:
            shutil.copyfileobj(file, out, 1 << 20)
