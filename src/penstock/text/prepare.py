"""Text → a dataset: plan, gather, resolve, encode, assemble, publish.

Decides what runs when; workers do the work. Kill it anywhere and run it again: what is finished is not redone, and
the bytes are those of an undisturbed run, for any number of workers before and after.
"""

import multiprocessing
import shutil
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.engines import Crew, InProcess, process_pool
from penstock.errors import InputError
from penstock.shards.manifest import Manifest
from penstock.text.accounts import Accounts
from penstock.text.config import PrepareConfig
from penstock.text.duplicates import Drops, DuplicateSearch
from penstock.text.encode import EncodeJob, encode_unit
from penstock.text.gather import UnitJob, gather_unit
from penstock.text.plan_tokenizer import PlanTokenizer, plan_tokenizer
from penstock.text.planning import Plan, already_done, made_plan
from penstock.text.preflight import estimate, read_options, require_space
from penstock.text.publish import Publisher
from penstock.text.sources.units import Unit
from penstock.text.work import Work, fingerprint, read_mark
from penstock.types import Progress, Silence


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """What `prepare` did."""

    manifest: Manifest
    already_there: bool
    """Whether the dataset was finished before, so that nothing had to be done."""


def prepare(config: PrepareConfig, *, progress: Progress | None = None) -> Prepared:
    """Makes the dataset that `config` describes, or finishes it, or finds it finished."""
    progress = progress or Silence()
    work = Work(config.out_dir)
    done = already_done(config)
    if done is not None:
        work.remove()
        return Prepared(manifest=done, already_there=True)
    with _removed_if_unused(config.out_dir, work), work.locked():
        # Another run may have finished it while this one waited for the lock.
        if (done := already_done(config)) is not None:
            work.remove()
            return Prepared(manifest=done, already_there=True)
        work.discard_partials()
        plan = made_plan(config, work, progress)
        if not plan.files:
            assert plan.base is not None
            work.remove()
            return Prepared(manifest=plan.base, already_there=True)
        num_workers = min(config.num_workers(), max(1, len(plan.units) + len(plan.old)))
        if num_workers < min(config.workers, len(plan.units)):
            progress.warn(
                f"{num_workers} workers instead of {config.workers}: no more fit into --max_memory {config.max_memory}"
            )
        try:
            with _engine(num_workers) as engine:
                manifest = _Run(plan, work, engine, num_workers, progress).dataset()
        except BaseException:
            # What workers were writing when they were ended is of no use, and a full disk needs the space.
            work.discard_partials()
            raise
    work.remove()
    return Prepared(manifest=manifest, already_there=False)


@contextmanager
def _engine(num_workers: int) -> Iterator[Executor]:
    if num_workers == 1 or multiprocessing.current_process().daemon:
        yield InProcess()
    else:
        with process_pool(num_workers, preload=("penstock.text.assemble", "penstock.text.resolve")) as pool:
            yield pool


@contextmanager
def _removed_if_unused(out_dir: Path, work: Work) -> Iterator[None]:
    """A run that ends before it has finished anything leaves no trace."""
    existed = out_dir.exists()
    worked = work.root.exists()
    try:
        yield
    except BaseException:
        if not worked and not (work.accepted and work.has_results()):
            shutil.rmtree(work.root, ignore_errors=True)
            if not existed and out_dir.exists() and not any(out_dir.iterdir()):
                out_dir.rmdir()
        raise


class _Run:
    """One run over a plan. Holds what the stages hand on."""

    def __init__(self, plan: Plan, work: Work, engine: Executor, num_workers: int, progress: Progress) -> None:
        self._plan, self._work, self._progress = plan, work, progress
        self._engine, self._num_workers = engine, num_workers
        self._accounts = Accounts(plan)
        self._read_dir = work.directory("read")
        self._encoded_dir = work.directory("encoded")
        self._jobs = [*self._old_jobs(), *map(self._unit_job, plan.units)]
        self._readers = Crew(engine, num_workers)
        self._gathered: dict[int, dict[str, Any]] = {}
        self._all_gathered = False

    def dataset(self) -> Manifest:
        """Everything, from the inputs to the manifest."""
        plan = self._plan
        if plan.staged:
            self._begin_gathering()
        if plan.tokenization == "char" and plan.base is None:
            # Its vocabulary is the characters of the whole corpus.
            self._gather()
        chosen = plan_tokenizer(plan, self._work, self._progress, self._characters)
        expected = estimate(plan, chosen.tokenizer, self._work, token_bytes=np.dtype(chosen.dtype).itemsize)
        require_space(expected, plan.config.out_dir)
        self._work.accepted = True
        self._progress.note(
            f"{len(plan.files):,} files, {plan.num_bytes / 1e6:,.1f} MB: about {expected.num_tokens:,} tokens in "
            f"{expected.num_shards:,} shards, {expected.shard_bytes / 1e6:,.1f} MB; while preparing, at most "
            f"{expected.disk_bytes / 1e6:,.1f} MB of disk, of which {expected.free_bytes / 1e6:,.1f} MB are free"
        )
        drops = Drops()
        if plan.staged:
            self._gather()
            drops = self._resolve()
        return self._encode(chosen, drops)

    # Units

    def _unit_job(self, unit: Unit) -> UnitJob:
        plan, config = self._plan, self._plan.config
        return UnitJob(
            unit=unit,
            files=tuple((plan.files[part.source], plan.paths[part.source]) for part in unit.parts),
            options=read_options(plan),
            normalize=config.normalize,
            directory=self._read_dir,
            key=plan.unit_key(unit),
            compare_lines=config.dedup == "lines",
            compare_documents=config.dedup == "documents",
            compare_near=config.near_dedup,
            collect_characters=plan.tokenization == "char" and plan.base is None,
        )

    def _old_jobs(self) -> list[UnitJob]:
        plan, config = self._plan, self._plan.config
        return [
            UnitJob(
                unit=Unit(number, (), 0),
                files=(),
                options=read_options(plan),
                normalize=config.normalize,
                directory=self._read_dir,
                key=fingerprint([plan.identity, old.name]),
                old=old,
                compare_lines=config.dedup == "lines",
                compare_documents=config.dedup == "documents",
                compare_near=config.near_dedup,
            )
            for number, old in enumerate(plan.old)
        ]

    # First stage

    def _begin_gathering(self) -> None:
        """Sets the workers to reading, which takes no tokenizer, while that is still being chosen here."""
        for job in self._jobs:
            mark = read_mark(job.path(".gathered"))
            if mark is None:
                self._readers.add(job, gather_unit, job)
            else:
                self._gathered[job.unit.number] = mark
        self._readers.start()

    def _gather(self) -> None:
        if self._all_gathered:
            return
        self._progress.stage("reading", sum(job.unit.num_bytes for job in self._jobs))

        def take(job: UnitJob, mark: dict[str, Any]) -> None:
            self._gathered[job.unit.number] = mark
            self._progress.advance(job.unit.num_bytes)
            if job.old is None:
                self._accounts.add_read(job.unit.number, mark)
                self._accounts.add_counts(mark["counts"])
                self._accounts.check_bad_records(final=False)

        for job in self._jobs:
            if (mark := self._gathered.get(job.unit.number)) is not None:
                take(job, mark)
        for done in self._readers.finished():
            take(done.tag, done.result)
        self._accounts.check_bad_records(final=True)
        self._all_gathered = True

    # Second stage

    def _resolve(self) -> Drops:
        directory = self._work.directory("drops") / self._plan.fingerprint
        search = DuplicateSearch(
            self._plan.config, self._jobs, self._gathered, self._engine, self._num_workers, self._progress, directory
        )
        return search.drops()

    # Third and fourth stage

    def _encode(self, chosen: PlanTokenizer, drops: Drops) -> Manifest:
        plan = self._plan
        self._progress.stage("tokenizing", sum(job.unit.num_bytes for job in self._jobs))
        crew = Crew(self._engine, self._num_workers)
        waiting: dict[int, tuple[EncodeJob, dict[str, Any]]] = {}
        following = len(plan.old)

        with Publisher(plan, self._work, self._accounts, chosen) as publisher:

            def take(job: EncodeJob, mark: dict[str, Any]) -> None:
                nonlocal following
                self._count_encoded(job, mark)
                # Shards are filled in the order of the inputs, whatever order units finish in.
                waiting[job.unit.unit.number] = (job, mark)
                while following in waiting:
                    for shard in publisher.add_unit(*waiting.pop(following)):
                        crew.add(shard, *shard.call, soon=True)
                    following += 1

            for job in self._jobs:
                if job.old is None:
                    encode_job = self._encode_job(job, chosen, drops)
                    if (mark := read_mark(encode_job.path(".encoded"))) is not None:
                        take(encode_job, mark)
                    else:
                        crew.add(encode_job, encode_unit, encode_job)
            for done in crew.finished():
                if isinstance(done.tag, EncodeJob):
                    take(done.tag, done.result)
                else:
                    publisher.shard_written(done.tag, done.result)
            self._accounts.check_bad_records(final=True)
            for shard in publisher.last_shards():
                crew.add(shard, *shard.call)
            for done in crew.finished():
                publisher.shard_written(done.tag, done.result)
            return publisher.published(self._progress)

    def _count_encoded(self, job: EncodeJob, mark: dict[str, Any]) -> None:
        self._progress.advance(job.unit.unit.num_bytes)
        self._accounts.add_counts(mark["counts"])
        if self._plan.staged:
            # Its clean text has served its purpose.
            job.unit.path(".lines").unlink(missing_ok=True)
        else:
            self._accounts.add_read(job.unit.unit.number, mark)
            self._accounts.check_bad_records(final=False)

    def _encode_job(self, job: UnitJob, chosen: PlanTokenizer, drops: Drops) -> EncodeJob:
        plan, backend = self._plan, chosen.tokenizer.backend
        # What is dropped from a unit depends on all the others.
        scope = plan.fingerprint if plan.staged else job.key
        return EncodeJob(
            unit=job,
            gathered=plan.staged,
            tokenizer_state=chosen.state,
            backend=backend if backend != "penstock" else None,
            dtype=chosen.dtype,
            seed=plan.config.seed,
            val_fraction=plan.config.val_fraction,
            directory=self._encoded_dir,
            key=fingerprint([job.key, scope, chosen.dtype, chosen.hash]),
            dropped_lines=drops.lines,
            dropped_documents=drops.documents,
            near_duplicates=drops.near,
        )

    # Tokenizer

    def _characters(self) -> str:
        found = {character for mark in self._gathered.values() for character in mark["characters"]}
        if not found:
            raise InputError("char tokenization: the inputs hold no text to take characters from")
        return "".join(sorted(found))
