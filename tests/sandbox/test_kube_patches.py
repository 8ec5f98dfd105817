"""The two kinds of patches."""

from __future__ import annotations

from typing import Any

import pytest

from spillway.sandbox.kube.patches import merge

READY = {"type": "Ready", "status": "True"}
DISK = {"type": "Disk", "status": "False"}


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": None, "c": 3}, {"b": 2, "c": 3}, id="null removes, the rest stays"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}, id="mappings merge"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists are replaced"),
        pytest.param({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="a scalar becomes a mapping"),
        pytest.param({"a": 1}, {"b": {"c": None}}, {"a": 1, "b": {}}, id="a null of nothing removes nothing"),
    ],
)
def test_a_merge_patch(target: Any, patch: Any, expected: Any) -> None:
    assert merge(target, patch) == expected


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        pytest.param(
            {"conditions": [READY]}, {"conditions": [DISK]}, {"conditions": [READY, DISK]}, id="an item is added by key"
        ),
        pytest.param(
            {"conditions": [READY, DISK]},
            {"conditions": [{"type": "Ready", "status": "False"}]},
            {"conditions": [{"type": "Ready", "status": "False"}, DISK]},
            id="an item is merged by key",
        ),
        pytest.param(
            {"conditions": [READY, DISK]},
            {"conditions": [{"type": "Ready", "$patch": "delete"}]},
            {"conditions": [DISK]},
            id="an item is deleted by key",
        ),
        pytest.param({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}, id="a list without a key is replaced"),
        pytest.param(
            {"conditions": [READY]},
            {"$setElementOrder/conditions": [{"type": "Ready"}], "conditions": [DISK]},
            {"conditions": [READY, DISK]},
            id="an order of a list is no field",
        ),
        pytest.param({"a": 1}, {"a": None}, {}, id="null removes"),
    ],
)
def test_a_strategic_patch(target: Any, patch: Any, expected: Any) -> None:
    assert merge(target, patch, strategic=True) == expected
