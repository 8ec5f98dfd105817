"""A placement decision for people: why this place, and what speaks against every other."""

from __future__ import annotations

from typing import Any

from spillway.model import Candidate, PlacementDecision, PlacementVerdict


def rows(decision: PlacementDecision) -> list[dict[str, Any]]:
    """One plain row a candidate, in the order of preference."""
    return [
        {
            "candidate": name(verdict.candidate),
            "price_per_gpu_hour": None if verdict.price_per_gpu_hour is None else str(verdict.price_per_gpu_hour),
            **verdict.scores,
            "total": verdict.total,
            "verdict": _word(verdict, decision),
            "reasons": [f"{rejection.rule}: {rejection.reason}" for rejection in verdict.rejections],
        }
        for verdict in decision.verdicts
    ]


def table(decision: PlacementDecision) -> str:
    """The decision in one line, and under it an aligned table of all candidates."""
    terms = sorted({term for verdict in decision.verdicts for term in verdict.scores})
    lines = [["candidate", "price/GPU-h", *terms, "total", "verdict", "reasons"]]
    for verdict in decision.verdicts:
        price = verdict.price_per_gpu_hour
        lines.append(
            [
                name(verdict.candidate),
                "-" if price is None else str(price),
                *(f"{verdict.scores[term]:.3f}" if term in verdict.scores else "-" for term in terms),
                f"{verdict.total:.3f}",
                _word(verdict, decision),
                "; ".join(f"{rejection.rule}: {rejection.reason}" for rejection in verdict.rejections),
            ]
        )
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    aligned = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join([headline(decision), *(line.rstrip() for line in aligned)])


def headline(decision: PlacementDecision) -> str:
    """The decision in one line."""
    when = decision.taken_at.isoformat(timespec="seconds")
    if decision.chosen is not None:
        return f"job '{decision.job}' at {when}: placed on {name(decision.chosen)}"
    if decision.possible:
        return f"job '{decision.job}' at {when}: waits, nothing fits now"
    return f"job '{decision.job}' at {when}: can never be placed"


def name(candidate: Candidate) -> str:
    """``cluster/pool/billing``."""
    return f"{candidate.cluster}/{candidate.pool}/{candidate.billing}"


def _word(verdict: PlacementVerdict, decision: PlacementDecision) -> str:
    if verdict.candidate == decision.chosen:
        return "chosen"
    if not verdict.rejections:
        return "fits"
    return "waits" if all(rejection.waits for rejection in verdict.rejections) else "never"
