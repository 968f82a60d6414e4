"""What is to be done, before any of it is: inputs, units, and whether the output directory fits.

The plan is written down when work starts. A later run with other settings is refused, with what differs; one whose
input files changed goes on, and reads those again.
"""

import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from penstock.errors import ConfigError, DatasetError, InputError, TokenizerError
from penstock.shards.atomic import replacing
from penstock.shards.layout import is_dataset
from penstock.shards.manifest import Manifest, read_manifest
from penstock.shards.reader import ShardSet
from penstock.text.config import PrepareConfig
from penstock.text.gather import OldShard
from penstock.text.sources.files import STDIN, SourceFile, found_files
from penstock.text.sources.units import Unit, work_units
from penstock.text.work import Work, fingerprint
from penstock.types import Progress

_MUST_MATCH: Final = ("val_fraction", "seed", "normalize", "dedup", "near_dedup", "near_threshold", "token_dtype")
_PLAN_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The work of one `prepare`."""

    config: PrepareConfig
    files: list[SourceFile]
    paths: list[str]
    """Where each file really lies: standard input is kept in a file."""
    units: list[Unit]
    old: tuple[OldShard, ...]
    """Shards of the dataset that is added to, as units before all others."""
    base: Manifest | None
    """The dataset that is added to."""
    num_old_sources: int
    identity: dict[str, Any]
    fingerprint: str

    @property
    def staged(self) -> bool:
        """Whether something has to be known of the whole corpus before the first id can be written."""
        return self.config.dedup != "none" or self.config.near_dedup or self.tokenization == "char"

    @property
    def tokenization(self) -> str:
        return "gpt2" if self.config.tokenization == "auto" else self.config.tokenization

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)

    def unit_key(self, unit: Unit) -> str:
        """The name of a unit's results: what it reads, and the settings."""
        parts = [
            [self.files[p.source].path, self.files[p.source].num_bytes, self.files[p.source].mtime_ns, p.start, p.stop]
            for p in unit.parts
        ]
        return fingerprint([self.identity, parts, [p.source for p in unit.parts]])


def made_plan(config: PrepareConfig, work: Work, progress: Progress) -> Plan:
    """The plan for `config`. Refuses an output directory that holds something else."""
    base, unit_bytes = _base(config), config.unit_bytes
    spool = _spooled_stdin(work) if STDIN in config.input_files else None
    files = found_files(config.input_files, default_kind=config.input_format, stdin_spool=spool)
    if spool is not None:
        files = [_stdin_file(file, spool) if file.path == STDIN else file for file in files]
    num_old_sources = base.num_sources if base else 0
    old: tuple[OldShard, ...] = ()
    if base is not None:
        files = _not_yet_in(config, base, files, progress)
        if config.dedup != "none" or config.near_dedup:
            _require_lossless(base)
            old = tuple(OldShard(directory=config.out_dir, name=shard.name) for shard in base.shards)
    identity = _identity(config, base)
    _refuse_other_work(work, identity, [file.path for file in files])
    paths = [str(spool) if file.path == STDIN else file.path for file in files]
    csv_bytes = sum(file.num_bytes for file in files if file.kind == "csv" and file.num_bytes > unit_bytes)
    if csv_bytes:
        progress.stage("finding csv records", csv_bytes)
    units = work_units(files, paths, unit_bytes=unit_bytes, on_bytes=progress.advance)
    units = [Unit(len(old) + unit.number, unit.parts, unit.num_bytes) for unit in units]
    plan = Plan(
        config=config,
        files=files,
        paths=paths,
        units=units,
        old=old,
        base=base,
        num_old_sources=num_old_sources,
        identity=identity,
        fingerprint=fingerprint([identity, [asdict(file) for file in files], unit_bytes]),
    )
    with replacing(work.directory() / "plan.json") as out:
        record = {"version": _PLAN_VERSION, "identity": identity, "inputs": [file.path for file in files]}
        out.write(json.dumps(record, indent=1).encode())
    return plan


def already_done(config: PrepareConfig) -> Manifest | None:
    """The finished dataset, if `config` would make it again; an error if the directory holds another one."""
    if config.append or not is_dataset(config.out_dir):
        _refuse_strangers(config.out_dir)
        return None
    dataset = ShardSet(config.out_dir)
    identity = {**config.identity(), "tokenization": _tokenization_identity(config)}
    differences = _differences(dict(dataset.manifest.config), _as_json({**identity, "base": None}))
    if not differences and STDIN not in config.input_files:
        differences = _input_differences(config, dataset)
    if differences:
        raise ConfigError(
            f"{config.out_dir}: already holds a dataset made otherwise: {'; '.join(differences)}. "
            "Choose another --out_dir, delete this one, or add to it with --append"
        )
    return dataset.manifest


def _base(config: PrepareConfig) -> Manifest | None:
    if not config.append:
        return None
    if not is_dataset(config.out_dir):
        raise DatasetError(
            f"{config.out_dir}: nothing to --append to, there is no finished dataset; leave --append out"
        )
    base = read_manifest(config.out_dir)
    identity = _as_json(config.identity())
    differences = [
        f"{name} is {base.config.get(name)!r} there and {identity[name]!r} here"
        for name in _MUST_MATCH
        if base.config.get(name) != identity[name]
    ]
    if config.tokenization not in ("auto", base.tokenizer.name):
        differences.append(f"tokenization is {base.tokenizer.name!r} there and {config.tokenization!r} here")
    if differences:
        raise ConfigError(f"{config.out_dir}: cannot append, its settings differ: {'; '.join(differences)}")
    return base


def _require_lossless(base: Manifest) -> None:
    if not base.tokenizer.lossless:
        raise TokenizerError(
            f"cannot deduplicate against this dataset: its tokenizer {base.tokenizer.name!r} does not give back the "
            "text. Prepare old and new inputs together, or append with --no_dedup to a dataset made with --no_dedup"
        )


def _not_yet_in(config: PrepareConfig, base: Manifest, files: list[SourceFile], progress: Progress) -> list[SourceFile]:
    known = {(source["path"], source["num_bytes"]) for source in ShardSet(config.out_dir).sources()}
    made = (config.out_dir / "dataset_metadata.json").stat().st_mtime_ns
    new = [file for file in files if (file.path, file.num_bytes) not in known or file.mtime_ns > made]
    if len(new) < len(files):
        progress.note(f"{len(files) - len(new)} of {len(files)} inputs are in the dataset already and are left out")
    return new


def _identity(config: PrepareConfig, base: Manifest | None) -> dict[str, Any]:
    return _as_json(
        {
            **config.identity(),
            "tokenization": _tokenization_identity(config) if base is None else base.tokenizer.hash,
            "base": base.fingerprint if base else None,
        }
    )


def _tokenization_identity(config: PrepareConfig) -> str:
    """A tokenizer in a file is known by its content: the name alone would miss a change."""
    name = "gpt2" if config.tokenization == "auto" else config.tokenization
    path = Path(name)
    path = path / "tokenizer.json" if path.is_dir() else path
    if path.is_file():
        return f"{path.name} {fingerprint(path.read_text('utf-8', 'replace'))}"
    return name


def _as_json(value: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(value))
    return copy


def _differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    names = sorted(set(there) | set(here))
    return [f"{n} is {there.get(n)!r} there and {here.get(n)!r} here" for n in names if there.get(n) != here.get(n)]


def _input_differences(config: PrepareConfig, dataset: ShardSet) -> list[str]:
    files = found_files(config.input_files, default_kind=config.input_format)
    made = (config.out_dir / "dataset_metadata.json").stat().st_mtime_ns
    there = {source["path"]: source["num_bytes"] for source in dataset.sources()}
    here = {file.path: file.num_bytes for file in files}
    changed = [
        file.path
        for file in files
        if file.path in there and (there[file.path] != file.num_bytes or file.mtime_ns > made)
    ]
    return (
        _named("inputs not in it", sorted(set(here) - set(there)))
        + _named("inputs no longer given", sorted(set(there) - set(here)))
        + _named("inputs that changed since", changed)
    )


def _named(what: str, paths: list[str]) -> list[str]:
    if not paths:
        return []
    return [f"{what}: {', '.join(paths[:3])}" + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")]


def _refuse_strangers(out_dir: Path) -> None:
    if out_dir.exists() and not out_dir.is_dir():
        raise ConfigError(f"{out_dir}: is a file; --out_dir needs a directory")
    parent = next(parent for parent in out_dir.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise ConfigError(f"{out_dir}: {parent} is a file; --out_dir needs a directory")
    if Work(out_dir).root.exists() or is_dataset(out_dir):
        return
    strangers = [path for split in ("train", "val") for path in (out_dir / split).glob("*") if path.is_file()]
    if strangers:
        raise ConfigError(f"{out_dir}: holds files that are not ours, such as {strangers[0]}; choose another --out_dir")


def _refuse_other_work(work: Work, identity: dict[str, Any], inputs: list[str]) -> None:
    try:
        plan = json.loads((work.root / "plan.json").read_bytes())
    except (OSError, ValueError):
        return
    differences = _differences(plan["identity"], identity)
    before, now = set(plan["inputs"]), set(inputs)
    differences += _named("inputs not in it", sorted(now - before)) + _named(
        "inputs no longer given", sorted(before - now)
    )
    if differences:
        raise ConfigError(
            f"{work.root.parent}: unfinished work of another configuration is here: {'; '.join(differences)}. "
            f"Finish it with the same settings, choose another --out_dir, or delete {work.root}"
        )


def _spooled_stdin(work: Work) -> Path:
    """Standard input in a file: it can only be read once, and work may have to be done again."""
    path = work.directory() / "stdin"
    with replacing(path, durable=False) as out:
        shutil.copyfileobj(sys.stdin.buffer, out, 1 << 20)
    if path.stat().st_size == 0:
        raise InputError("standard input is empty; there is no text to prepare")
    return path


def _stdin_file(file: SourceFile, spool: Path) -> SourceFile:
    # Known by its content: the time at which it was kept says nothing.
    from blake3 import blake3

    digest = blake3(max_threads=1)
    digest.update_mmap(spool)
    number = int(digest.hexdigest()[:12], 16)
    return SourceFile(
        path=file.path, kind=file.kind, compression=None, num_bytes=os.stat(spool).st_size, mtime_ns=number
    )
