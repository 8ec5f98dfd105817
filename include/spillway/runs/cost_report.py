"""A month's report of costs: gathered from the ledger, written as Markdown, CSV, Parquet and a chart."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path

from spillway.attribution import MonthlyCost, total_of
from spillway.costs.advice import Advice, advise
from spillway.costs.lines import KEYS, CostLine, idle_lines, lines, merged, parts_of
from spillway.costs.render import COLUMNS, advice_table, budget_table, chart, rows, table
from spillway.errors import ConfigError
from spillway.model import Attempt, BudgetState, Cluster, ClusterState, CostEntry
from spillway.months import Month, month_of, named_month
from spillway.runs.admission import snapshot
from spillway.runs.reports import Writer, write_files
from spillway.runs.services import Services
from spillway.runs.settling import cost_until

TABLES = (("department",), ("business_scene",), ("job",), ("cluster", "billing"), ("billing",))
FINEST = tuple(KEYS)
FILES = ("report.md", "costs.csv", "costs.parquet", "costs.svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """What a month has cost until ``taken_at``, by pods that have ended and by ``running`` that have not.

    ``budgets`` are those of this month, none for an earlier one.
    """

    month: Month
    time_zone: str
    taken_at: datetime
    parts: tuple[MonthlyCost, ...]
    running: int
    clusters: tuple[Cluster, ...]
    budgets: tuple[BudgetState, ...]
    advice: tuple[Advice, ...]

    def lines(self, by: Sequence[str]) -> tuple[CostLine, ...]:
        """The month by these keys, what nobody used of fixed costs included, the most expensive line first."""
        idle = idle_lines(self.parts, self.clusters, self.month, self.taken_at, by)
        found = merged((*lines(self.parts, by), *idle))
        return tuple(sorted(found, key=lambda line: -line.amount))

    @property
    def total(self) -> Decimal:
        return total_of([line.amount for line in self.lines(())])

    def markdown(self) -> str:
        """The whole report for a person."""
        name = self.month.name
        pods = f"pods that still run, with what they have cost by then: {self.running}"
        text = [f"# Costs of {name} ({self.time_zone})", f"Until {self.taken_at:%Y-%m-%d %H:%M} UTC; {pods}."]
        for by in TABLES:
            text += [f"## By {' and '.join(by).replace('_', ' ')}", table(self.lines(by), by)]
        if self.budgets:
            text += ["## Budgets of bought GPUs", budget_table(self.budgets, self.taken_at)]
        advice = advice_table(self.advice) if self.advice else "Nothing that would save money was found."
        return "\n\n".join([*text, "## Advice", advice]) + "\n"


def month_for(services: Services, name: str | None, *, ago: timedelta = timedelta(0)) -> Month:
    """The month of that name; where None the one of now, or of so long ago.

    Raises:
        ConfigError: the name is not one of a month.
    """
    zone = services.configuration.policy.time_zone
    if name is None:
        return month_of(services.clock() - ago, zone)
    month = named_month(name, zone)
    if month is None:
        raise ConfigError("month", "", f"expected a month such as '2026-03', got '{name}'")
    return month


def cost_report(services: Services, month: Month, *, look: bool = True) -> CostReport:
    """The report of a month; nothing is written.

    Args:
        look: whether clusters are asked for nodes that idle just now.
    """
    policy, now = services.configuration.policy, services.clock()
    clusters = tuple(services.configuration.clusters.values())
    ended, running = (parts_of(found, month, policy.time_zone) for found in _entries(services, month, now))
    this = now in month
    seen: tuple[ClusterState, ...] = snapshot(services).clusters if look and this else ()
    return CostReport(
        month=month,
        time_zone=policy.time_zone,
        taken_at=now,
        parts=ended + running,
        running=len(running),
        clusters=clusters,
        budgets=services.ledger.budgets(policy, now, clusters) if this else (),
        advice=advise(ended, clusters, _attempts(services, ended), seen, month=month, now=now),
    )


def _entries(services: Services, month: Month, now: datetime) -> tuple[Sequence[CostEntry], Sequence[CostEntry]]:
    """What is booked of the month, and what the pods that run have cost so far; none is missing, and none in both.

    Those that run are read first, so that one that is booked meanwhile is found there. One that is booked has ended,
    maybe in an earlier month, though whoever booked it may have died before it could settle its attempt.
    """
    opened = (attempt for attempt in services.ledger.recent_attempts(now) if attempt.outcome is None)
    running = [entry for attempt in opened if (entry := cost_until(services, attempt, now)) is not None]
    since = min([month.starts_at, *(entry.started_at for entry in running)])
    booked = services.ledger.costs_between(since, month.ends_at)
    known = {(entry.cluster, entry.pod_uid) for entry in booked}
    return booked, [entry for entry in running if (entry.cluster, entry.pod_uid) not in known]


def write_report(report: CostReport, folder: Path) -> tuple[Path, ...]:
    """Write ``FILES`` into a folder of the month; each is replaced at once, so that nobody reads half of one.

    Raises:
        ConfigError: the folder cannot be written.
    """
    whole = report.lines(FINEST)
    target = folder / report.month.name
    contents: dict[str, Writer] = {
        "report.md": lambda path: path.write_text(report.markdown(), encoding="utf-8"),
        "costs.csv": lambda path: path.write_text(_csv(whole), encoding="utf-8", newline=""),
        "costs.parquet": lambda path: _write_parquet(whole, path),
        "costs.svg": lambda path: path.write_text(_chart(report), encoding="utf-8"),
    }
    return write_files(target, contents)


def _attempts(services: Services, parts: Sequence[MonthlyCost]) -> dict[str, Attempt]:
    runs = {KEYS["run"](part.entry) or "" for part in parts}
    return {attempt.label: attempt for run in sorted(runs) for attempt in services.ledger.attempts(run)}


def _chart(report: CostReport) -> str:
    by = ("department",)
    return chart(report.lines(by), f"Costs of {report.month.name} by department")


def _csv(found: Sequence[CostLine]) -> str:
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow((*FINEST, *COLUMNS))
    writer.writerows([_harmless(cell) for cell in row] for row in rows(found))
    return text.getvalue()


def _harmless(cell: object) -> object:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell


def _write_parquet(found: Sequence[CostLine], path: Path) -> None:
    """Text, whole numbers, hours as decimals of six digits, money of two."""
    import pyarrow as pa
    from pyarrow import parquet

    hours, money = pa.decimal128(28, 6), pa.decimal128(28, 2)
    kinds = (pa.int64(), hours, hours, hours, hours, money, money, money)
    schema = pa.schema([*((key, pa.string()) for key in FINEST), *zip(COLUMNS, kinds, strict=True)])
    columns = list(zip(*rows(found), strict=True)) or [()] * len(schema)
    data = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    parquet.write_table(pa.Table.from_arrays(data, schema=schema), path)
