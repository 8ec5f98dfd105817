"""Pod disruption budgets: whether an eviction may be granted now."""

from __future__ import annotations

from spillway.sandbox.kube.resources import DISRUPTION_BUDGETS, PODS, Object, is_terminal, name_of, namespace_of
from spillway.sandbox.kube.store import Store


def violated_budget(store: Store, pod: Object) -> str | None:
    """Why evicting the pod now would violate a disruption budget; None where it would not."""
    if is_terminal(pod):
        return None
    neighbours = store.list(PODS, namespace_of(pod))
    for budget in store.list(DISRUPTION_BUDGETS, namespace_of(pod)):
        members = [other for other in neighbours if _selects(budget, other)]
        healthy = sum(_is_healthy(other) for other in members)
        needed = _needed(budget["spec"], len(members))
        if _selects(budget, pod) and healthy - 1 < needed:
            return f"The disruption budget {name_of(budget)} needs {needed} healthy pods and has {healthy} currently"
    return None


def _selects(budget: Object, pod: Object) -> bool:
    wanted = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())


def _is_healthy(pod: Object) -> bool:
    return pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")


def _needed(spec: Object, members: int) -> int:
    if "minAvailable" in spec:
        return _count(spec["minAvailable"], members)
    return members - _count(spec.get("maxUnavailable", 0), members)


def _count(value: object, members: int) -> int:
    """A number, or a percentage of the members, rounded up."""
    text = str(value)
    return -(-members * int(text[:-1]) // 100) if text.endswith("%") else int(text)
