"""The fewest things of an order that are enough together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Thing = TypeVar("Thing")


def fewest(order: Sequence[Thing], enough: Callable[[Sequence[Thing]], bool]) -> Sequence[Thing] | None:
    """Those of them that are enough and all needed, the later ones spared first; None where all are not enough."""
    if not enough(order):
        return None
    kept = [] if enough([]) else _needed([], order, enough)
    if not enough(kept):  # more is not always better: promised pods are packed first fit
        kept = list(order)
    while spare := [one for one in reversed(kept) if enough([other for other in kept if other is not one])]:
        kept.remove(spare[0])
    return kept


def _needed(sure: list[Thing], among: Sequence[Thing], enough: Callable[[Sequence[Thing]], bool]) -> list[Thing]:
    """Those that are needed beside the sure ones, which are not enough: whole halves are spared where they can be.

    Source: Junker, QuickXplain: Preferred Explanations and Relaxations for Over-Constrained Problems, AAAI 2004.
    """
    if len(among) == 1:
        return list(among)
    half = len(among) // 2
    cheap, dear = list(among[:half]), among[half:]
    later = [] if enough([*sure, *cheap]) else _needed([*sure, *cheap], dear, enough)
    first = [] if later and enough([*sure, *later]) else _needed([*sure, *later], cheap, enough)
    return [*first, *later]
