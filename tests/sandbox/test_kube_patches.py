"""The three kinds of patches."""

from __future__ import annotations

from typing import Any

import pytest

from spillway.sandbox.kube.patches import json_patch, merge, strategic
from spillway.sandbox.kube.status import ApiError

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
        pytest.param(
            {"conditions": [READY]},
            {"conditions": [{"$patch": "replace"}, DISK]},
            {"conditions": [DISK]},
            id="a list is replaced on demand",
        ),
        pytest.param({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}, id="a list without a key is replaced"),
        pytest.param(
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"]},
            {"finalizers": ["b"]},
            id="a value is deleted from a list",
        ),
        pytest.param(
            {"a": {"b": 1, "c": 2}}, {"a": {"$patch": "replace", "d": 3}}, {"a": {"d": 3}}, id="a mapping is replaced"
        ),
        pytest.param({"a": 1}, {"a": None}, {}, id="null removes"),
    ],
)
def test_a_strategic_patch(target: Any, patch: Any, expected: Any) -> None:
    assert strategic(target, patch) == expected


@pytest.mark.parametrize(
    ("target", "operations", "expected"),
    [
        pytest.param({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}, id="add a member"),
        pytest.param({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}, id="insert"),
        pytest.param({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}, id="append"),
        pytest.param({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}, id="replace"),
        pytest.param({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}, id="remove"),
        pytest.param({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}, id="move"),
        pytest.param({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}, id="copy"),
        pytest.param({"x/y~z": 1}, [{"op": "remove", "path": "/x~1y~0z"}], {}, id="escaped names"),
        pytest.param({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}, id="a test that holds"),
    ],
)
def test_a_json_patch(target: Any, operations: Any, expected: Any) -> None:
    before = repr(target)

    assert json_patch(target, operations) == expected
    assert repr(target) == before


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/a", "value": 2}, id="a test that fails"),
        pytest.param({"op": "remove", "path": "/b"}, id="removing what is not there"),
        pytest.param({"op": "add", "path": "/b/c", "value": 1}, id="adding below what is not there"),
        pytest.param({"op": "replace", "path": "/l/7", "value": 1}, id="an index out of range"),
    ],
)
def test_a_json_patch_that_does_not_apply_is_refused(operation: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({"a": 1, "l": [1]}, [operation])

    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
