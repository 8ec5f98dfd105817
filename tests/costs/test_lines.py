"""A month's costs by whatever is asked, with the same total everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.attribution import total_of
from spillway.costs.lines import IDLE, idle_lines, lines, merged, parts_of
from spillway.costs.render import chart, rows, table
from spillway.errors import UnknownName
from spillway.model import Billing, CostEntry, ReservedContract
from spillway.months import named_month
from spillway.pricing import cost, gpu_hours, monthly_fixed_cost
from spillway.testing.builders import node_pool, onprem_cluster
from spillway.testing.ledger_values import a_cost

MARCH = named_month("2026-03", "UTC")
assert MARCH is not None
START = datetime(2026, 3, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


def booked(attempt: str, hours: float = 1, *, price: str = "2.5", gpus: int = 1, **fields: Any) -> CostEntry:
    end = START + hours * HOUR
    entry = a_cost(
        attempt,
        gpus=gpus,
        price_per_gpu_hour=Decimal(price),
        gpu_hours=gpu_hours(gpus, START, end),
        amount=cost(gpus, START, end, Decimal(price)),
        started_at=START,
        ended_at=end,
        pool="a100",
    )
    return CostEntry(**{**{name: getattr(entry, name) for name in CostEntry.__slots__}, **fields})


ENTRIES = (
    booked("a-1", 4, utilisation=Decimal("0.5"), reserved_at=START - HOUR, business_scene="search"),
    booked("a-2", 2, utilisation=Decimal("0.2"), reserved_at=START),
    booked("b-1", 1, price="8", department="vision", cluster="cloud", pool="h100", billing=Billing.ON_DEMAND),
)


def test_lines_add_up_hours_and_money_by_the_keys_that_are_asked_for() -> None:
    nlp, vision = sorted(lines(parts_of(ENTRIES, MARCH, "UTC"), ["department"]), key=lambda line: line.keys[0] or "")
    assert (nlp.keys, nlp.bookings, nlp.billed, nlp.allocated) == (("nlp",), 2, Decimal(6), Decimal(7))
    assert (nlp.measured, nlp.used, nlp.metered) == (Decimal(6), Decimal("2.4"), Decimal(15))
    assert nlp.utilisation == Decimal("0.4")
    assert (vision.metered, vision.allocated, vision.utilisation) == (Decimal(8), None, None)


def test_runs_and_what_has_no_scene_are_lines_of_their_own() -> None:
    found = lines(parts_of(ENTRIES, MARCH, "UTC"), ["run", "business_scene"])
    assert [line.keys for line in found] == [("a", "search"), ("b", None), ("a", None)]


def test_a_key_that_costs_are_not_told_by_is_named() -> None:
    with pytest.raises(UnknownName, match=r"unknown key of costs 'departmnt'; .* Did you mean 'department'"):
        lines((), ["departmnt"])


def test_a_contract_is_borne_by_those_who_use_its_gpus_and_the_rest_of_it_is_idle() -> None:
    """Of 32 GPUs 16 are under contract, 50 a month each; power and room are 100 for each of the 32."""
    contract = ReservedContract(gpus=16, paid=True, cost_per_month=Decimal(800))
    pool = node_pool(fixed_cost_per_month=Decimal(3200), reserved=contract)
    shares = {billing: monthly_fixed_cost(pool, billing) for billing in (Billing.RESERVED, Billing.ON_DEMAND)}
    assert shares == {Billing.RESERVED: 150, Billing.ON_DEMAND: 100}
    bookings = [
        booked(f"{billing}-1", 0, billing=billing, fixed_cost_per_gpu_month=shares[billing]) for billing in shares
    ]
    parts = parts_of(bookings, MARCH, "UTC")
    clusters = [onprem_cluster(pools=(pool,))]
    [idle] = idle_lines(parts, clusters, MARCH, MARCH.ends_at, ("department",))
    assert idle.fixed + sum(part.fixed for part in parts) == 4000


def test_fixed_cost_that_nobody_bears_is_idle_and_the_whole_is_what_falls_due() -> None:
    month = named_month("2026-03", "UTC")
    assert month is not None
    pool = node_pool(fixed_cost_per_month=Decimal(3200))  # 32 GPUs: 100 each
    entry = booked("a-1", 0, fixed_cost_per_gpu_month=Decimal(100))
    half = month.starts_at + (month.ends_at - month.starts_at) / 2
    whole = CostEntry(
        **{
            **{name: getattr(entry, name) for name in CostEntry.__slots__},
            "started_at": month.starts_at,
            "ended_at": half,
            "amount": Decimal(0),
        }
    )
    parts = parts_of([whole], month, "UTC")
    clusters = [onprem_cluster(pools=(pool, node_pool(name="free")))]
    (idle,) = idle_lines(parts, clusters, month, half, ["department", "job", "cluster"])
    assert idle.keys == (IDLE, None, "onprem")
    assert parts[0].fixed == Decimal(50)
    assert parts[0].fixed + idle.fixed == Decimal(1600)
    assert merged([idle, idle])[0].fixed == 2 * idle.fixed


amounts = st.decimals(min_value=0, max_value=10**5, places=6)


@given(found=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), amounts), max_size=12))
def test_tables_by_different_keys_have_one_total_to_the_cent(found: list[tuple[str, str, Decimal]]) -> None:
    entries = [
        booked(f"r{number}-1", department=department, job=job, amount=amount)
        for number, (department, job, amount) in enumerate(found)
    ]
    parts = parts_of(entries, MARCH, "UTC")
    totals = {sum((row[-1] for row in rows(lines(parts, by))), Decimal(0)) for by in (["department"], ["job"], ["run"])}
    assert totals == {total_of([amount for _, _, amount in found]).quantize(Decimal("0.01"))}


def test_a_table_shows_what_is_unknown_as_a_dash_and_ends_with_the_total() -> None:
    text = table(lines(parts_of(ENTRIES, MARCH, "UTC"), ["department"]), ["department"])
    assert text.splitlines()[2:] == [
        "| nlp | 7.00 | 6.00 | 2.40 | 40% | 15.00 | 0.00 | 15.00 |",
        "| vision | - | 1.00 | - | - | 8.00 | 0.00 | 8.00 |",
        "| total |  | 7.00 |  |  | 23.00 | 0.00 | 23.00 |",
    ]


def test_a_name_breaks_neither_a_table_nor_a_chart() -> None:
    found = lines(parts_of([booked("a-1", department="a|b\n<script>")], MARCH, "UTC"), ["department"])
    assert table(found, ["department"]).splitlines()[2].startswith("| a\\|b <script> |")
    picture = chart(found, "Costs & more")
    assert "<script>" not in picture
    assert "Costs &amp; more" in picture


def test_a_month_without_a_booking_is_an_empty_table_and_a_chart() -> None:
    assert table((), ["department"]).splitlines()[-1].endswith("| 0.00 | 0.00 | 0.00 |")
    assert chart((), "nothing").startswith("<svg")
