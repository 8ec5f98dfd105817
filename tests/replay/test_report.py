"""A comparison of policies as table, JSON and page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser

import numpy as np
import pytest

from spillway.replay.bounds import Bounds
from spillway.replay.metrics import Orders, Stays
from spillway.replay.page import page
from spillway.replay.plots import nice
from spillway.replay.report import HEADER, Comparison, as_json, compared, rows
from spillway.replay.steps import HOUR, Steps
from spillway.testing.replayed import RESULT

NASTY = "<script>alert('x')</script> & \"more\""


def comparison(*names: str, bounds: Bounds = Bounds(fluid=30, placement=36)) -> Comparison:  # noqa: B008
    results = [replace(RESULT, policy=name) for name in names or ("default",)]
    return compared(
        results, bounds, local_gpus=8, cloud_price_per_gpu_hour=Decimal("8.0"), notes=("3 rows were left out",)
    )


def test_the_table_has_a_row_a_policy_and_the_bounds_beneath() -> None:
    cells = rows(comparison("default", "thrifty"))
    assert [row[0] for row in cells] == [
        "default",
        "thrifty",
        "least without waits and moves",
        "least without waits, moves are free",
    ]
    assert dict(zip(HEADER, cells[0], strict=True)) == {
        "POLICY": "default",
        "CLOUD COST": "576",
        "x BOUND": "2.00",
        "PAID GPU-H": "72",
        "USED GPU-H": "44",
        "IDLE": "38.9%",
        "WAIT MEAN": "52.50",
        "P50": "15.0",
        "P95": "157.5",
        "P99": "175.5",
        "RESPONSE": "6.67",
        "LOCAL USE": "77.5%",
        "MOVES": "1",
        "FLAPS": "1",
        "INTERRUPTED": "0",
        "LOST GPU-H": "0",
    }
    assert [cells[2][1:4], cells[3][1:4]] == [("288", None, "36"), ("240", None, "30")]
    assert {len(row) for row in cells} == {len(HEADER)}


def test_json_tells_money_as_text_and_what_is_unknown_as_null() -> None:
    told = json.loads(json.dumps(as_json(comparison(bounds=Bounds(fluid=30)))))
    assert told["bounds"] == {
        "placement": {"cloud_gpu_hours": None, "cloud_cost": None},
        "fluid": {"cloud_gpu_hours": 30, "cloud_cost": "240.00"},
    }
    policy = told["policies"][0]
    assert (policy["cloud_cost"], policy["paid_over_bound"], policy["moves"]) == ("576.00", None, 1)
    assert policy["cloud_utilisation"] == pytest.approx(44 / 72)
    assert told["measured"] == ["2026-03-02T00:00:00+00:00", "2026-03-02T10:00:00+00:00"]
    assert told["notes"] == [
        "3 rows were left out",
        "default: when the replay ended, 1 job had not started and 1 not ended; "
        "what waits is left so after 7 quiet days",
    ]


class Elements(HTMLParser):
    """Fails where elements do not end in the order that they began."""

    VOID = frozenset({"meta", "path", "rect"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: dict[str, int] = {}
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_loads_nothing_and_shows_names_as_text() -> None:
    whole = page(comparison(NASTY, "thrifty"))
    elements = Elements()
    elements.feed(whole)
    assert elements.open == []
    assert (elements.seen["svg"], elements.seen.get("script"), elements.seen["h1"]) == (4, None, 1)
    assert NASTY in elements.text
    assert not re.search(r"https?:|url\(|@import|src=|href=|javascript:|\bon\w+=", whole)
    assert "nan" not in re.sub(r"<style>.*</style>", "", whole, flags=re.DOTALL)


@pytest.mark.parametrize(
    "changed",
    [
        {"measured": (0.0, 0.0)},
        {"measured": (50 * HOUR, 60 * HOUR)},
        {"capacity": (RESULT.capacity[0], Steps(at=np.zeros(0), gpus=np.zeros(0, dtype=np.int64)))},
        {
            "stays": Stays(
                job=np.zeros(0, dtype=np.int64), place=np.zeros(0, dtype=np.int64), start=np.zeros(0), end=np.zeros(0)
            ),
            "orders": Orders(at=np.zeros(0), place=np.zeros(0, dtype=np.int64), nodes=np.zeros(0, dtype=np.int64)),
            "started": np.full(4, np.nan),
            "ended": np.full(4, np.nan),
        },
    ],
    ids=["no time", "no job", "no cloud", "nothing ran"],
)  # fmt: skip
def test_a_page_of_little_is_a_page(changed: dict[str, object]) -> None:
    result = replace(RESULT, **changed)  # type: ignore[arg-type]
    found = compared([result], Bounds(fluid=0.0), local_gpus=8, cloud_price_per_gpu_hour=Decimal(8))
    elements = Elements()
    elements.feed(page(found))
    assert (elements.open, elements.seen["svg"]) == ([], 3)
    assert len(rows(found)) == 3


@pytest.mark.parametrize(
    ("low", "high", "count", "marks"),
    [
        (0, 100, 5, [0, 20, 40, 60, 80, 100]),
        (0, 7, 4, [0, 2, 4, 6]),
        (0, 1_900_000, 8, [250_000.0 * at for at in range(8)]),
        (3, 3, 4, [3]),
    ],
)
def test_marks_of_an_axis_are_round(low: float, high: float, count: int, marks: list[float]) -> None:
    assert nice(low, high, count) == marks
