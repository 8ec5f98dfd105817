"""What pods request, and Kubernetes' times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

from spillway.clouds.quantities import quantity
from spillway.sandbox.kube.resources import Object

Clock = Callable[[], datetime]


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
