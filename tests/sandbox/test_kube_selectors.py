"""Label and field selectors, and what a pod requests."""

from __future__ import annotations

from decimal import Decimal

import pytest

from spillway.sandbox.kube.quantities import requests
from spillway.sandbox.kube.selectors import field_matcher, label_matcher
from spillway.sandbox.kube.status import ApiError

POD = {
    "metadata": {"name": "p", "labels": {"app": "train", "tier": "gpu"}},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("app=train", True),
        ("app==train,tier=gpu", True),
        ("app=train,tier=cpu", False),
        ("app!=train", False),
        ("other!=x", True),
        ("!other", True),
        ("!app", False),
        ("other", False),
        ("app=", False),
    ],
)
def test_a_label_selector(selector: str, matches: bool) -> None:
    assert label_matcher(selector)(POD) is matches


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("metadata.name=p", True),
        ("spec.nodeName=n1,status.phase!=Failed", True),
        ("spec.nodeName=", False),
        ("spec.absent=", True),
        ("status.phase==Pending", False),
    ],
)
def test_a_field_selector(selector: str, matches: bool) -> None:
    assert field_matcher(selector)(POD) is matches


@pytest.mark.parametrize("selector", ["a in (b)", "a b", "=x", "a=b=c", "a=b c"])
def test_a_selector_that_cannot_be_read_is_a_bad_request(selector: str) -> None:
    with pytest.raises(ApiError, match="unable to parse") as refused:
        label_matcher(selector)
    assert refused.value.code == 400


def test_a_pod_asks_for_the_sum_of_its_containers_and_limits_count_as_requests() -> None:
    containers = [
        {"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "2"}, "requests": {"cpu": "500m"}}},
        {"resources": {"requests": {"cpu": "250m"}}},
        {},
    ]

    assert requests({"spec": {"containers": containers}}) == {
        "pods": Decimal(1),
        "nvidia.com/gpu": Decimal(2),
        "cpu": Decimal("0.75"),
    }
