"""A placement decision for people: why this place, and what speaks against every other."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from spillway.codec import encode
from spillway.lines import GIBIBYTE, MEBIBYTE
from spillway.model import (
    Billing,
    Candidate,
    DatasetUse,
    JobSpec,
    PlacementDecision,
    PlacementPolicy,
    PlacementVerdict,
    Schedule,
    Snapshot,
)
from spillway.placement.context import index
from spillway.placement.deadline import stand
from spillway.placement.rules import RULES
from spillway.placement.scorers import SCORERS


def rows(decision: PlacementDecision) -> list[dict[str, Any]]:
    """One plain row a candidate, in the order of preference."""
    return [
        {
            "candidate": name(verdict.candidate),
            "price_per_gpu_hour": _price(verdict.price_per_gpu_hour),
            **({} if verdict.transfer is None else {"transfer": encode(verdict.transfer)}),
            **(
                {} if verdict.transfer is None else {"full_price_per_gpu_hour": _price(verdict.full_price_per_gpu_hour)}
            ),
            **verdict.scores,
            "total": verdict.total,
            "verdict": _word(verdict, decision),
            "reasons": [f"{rejection.rule}: {rejection.reason}" for rejection in verdict.rejections],
        }
        for verdict in decision.verdicts
    ]


def cells(decision: PlacementDecision) -> list[list[str]]:
    """The table in words: the names of its columns, then a line for each candidate in the order of preference."""
    terms = sorted({term for verdict in decision.verdicts for term in verdict.scores})
    moved = ["transfer"] if any(verdict.transfer for verdict in decision.verdicts) else []
    lines = [["candidate", "price/GPU-h", *moved, *terms, "total", "verdict", "reasons"]]
    for verdict in decision.verdicts:
        lines.append(
            [
                name(verdict.candidate),
                _price(verdict.price_per_gpu_hour) or "-",
                *([_transfer(verdict)] if moved else []),
                *(f"{verdict.scores[term]:.3f}" if term in verdict.scores else "-" for term in terms),
                f"{verdict.total:.3f}",
                _word(verdict, decision),
                _reasons(verdict),
            ]
        )
    return lines


def table(decision: PlacementDecision) -> str:
    """The decision in one line, and under it an aligned table of all candidates."""
    lines = cells(decision)
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    aligned = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join([headline(decision), *(line.rstrip() for line in aligned)])


def inputs(job: JobSpec, seen: Snapshot, policy: PlacementPolicy) -> dict[str, str]:
    """What the table was worked out from and does not show itself, in words, by what it is."""
    rates = (f"{site} {rate / MEBIBYTE:.1f} MiB/s" for site, rate in sorted(seen.link_rates.items()))
    return {
        "weights": ", ".join(f"{term} {policy.weights.get(term, 0)}" for term in SCORERS),
        "prices": _ages(seen, policy),
        **({} if seen.schedule is None else {"deadline": _schedule(job, seen, seen.schedule, policy)}),
        "data": "; ".join(_data(use, seen) for use in job.datasets) or "none",
        "measured lines": ", ".join(rates) or "none, so as they are declared",
    }


def explanation(job: JobSpec, seen: Snapshot, policy: PlacementPolicy, decision: PlacementDecision) -> str:
    """The table of the decision, who gives way for it, and under it what it was worked out from."""
    worked_out = (f"{what}: {said}" for what, said in inputs(job, seen, policy).items())
    return "\n".join([table(decision), *giving_way(decision), *worked_out])


def giving_way(decision: PlacementDecision) -> list[str]:
    """Who gives way, what that loses and why, and why each other does not; nothing where nobody was asked to."""
    plan = decision.preemption
    if plan is None:
        return []
    told = [
        f"{v.attempt} gives way, which loses {v.lost_gpu_seconds:.0f} GPU-seconds: {v.reason}" for v in plan.victims
    ]
    return [*told, *(f"{label} does not give way: {reason}" for label, reason in plan.spared.items())]


def _schedule(job: JobSpec, seen: Snapshot, schedule: Schedule, policy: PlacementPolicy) -> str:
    """By when the job has to be done, what is left of it, and how that stands."""
    left, stands = f"{schedule.work_left} of {schedule.work} left to train", stand(job, index(seen, policy))
    moved = ", as it was moved off spot for it" if schedule.moved else ""
    return f"{_moment(schedule.deadline)}, {left}: {stands} it{moved}"


def _ages(seen: Snapshot, policy: PlacementPolicy) -> str:
    """How old the prices of bought GPUs were, and how old they may be."""
    pools: dict[str, list[str]] = {}
    for cluster in seen.declared:
        for pool in cluster.pools:
            if pool.prices_per_hour.keys() - {Billing.OWNED}:
                as_of = pool.prices_as_of
                age = "of unknown age" if as_of is None else f"{(seen.taken_at - as_of).days} days old"
                pools.setdefault(age, []).append(f"{cluster.name}/{pool.name}")
    told = [f"{age}: {', '.join(names)}" for age, names in sorted(pools.items())] or ["none of bought GPUs"]
    if policy.price_max_age is not None:
        told.append(f"believed up to {policy.price_max_age.days} days")
    return "; ".join(told)


def _data(use: DatasetUse, seen: Snapshot) -> str:
    sites = ", ".join(site.name for site in seen.declared if seen.has(use, site)) or "no site"
    facts = seen.datasets.get(use.name)
    size = None if facts is None else facts.size_of(use)
    told = "its size is not known" if size is None else f"{size / GIBIBYTE:.1f} GiB"
    return f"{use}, {told}, verified to be whole at {sites}"


def clusters(seen: Snapshot) -> list[str]:
    """Every cluster that a decision on the snapshot may be asked about, by name."""
    return sorted({cluster.name for cluster in seen.declared} | seen.unreachable.keys())


def why_not(decision: PlacementDecision, cluster: str) -> list[str]:
    """Why the job does not run there: a sentence for each of the cluster's places, the nearest first."""
    places = [verdict for verdict in decision.verdicts if verdict.candidate.cluster == cluster]
    unseen = decision.unreachable.get(cluster)
    if not places:
        if decision.rules != RULES:
            return [f"{cluster}: not known, no row of it was stored, and other rules than these decided"]
        return [f"{cluster}: cannot be seen: {unseen}" if unseen else f"{cluster}: declares no pool"]
    best = decision.verdicts[0]
    return [f"{name(verdict.candidate)}: {_why(verdict, best, decision)}" for verdict in places]


def _why(verdict: PlacementVerdict, best: PlacementVerdict, decision: PlacementDecision) -> str:
    word = _word(verdict, decision)
    if word == "chosen":
        return "is chosen"
    if word != "fits":
        return f"{'would have to wait' if word == 'waits' else 'is out'}: {_reasons(verdict)}"
    chosen = name(best.candidate)
    if verdict.total < best.total:
        lower = (
            f"{term} {score:.3f} against {best.scores[term]:.3f}"
            for term, score in sorted(verdict.scores.items())
            if score < best.scores[term]
        )
        return f"fits, and its total {verdict.total:.3f} is below the {best.total:.3f} of {chosen}: {', '.join(lower)}"
    if (here := _whole_price(verdict)) != (there := _whole_price(best)):
        return f"fits as well as {chosen}, and costs {here} a GPU-hour against {there}"
    return f"fits as well as {chosen} for the same price, and comes after it by name"


def _whole_price(verdict: PlacementVerdict) -> str:
    """What equal totals are told apart by: the price with the transfer in it, then the one without."""
    price = _price(verdict.price_per_gpu_hour) or "an unknown price"
    if verdict.transfer is None:
        return price
    return f"{_price(verdict.full_price_per_gpu_hour) or 'an unknown price'} with its transfer ({price} without)"


def _reasons(verdict: PlacementVerdict) -> str:
    return "; ".join(f"{rejection.rule}: {rejection.reason}" for rejection in verdict.rejections)


def _price(price: Decimal | None) -> str | None:
    return None if price is None else str(price)


def _transfer(verdict: PlacementVerdict) -> str:
    """What has to be brought there, how long that takes and what it costs; ``unknown`` where nobody knows its size."""
    moved = verdict.transfer
    if moved is None or moved.size_bytes is None or moved.duration is None or moved.egress is None:
        return "-" if moved is None else "unknown"
    if not moved.size_bytes:
        return "none"
    return f"{moved.size_bytes / GIBIBYTE:.1f} GiB in {moved.duration.total_seconds():.0f} s for {moved.egress:.2f}"


def headline(decision: PlacementDecision) -> str:
    """The decision in one line."""
    return f"job '{decision.job}' at {_moment(decision.taken_at)}: {outcome(decision)}"


def outcome(decision: PlacementDecision) -> str:
    """What the decision comes to, in words."""
    if decision.chosen is not None:
        return f"placed on {name(decision.chosen)}{once(decision)}"
    if decision.needs_correction:
        return "waits until the configuration is corrected, not for a place"
    return "waits, nothing fits now" if decision.possible else "can never be placed"


def once(decision: PlacementDecision) -> str:
    """On whose end the chosen place waits, in words; empty where it is free."""
    victims = decision.preemption.victims if decision.preemption else ()
    return f" once {', '.join(victim.attempt for victim in victims)} gave way" if victims else ""


def _moment(when: datetime) -> str:
    return when.isoformat(timespec="seconds")


def name(candidate: Candidate) -> str:
    """``cluster/pool/billing``."""
    return f"{candidate.cluster}/{candidate.pool}/{candidate.billing}"


def _word(verdict: PlacementVerdict, decision: PlacementDecision) -> str:
    if verdict.candidate == decision.chosen:
        return "chosen"
    if not verdict.rejections:
        return "fits"
    return "waits" if all(rejection.waits for rejection in verdict.rejections) else "never"
