from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from spillway.leases import CLOCK_TOLERANCE, may_expire
from spillway.model import ClusterState, Snapshot
from spillway.testing.builders import NOW, attempt, cloud_cluster, cluster_state, onprem_cluster, pod, snapshot

LAPSED = attempt(lease_expires_at=NOW)
CLOUD = cluster_state(cloud_cluster())


def _seen(*clusters: ClusterState) -> Snapshot:
    return snapshot(*clusters, CLOUD)


@pytest.mark.parametrize(
    ("seen", "expires"),
    [
        (_seen(cluster_state(onprem_cluster())), True),
        (_seen(cluster_state(onprem_cluster(), pods=[pod(), pod(attempt="digits-7f3a-2")])), True),
        (_seen(cluster_state(onprem_cluster(), pods=[pod(attempt=LAPSED.label, gpus=0)])), False),
        (snapshot(CLOUD, unreachable={"onprem": "timed out"}, unreachable_clusters=(onprem_cluster(),)), False),
        (snapshot(CLOUD), False),
        (_seen(replace(cluster_state(onprem_cluster()), clock_ahead=-CLOCK_TOLERANCE)), True),
        (_seen(replace(cluster_state(onprem_cluster()), clock_ahead=-timedelta(minutes=3))), False),
    ],
    ids=[
        "no pod at all",
        "pods of others",
        "its own pod",
        "an unreachable cluster",
        "a cluster declared no more",
        "a clock within the tolerance",
        "a clock here that is fast",
    ],
)
def test_a_lapsed_lease_ends_only_where_the_absence_of_its_pod_was_seen(seen: Snapshot, expires: bool) -> None:
    assert may_expire(LAPSED, seen) is expires


def test_a_lease_that_was_alive_when_the_clusters_were_seen_does_not_end() -> None:
    alive = attempt(lease_expires_at=NOW + timedelta(microseconds=1))
    assert not may_expire(alive, _seen(cluster_state(onprem_cluster())))
