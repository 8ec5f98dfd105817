"""What of an approved shrink may still be done once it is carried out: a pool has gone on since its plan was shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from spillway.scaling.shrinking import Departure, ShrinkPlan


def still_approved(approved: ShrinkPlan, fresh: ShrinkPlan) -> tuple[ShrinkPlan, tuple[str, ...]]:
    """The part of the fresh plan that was approved, and a line for each difference from what was.

    A node leaves where both plans say so, and where each run on it leaves as it was approved to. Nothing that was not
    approved is stopped, moved or closed; where less has to leave by now, less does.
    """
    agreed = {departure.run: _fate(departure) for departure in approved.departures}
    beyond = [departure for departure in fresh.departures if agreed.get(departure.run) != _fate(departure)]
    barred = {node for departure in beyond for node in departure.nodes}
    leaving = tuple(node for node in fresh.leaving if node in approved.leaving and node not in barred)
    departures = tuple(one for one in fresh.departures if one not in beyond and not leaving_none(one, leaving))
    alone = {one.run for one in fresh.departures} - {one.run for one in departures}
    plan = replace(
        fresh,
        leaving=leaving,
        departures=departures,
        stays=tuple(sorted({*fresh.stays, *alone})),
        held=tuple(node for node in fresh.held if node in leaving),
    )
    return plan, tuple(_differences(approved, fresh, plan, beyond))


def leaving_none(departure: Departure, leaving: tuple[str, ...]) -> bool:
    """Whether none of its nodes leaves."""
    return not set(departure.nodes) & set(leaving)


def _differences(approved: ShrinkPlan, fresh: ShrinkPlan, plan: ShrinkPlan, beyond: list[Departure]) -> Iterator[str]:
    for departure in beyond:
        nodes = ", ".join(departure.nodes)
        yield f"{departure.run} is on {nodes} and {departure.fate} by now, which was not approved: it is left alone"
    for node in approved.leaving:
        if node not in fresh.leaving:
            yield f"{node} was to leave and does not have to any more"
    for node in fresh.leaving:
        if node not in approved.leaving:
            yield f"{node} would leave by now, which was not approved: it stays"
    for departure in approved.departures:
        if departure.run not in {one.run for one in (*plan.departures, *beyond)}:
            yield f"{departure.run} was to leave and does not have to any more"


def _fate(departure: Departure) -> tuple[object, object]:
    return departure.fate, departure.way.target
