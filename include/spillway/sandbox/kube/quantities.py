"""Kubernetes quantities and times, exactly."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

from spillway.sandbox.kube.resources import Object

Clock = Callable[[], datetime]

_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_FACTORS = {"": Decimal(1), "m": Decimal("0.001")}
_FACTORS |= {unit: Decimal(1000) ** power for power, unit in enumerate("kMGT", 1)}
_FACTORS |= {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGT", 1)}


def quantity(text: object) -> Decimal:
    """``500m`` is 0.5, ``1Gi`` is 1073741824; ValueError where it is no quantity."""
    match = _FORM.fullmatch(str(text))
    if match is None:
        raise ValueError(f"expected a quantity such as 2, 500m or 16Gi, got {text!r}")
    return Decimal(match[1]) * _FACTORS[match[2] or ""]


def requests(pod: Object) -> dict[str, Decimal]:
    """What the pod asks of its node; a limit without a request is its request."""
    total = {"pods": Decimal(1)}
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, amount in asked.items():
            total[name] = total.get(name, Decimal(0)) + quantity(amount)
    return total


def stamp(moment: datetime) -> str:
    """RFC 3339 with whole seconds, as metav1.Time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
