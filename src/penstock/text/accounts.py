"""What went in, what came out, and what was dropped by which reason, stage by stage.

The books must balance: at every stage what went in is what came out plus what was dropped.
"""

from collections import Counter
from typing import Any

from blake3 import blake3

from penstock.errors import InputError
from penstock.text.planning import Plan

_MOST_EXAMPLES = 20


class Accounts:
    """Adds up what the units report. The sum does not depend on the order in which they do."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._parts: dict[tuple[int, int], dict[str, Any]] = {}
        self._counts: Counter[str] = Counter()
        self._num_bad = self._num_records = 0

    def add_read(self, unit: int, mark: dict[str, Any]) -> None:
        """What a unit read: one tally for each of its parts."""
        for number, (source, tally) in enumerate(zip(mark["sources"], mark["tallies"], strict=True)):
            self._parts[unit, number] = {"source": source, **tally}
            self._num_bad += sum(tally["num_bad"].values())
            self._num_records += tally["num_records"] - tally["num_blank"]

    def add_counts(self, counts: dict[str, int]) -> None:
        self._counts.update(counts)

    def tally(self, unit: int, part: int) -> dict[str, Any]:
        """What was read of one part of a unit."""
        return self._parts[unit, part]

    def first_records(self) -> dict[int, int]:
        """For each unit, how many records of its (only) file stand in the units before it."""
        seen: Counter[int] = Counter()
        first: dict[int, int] = {}
        for (unit, number), part in sorted(self._parts.items()):
            first[unit] = seen[part["source"]] if number == 0 else 0
            seen[part["source"]] += part["num_records"]
        return first

    def bad_examples(self) -> list[str]:
        """The first records that could not be used, with file and line."""
        first = self.first_records()
        examples: list[str] = []
        for (unit, _), part in sorted(self._parts.items()):
            path = self._plan.files[part["source"]].path
            examples += [f"{path}:{first[unit] + record + 1}: {what}" for record, what in part["bad_examples"]]
        return examples[:_MOST_EXAMPLES]

    def check_bad_records(self, *, final: bool) -> None:
        """Stops when too much cannot be read: early only once enough has been seen to be sure."""
        bad, total = self._num_bad, self._num_records
        if bad and (final or total >= 10_000) and bad > self._plan.config.max_bad_fraction * total:
            raise InputError(
                f"{bad:,} of {total:,} records cannot be used, more than --max_bad_fraction "
                f"{self._plan.config.max_bad_fraction}; the first: {'; '.join(self.bad_examples()[:3])}. "
                "Mend the inputs, name the right --text_column, or allow more"
            )

    def source_lines(self) -> list[dict[str, Any]]:
        """One line for each input: path, size, fingerprint, records."""
        digests: dict[int, list[str]] = {}
        records: Counter[int] = Counter()
        for _, part in sorted(self._parts.items()):
            digests.setdefault(part["source"], []).extend([part["digest"]] if part["digest"] else [])
            records[part["source"]] += part["num_records"]
        return [
            {
                "path": file.path,
                "num_bytes": file.num_bytes,
                "fingerprint": _combined(digests.get(number, [])),
                "num_records": records[number],
            }
            for number, file in enumerate(self._plan.files)
        ]

    def stages(
        self, *, num_tokens: int, splits: dict[str, tuple[int, int]], num_dropped: int, seam_bytes: int
    ) -> list[dict[str, Any]]:
        """The books.

        `splits`: documents and tokens of each. Of documents over several units: `num_dropped`, those with no text left,
        and `seam_bytes`, their text that was encoded between units.
        """
        counts = self._counts.copy()
        whole = self._plan.config.dedup == "documents"
        counts["dropped_documents:duplicate_document" if whole else "dropped_documents:duplicate_lines"] += num_dropped
        parts = list(self._parts.values())
        bad: Counter[str] = Counter()
        for part in parts:
            bad.update(part["num_bad"])
        blank = sum(part["num_blank"] for part in parts)
        read, empty = counts["read_documents"], counts["dropped_documents:empty"]
        records = sum(part["num_records"] for part in parts)
        dedup_reasons = ("duplicate_lines", "duplicate_document", "near_duplicate")
        dropped = {
            reason: {
                "documents": counts[f"dropped_documents:{reason}"],
                "bytes": counts[f"dropped_bytes:{reason}"],
                **({"lines": counts[f"dropped_lines:{reason}"]} if reason == "duplicate_lines" else {}),
            }
            for reason in dedup_reasons
        }
        clean_documents = read - empty
        final_documents = clean_documents - sum(entry["documents"] for entry in dropped.values())
        final_bytes = counts["encoded_bytes"] + seam_bytes
        clean_bytes = final_bytes + sum(entry["bytes"] for entry in dropped.values())
        assert records == read + sum(bad.values()) + blank, "records read do not add up"
        assert final_documents == sum(documents for documents, _ in splits.values()), "documents do not add up"
        assert num_tokens == sum(tokens for _, tokens in splits.values()), "tokens do not add up"
        return [
            {
                "stage": "read",
                "records_in": records,
                "documents_out": read,
                "stored_bytes_in": self._plan.num_bytes,
                "bytes_out": counts["read_bytes"],
                "dropped": {
                    **{reason: {"records": number} for reason, number in sorted(bad.items())},
                    **({"blank_line": {"records": blank}} if blank else {}),
                },
                "bad_examples": self.bad_examples(),
                "replaced": {
                    "invalid_utf8": sum(part["num_invalid_utf8"] for part in parts),
                    "lone_surrogates": sum(part["num_lone_surrogates"] for part in parts),
                },
            },
            {
                "stage": "clean",
                "documents_in": read,
                "documents_out": clean_documents,
                "bytes_in": counts["read_bytes"],
                "bytes_out": clean_bytes,
                "dropped": {"empty": {"documents": empty}},
                "normalized": {"bytes": counts["read_bytes"] - clean_bytes},
            },
            {
                "stage": "dedup",
                "documents_in": clean_documents,
                "documents_out": final_documents,
                "bytes_in": clean_bytes,
                "bytes_out": final_bytes,
                "dropped": {reason: entry for reason, entry in dropped.items() if any(entry.values())},
            },
            {
                "stage": "tokenize",
                "documents_in": final_documents,
                "documents_out": final_documents,
                "bytes_in": final_bytes,
                "tokens_out": num_tokens,
                "dropped": {},
                "replaced": {"unknown_characters": counts["unknown_characters"]},
            },
            {
                "stage": "split",
                "documents_in": final_documents,
                "tokens_in": num_tokens,
                **{
                    split: {"documents_out": documents, "tokens_out": tokens}
                    for split, (documents, tokens) in splits.items()
                },
                "dropped": {},
            },
        ]


def _combined(digests: list[str]) -> str:
    """A file read in one go is known by its hash; one read in parts by the hash of their hashes."""
    return digests[0] if len(digests) == 1 else str(blake3("".join(digests).encode()).hexdigest())
