"""Disruption budgets: which evictions they forbid."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spillway.sandbox.kube.disruption import violated_budget
from spillway.sandbox.kube.journal import Journal
from spillway.sandbox.kube.objects import Objects
from spillway.sandbox.kube.resources import DISRUPTION_BUDGETS, NAMESPACES, PODS
from spillway.sandbox.kube.store import Store


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Objects]:
    """Three running pods of an application and one of another."""
    journal = Journal(tmp_path / "journal")
    made = Objects(Store(journal), lambda: datetime(2026, 1, 1, tzinfo=UTC), pod_eviction_after_seconds=30)
    made.create(NAMESPACES, None, {"metadata": {"name": "default"}})
    for name, app in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")):
        spec = {"containers": [{"name": "c", "image": "r:5000/i:1"}], "nodeName": "n"}
        pod = made.create(PODS, "default", {"metadata": {"name": name, "labels": {"app": app}}, "spec": spec})
        made.edit(pod, lambda new: new["status"].update(phase="Running"))
    yield made
    journal.close()


def _budget(objects: Objects, **limit: Any) -> None:
    spec = {"selector": {"matchLabels": {"app": "a"}}, **limit}
    objects.create(DISRUPTION_BUDGETS, "default", {"metadata": {"name": "budget"}, "spec": spec})


def _forbidden(objects: Objects, name: str) -> bool:
    return violated_budget(objects.store, objects.store.get(PODS, "default", name)) is not None


@pytest.mark.parametrize(
    ("limit", "forbidden"),
    [
        ({"minAvailable": 2}, False),
        ({"minAvailable": 3}, True),
        ({"minAvailable": "67%"}, True),
        ({"minAvailable": "50%"}, False),
        ({"maxUnavailable": 1}, False),
        ({"maxUnavailable": 0}, True),
        ({}, True),
    ],
    ids=str,
)
def test_an_eviction_is_forbidden_where_too_few_would_be_left(
    objects: Objects, limit: dict[str, Any], forbidden: bool
) -> None:
    _budget(objects, **limit)

    assert _forbidden(objects, "a1") is forbidden
    assert not _forbidden(objects, "b1")


def test_a_pod_that_is_going_is_not_healthy_and_one_that_has_ended_may_always_go(objects: Objects) -> None:
    _budget(objects, minAvailable=2)
    objects.delete(PODS, objects.store.get(PODS, "default", "a2"))
    assert _forbidden(objects, "a1")

    ended = objects.store.get(PODS, "default", "a1")
    objects.edit(ended, lambda new: new["status"].update(phase="Failed"))
    assert not _forbidden(objects, "a1")


def test_the_reason_names_the_budget_and_the_numbers(objects: Objects) -> None:
    _budget(objects, minAvailable=3)

    pod = objects.store.get(PODS, "default", "a1")
    assert violated_budget(objects.store, pod) == (
        "The disruption budget budget needs 3 healthy pods and has 3 currently"
    )
