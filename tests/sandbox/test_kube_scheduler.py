"""Which node takes a pod, and what a pod is told that no node takes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from spillway.sandbox.kube.scheduler import explain, preference, refuse

FREE = {"nvidia.com/gpu": Decimal(2), "cpu": Decimal(4), "pods": Decimal(10)}
READY = [{"type": "Ready", "status": "True"}]
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
OTHER_LABELS = "node(s) didn't match Pod's node affinity/selector"


def _node(*, labels: dict[str, str] | None = None, ready: Any = READY, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": labels or {}}, "spec": spec, "status": {"conditions": ready}}


def _pod(*, gpus: int = 1, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus), "cpu": cpu}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"limits": limits}}], **spec}}


@pytest.mark.parametrize(
    ("pod", "node", "reasons"),
    [
        pytest.param(_pod(gpus=2, cpu="4"), _node(), [], id="it fits exactly"),
        pytest.param(_pod(gpus=3), _node(), ["Insufficient nvidia.com/gpu"], id="too many GPUs"),
        pytest.param(
            _pod(gpus=3, cpu="4500m"), _node(), ["Insufficient nvidia.com/gpu", "Insufficient cpu"], id="two lacks"
        ),
        pytest.param(_pod(), _node(unschedulable=True), ["node(s) were unschedulable"], id="cordoned"),
        pytest.param(
            _pod(), _node(ready=[]), ["node(s) had untolerated taint {node.kubernetes.io/not-ready: }"], id="not ready"
        ),
        pytest.param(
            _pod(nodeSelector={"gpu": "a100"}), _node(labels={"gpu": "h100"}), [OTHER_LABELS], id="other label"
        ),
        pytest.param(_pod(nodeSelector={"gpu": "a100"}), _node(labels={"gpu": "a100"}), [], id="same label"),
        pytest.param(
            _pod(), _node(taints=[TAINT]), ["node(s) had untolerated taint {dedicated: x}"], id="untolerated taint"
        ),
        pytest.param(
            _pod(tolerations=[{"key": "dedicated", "value": "x"}]), _node(taints=[TAINT]), [], id="tolerated by value"
        ),
        pytest.param(_pod(tolerations=[{"operator": "Exists"}]), _node(taints=[TAINT]), [], id="tolerates everything"),
        pytest.param(_pod(), _node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), [], id="a mere preference"),
    ],
)
def test_a_node_takes_a_pod_or_says_why_not(pod: Any, node: Any, reasons: list[str]) -> None:
    assert refuse(pod, node, FREE) == reasons


@pytest.mark.parametrize(
    ("refusals", "message"),
    [
        pytest.param({}, "no nodes available to schedule pods", id="no nodes"),
        pytest.param(
            {"a": ["Insufficient nvidia.com/gpu"], "b": ["Insufficient nvidia.com/gpu"]},
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
            id="all for one reason",
        ),
        pytest.param(
            {"a": ["node(s) were unschedulable"], "b": ["Insufficient cpu", "Insufficient nvidia.com/gpu"]},
            "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.",
            id="several reasons",
        ),
    ],
)
def test_a_pod_that_fits_nowhere_is_told_in_the_schedulers_words(refusals: Any, message: str) -> None:
    assert explain(refusals) == message


def test_a_pod_wants_the_nodes_that_it_names_by_their_weights_and_no_other() -> None:
    def wish(weight: int, **preference: Any) -> dict[str, Any]:
        return {"weight": weight, "preference": preference}

    def named(*nodes: str) -> dict[str, Any]:
        return {"key": "metadata.name", "operator": "In", "values": list(nodes)}

    wishes = [
        wish(100, matchFields=[named("n")]),
        wish(7, matchFields=[named("n")]),
        wish(50, matchFields=[named("other")]),
        wish(30, matchExpressions=[{"key": "gpu", "operator": "Exists"}]),
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}
    assert preference(_pod(affinity=affinity), _node(labels={"gpu": "a100"})) == 107
    assert preference(_pod(), _node()) == 0
