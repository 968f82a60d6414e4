"""What a run is compared with, and the page that shows it."""

import math
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from penstock import Dataset
from penstock.train.baseline import baselines
from penstock.train.page import loss_curve, write_page

from .builders import planned

RECORDS = [
    {"kind": "train", "step": 10, "loss": 5.0},
    {"kind": "train", "step": 20, "loss": 4.0},
    {"kind": "val", "step": 20, "val_loss": 4.1},
]


def stream(dataset: Dataset) -> list[int]:
    return [
        int(token)
        for number, shard in enumerate(dataset.shards)
        for token in dataset.reader(number).tokens(0, shard.num_tokens)
    ]


def test_baselines_are_those_of_plain_counting(made_once: Path) -> None:
    train, val = Dataset(made_once / "dataset"), Dataset(made_once / "dataset", "val")
    seen, asked = stream(train), stream(val)
    size = train.manifest.tokenizer.vocab_size
    singles, pairs, firsts = Counter(seen), Counter(pairwise(seen)), Counter(seen[:-1])

    def single(token: int) -> float:
        return (singles[token] + 1) / (len(seen) + size)

    def mixed(share: float) -> float:
        terms = [
            -math.log(share * pairs[one, two] / max(1, firsts[one]) + (1 - share) * single(two))
            for one, two in pairwise(asked)
        ]
        return sum(terms) / len(terms)

    unigram = -sum(math.log(single(token)) for token in asked[1:]) / (len(asked) - 1)
    found = baselines(train, val)
    assert found.unigram == pytest.approx(unigram, rel=1e-9)
    assert found.bigram == pytest.approx(min(mixed(share) for share in (0.1, 0.3, 0.5, 0.7, 0.9)), rel=1e-9)
    assert found.bigram < found.unigram < math.log(size)


class Seen(HTMLParser):
    """Which tags and attributes a page has."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}


def test_the_page_needs_nothing_else_and_marks_where_the_run_went_on(made_once: Path, tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "report.html"
    write_page(
        path,
        title="A <run> & more",
        records=RECORDS,
        plan=planned(made_once, rows="best_fit"),
        lines=[("bigram", 4.5)],
        resumed_at=[15],
        numbers=[("tokens/s", "1,234 <fast>")],
        sample="<script>alert(1)</script>",
    )
    page = path.read_text("utf-8")
    seen = Seen()
    seen.feed(page)
    assert not seen.tags.keys() & {"script", "link", "img", "iframe", "object"}
    assert not seen.attributes & {"src", "href", "onload"}
    assert not re.search(r"https?://|@import|url\(", page)
    assert "A &lt;run&gt; &amp; more" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "killed; resumed at step 15" in page
    assert "bigram 4.50" in page
    assert "1,234 &lt;fast&gt;" in page
    assert (seen.tags["svg"], seen.tags["polyline"]) == (2, 2)
    assert seen.tags["rect"] > 12


def test_the_mark_stands_between_the_steps_that_it_is_between() -> None:
    drawn = loss_curve(RECORDS, resumed_at=[15])
    train = next(re.finditer(r"points='([^']*)'", drawn))[1]
    first, last = (float(point.split(",")[0]) for point in train.split())
    mark = next(re.finditer(r"x1='([\d.]+)' x2='\1'", drawn))[1]
    assert first < float(mark) < last


@pytest.mark.parametrize("records", [[], RECORDS[:1], RECORDS[2:], [{"kind": "train", "step": 1, "loss": 2.0}] * 2])
def test_a_curve_of_few_points_is_drawn_or_said_to_be_missing(records: list[dict[str, object]]) -> None:
    drawn = loss_curve(records)
    assert "nan" not in drawn
    assert drawn == "<p>No steps yet.</p>" if not records else drawn.endswith("</svg>")
