"""Is every byte of a dataset what its manifest says?

Reads everything and changes nothing. A damaged shard is a finding, not an exception: all shards are looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from penstock.errors import DatasetError
from penstock.shards.layout import index_name
from penstock.shards.manifest import Manifest, Shard, SideFile, read_manifest
from penstock.shards.reader import ShardReader


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that is not as the manifest says."""

    file: str
    block: int | None
    """The first bad block, where one can be named."""
    problem: str

    def __str__(self) -> str:
        where = self.file if self.block is None else f"{self.file}: block {self.block}"
        return f"{where}: {self.problem}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """What was checked, and what was found."""

    num_shards: int
    num_bytes: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


def verified(directory: Path, *, on_bytes: Callable[[int], None] = lambda _: None) -> Verification:
    """Checks the manifest, the side files, and every index and block of every shard.

    `on_bytes` is told as bytes are checked.
    """
    manifest = read_manifest(directory)
    findings: list[Finding] = []
    for side in (manifest.tokenizer.state, manifest.sources):
        findings += _side_file_findings(directory, side)
    next_document = dict.fromkeys(manifest.splits, 0)
    for shard in manifest.shards:
        found = shard_finding(directory, manifest, shard, first_document=next_document[shard.split])
        findings += [found] if found else []
        next_document[shard.split] += shard.num_documents
        on_bytes(shard.stored_bytes)
    return Verification(
        num_shards=len(manifest.shards),
        num_bytes=sum(shard.stored_bytes for shard in manifest.shards),
        findings=tuple(findings),
    )


def shard_finding(directory: Path, manifest: Manifest, shard: Shard, *, first_document: int) -> Finding | None:
    """The first thing wrong with `shard`, or None."""
    index_path = directory / index_name(shard.name)
    try:
        reader = ShardReader(directory, shard, manifest.dtype)
        _ = reader.index
    except DatasetError as error:
        return Finding(file=shard.name, block=None, problem=_without(str(error), directory))
    if (got := blake3(index_path.read_bytes()).hexdigest()) != shard.index_hash:
        problem = f"hashes to {got[:12]}, the manifest says {shard.index_hash[:12]}"
        return Finding(file=index_name(shard.name), block=None, problem=problem)
    if reader.index.first_document != first_document:
        problem = f"starts at document {reader.index.first_document}, expected {first_document}"
        return Finding(file=index_name(shard.name), block=None, problem=problem)
    whole = blake3()
    for number, row in enumerate(reader.index.block_hashes):
        try:
            block = reader.block(number)
        except DatasetError as error:
            return Finding(file=shard.name, block=number, problem=_without(str(error), directory))
        if (got := blake3(block.data).hexdigest()) != row.tobytes().hex():
            problem = f"hashes to {got[:12]}, the index says {row.tobytes().hex()[:12]}"
            return Finding(file=shard.name, block=number, problem=problem)
        if len(block) and int(block.view(manifest.dtype).max()) >= manifest.tokenizer.vocab_size:
            problem = f"holds an id past the vocabulary of {manifest.tokenizer.vocab_size}"
            return Finding(file=shard.name, block=number, problem=problem)
        whole.update(block.data)
    if (got := whole.hexdigest()) != shard.hash:
        return Finding(
            file=shard.name, block=None, problem=f"hashes to {got[:12]}, the manifest says {shard.hash[:12]}"
        )
    return None


def _side_file_findings(directory: Path, side: SideFile) -> list[Finding]:
    try:
        got = blake3((directory / side.file).read_bytes()).hexdigest()
    except OSError as error:
        return [Finding(file=side.file, block=None, problem=f"cannot be read ({error.strerror})")]
    if got != side.hash:
        return [
            Finding(file=side.file, block=None, problem=f"hashes to {got[:12]}, the manifest says {side.hash[:12]}")
        ]
    return []


def _without(message: str, directory: Path) -> str:
    return message.replace(f"{directory}/", "")
