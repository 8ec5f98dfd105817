"""Label and field selectors, quantities."""

from __future__ import annotations

from decimal import Decimal

import pytest

from spillway.sandbox.kube.quantities import quantity, requests
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
        ("app in (a, train)", True),
        ("app notin (a,b),tier", True),
        ("app notin (train)", False),
        ("!other", True),
        ("!app", False),
        ("other", False),
        ("other notin (x)", True),
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


@pytest.mark.parametrize("selector", ["a in b", "a in (", "=x", "a=b=c d"])
def test_a_selector_that_cannot_be_read_is_a_bad_request(selector: str) -> None:
    with pytest.raises(ApiError, match="unable to parse") as refused:
        label_matcher(selector)
    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", "2"), ("500m", "0.5"), ("1.5Gi", "1610612736"), ("3k", "3000"), (4, "4"), ("1Ti", "1099511627776")],
)
def test_a_quantity_is_exact(text: object, value: str) -> None:
    assert quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "one", "1GB", "-1", "1 Gi"])
def test_a_text_that_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a quantity"):
        quantity(text)


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
