"""Pods go to the fullest nodes that take them, on a real API server with its scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from spillway.clouds.pod import PodAccess, build_pod
from spillway.model import Attempt, Cluster, Reservation
from spillway.placement.packing import fullest_nodes
from spillway.testing.builders import INSTALLATION, attempt, job_spec, reservation
from spillway.testing.manifests import IMAGE
from spillway.testing.polling import eventually


def wanting(gpus: int, nodes: int = 1, run: str = "packed") -> Attempt:
    return attempt(run=run, job=job_spec(gpus_per_node=gpus, nodes=nodes))


def occupy(control_plane: Any, cluster: Cluster, node: str, gpus: int) -> None:
    limits = {"nvidia.com/gpu": str(gpus)}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    control_plane.create_pod(cluster.namespace, f"on-{node}", nodeName=node, containers=containers)


def placed(wanted: Attempt, client: Any, promised: tuple[Reservation, ...], *expected: str) -> None:
    """Once the control plane has taken the taints of nodes away that were not ready for a moment."""
    eventually(lambda: fullest_nodes(wanted, client.describe(), promised), lambda found: found == expected)


@pytest.mark.parametrize(
    ("gpus", "pods", "expected"),
    [
        pytest.param(1, 1, "c", id="the fullest"),
        pytest.param(2, 1, "b", id="the fullest that has room"),
        pytest.param(3, 1, "a", id="only an empty one has room"),
        pytest.param(2, 3, "ba", id="a gang, two of its pods on one node"),
        pytest.param(1, 2, "cb", id="one each"),
        pytest.param(4, 2, "a", id="there is room for a part of it"),
        pytest.param(0, 1, "", id="no GPUs"),
    ],
)
def test_a_job_goes_to_the_fullest_nodes_that_take_its_pods(
    control_plane: Any, cluster: Cluster, client: Any, gpus: int, pods: int, expected: str
) -> None:
    nodes = {name: control_plane.add_node(cluster, name) for name in "abc"}
    occupy(control_plane, cluster, nodes["b"], 2)
    occupy(control_plane, cluster, nodes["c"], 3)
    wanted = wanting(gpus, pods)
    own = reservation(attempt=wanted.label, gpus_per_node=gpus, nodes=pods)
    for promised in ((), (own,)):
        placed(wanted, client, promised, *(nodes[name] for name in expected))


def test_the_scheduler_puts_the_pod_there_and_elsewhere_where_there_is_no_room_any_more(
    control_plane: Any, cluster: Cluster, client: Any
) -> None:
    first, second = (control_plane.add_node(cluster, name) for name in ("a", "b"))
    occupy(control_plane, cluster, second, 2)

    def launched(of: Attempt) -> str:
        prefers = (second,)
        if of.run == "packed":
            placed(of, client, (), second)
        access = PodAccess(store_secret="store", pull_secret="registry")
        pod = build_pod(
            attempt=of, installation=INSTALLATION, cluster=cluster, image=IMAGE, environment={}, access=access,
            prefers=prefers,
        )  # fmt: skip
        return str(eventually(lambda: client.state(client.launch(pod).name).node))

    assert launched(wanting(2)) == second
    assert launched(wanting(2, run="late")) == first
