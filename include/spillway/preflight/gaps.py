"""A gap between what is declared and a first run, and several as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One thing that would stop or endanger runs on a cluster, and its remedy; unless ``checked``, it is not known.

    Whether a pool of a cloud is empty by mistake or because nobody needs it now is not known.
    """

    cluster: str
    part: str
    problem: str
    fix: str
    checked: bool = True


def merged(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """The gaps, one where several parts of a cluster have the same problem: two buckets without their Connection."""
    found: dict[tuple[str, str, str], Gap] = {}
    for gap in gaps:
        same = (gap.cluster, gap.problem, gap.fix)
        found[same] = replace(gap, part=f"{found[same].part}, {gap.part}") if same in found else gap
    return tuple(found.values())


def gap_table(gaps: Sequence[Gap]) -> str:
    """The gaps as text, a line each, columns aligned."""
    if not gaps:
        return "no gaps: runs can start on every declared cluster"
    rows = [
        ("CLUSTER", "PART", "PROBLEM -> WHAT TO DO"),
        *((g.cluster, g.part, f"{g.problem} -> {g.fix}") for g in gaps),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{name:<{widths[0]}}  {part:<{widths[1]}}  {text}" for name, part, text in rows)
