"""A month's costs as text: Markdown, rows for a spreadsheet, and a chart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from html import escape
from typing import Any

from spillway.attribution import in_cents, total_of
from spillway.budget import projected
from spillway.costs.advice import Advice
from spillway.costs.lines import CostLine
from spillway.model import BudgetState

COLUMNS = ("bookings", "allocated", "billed", "measured", "used", "metered", "fixed", "amount")
_BAR, _ROW, _LABELS = 420, 26, 230


def rows(found: Sequence[CostLine]) -> list[tuple[Any, ...]]:
    """The lines' keys and ``COLUMNS``: hours to six digits, money in cents.

    Each column of money adds up to its exact sum in cents, and ``metered`` and ``fixed`` to the ``amount`` of a line:
    tables by different keys have one total.
    """
    metered, fixed = in_cents([line.metered for line in found]), in_cents([line.fixed for line in found])
    return [
        (
            *line.keys,
            line.bookings,
            None if line.allocated is None else _hours(line.allocated),
            _hours(line.billed),
            _hours(line.measured),
            _hours(line.used) if line.measured else None,
            by_the_hour,
            share,
            by_the_hour + share,
        )
        for line, by_the_hour, share in zip(found, metered, fixed, strict=True)
    ]


def table(found: Sequence[CostLine], by: Sequence[str]) -> str:
    """The lines as a Markdown table with their total; what is unknown is a dash."""
    written = rows(found)
    header = (*by, "GPU-h allocated", "billed", "used", "busy", "by the hour", "fixed share", "cost")
    body = [
        (
            *(_cell(key) for key in row[: len(by)]),
            _shown(line.allocated),
            _shown(line.billed),
            _shown(line.used if line.measured else None),
            "-" if line.utilisation is None else f"{line.utilisation:.0%}",
            *(f"{value}" for value in row[-3:]),
        )
        for line, row in zip(found, written, strict=True)
    ]
    cost = [sum((row[index] for row in written), Decimal(0)) for index in (-3, -2, -1)]
    total = ("total", *[""] * (len(by) - 1), "", _shown(total_of([line.billed for line in found])), "", "")
    body.append((*total, *(f"{amount:.2f}" for amount in cost)))
    return _markdown(header, body)


def budget_table(states: Sequence[BudgetState], now: datetime) -> str:
    """Each budget of the month: spent, promised, left, and where the month will end at this pace."""
    header = ("department", "limit", "booked", "running", "promised", "left", "spent", "projected month end")
    return _markdown(
        header,
        [
            (
                _cell(state.department),
                *(f"{v:.2f}" for v in (state.limit, state.booked, state.accrued, state.reserved - state.accrued)),
                f"{state.left:.2f}",
                "-" if not state.limit else f"{state.spent / state.limit:.0%}",
                f"{projected(state, now):.2f}",
            )
            for state in states
        ],
    )


def advice_table(found: Sequence[Advice]) -> str:
    """Each advice with its evidence and what it saves a month."""
    header = ("about", "evidence", "do", "saves a month", "by")
    rows_ = [(_cell(a.about), _cell(a.evidence), _cell(a.action), f"{a.saves:.2f}", a.carried_out_by) for a in found]
    return _markdown(header, rows_)


def chart(found: Sequence[CostLine], title: str) -> str:
    """The lines as an SVG of horizontal bars: what was paid by the hour, and the share of fixed costs behind it."""
    most = max((line.amount for line in found), default=Decimal(0)) or Decimal(1)
    height = _ROW * (len(found) + 2)
    shapes = []
    for index, line in enumerate(found):
        top = _ROW * (index + 1) + 10
        metered, whole = (float(max(v, Decimal(0)) / most) * _BAR for v in (line.metered, line.amount))
        label = escape(" / ".join(key or "-" for key in line.keys))
        shapes.append(
            f'<text x="{_LABELS - 8}" y="{top + 15}" text-anchor="end">{label}</text>'
            f'<rect x="{_LABELS}" y="{top}" width="{whole:.1f}" height="18" fill="#9bb8d3"/>'
            f'<rect x="{_LABELS}" y="{top}" width="{metered:.1f}" height="18" fill="#2f6690"/>'
            f'<text x="{_LABELS + whole + 6:.1f}" y="{top + 14}">{line.amount:.2f}</text>'
        )
    width = _LABELS + _BAR + 120
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="13"><title>{escape(title)}</title><rect width="{width}" height="{height}" fill="white"/>'
        f'<text x="8" y="20" font-weight="bold">{escape(title)} (dark: by the hour, light: fixed share)</text>'
        f"{''.join(shapes)}</svg>\n"
    )


def _markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in body)])


def _cell(value: object) -> str:
    """Text that does not end a cell; what is unknown is a dash."""
    return "-" if value is None else " ".join(str(value).replace("|", "\\|").split())


def _hours(value: Decimal) -> Decimal:
    return value.quantize(Decimal("0.000001"))


def _shown(value: Decimal | None) -> str:
    return "-" if value is None else f"{value:.2f}"
