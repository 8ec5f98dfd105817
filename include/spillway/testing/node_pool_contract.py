"""The contract of ``NodePoolScaler``: what every way to bring and take nodes must do.

An implementation's own test module subclasses the class and supplies the fixture ``world``: a pool ``gpu`` of two nodes
with four GPUs each, four at most, on a real API server, and whatever its provider needs to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest

from spillway.clouds import node_pools
from spillway.clouds.base import NodePoolScaler
from spillway.errors import PoolRefused, UnknownName
from spillway.model import PoolTarget, PoolUse, ScalableNode
from spillway.runs.scaling import as_taken

POOL = "gpu"
GPUS = 4
MOST = 4


class World(Protocol):
    """A pool and all around it, in the hands of a test."""

    @property
    def scaler(self) -> NodePoolScaler: ...

    def settle(self) -> None:
        """Let what was ordered boot and join, and what was taken leave Kubernetes."""

    def add_pod(self, node: str, *, gpus: int = 1, **metadata: Any) -> str:
        """Bind a pod to the node; gives its name."""

    def end_pod(self, name: str) -> None:
        """Let it end well; it is not deleted."""

    def add_node_of_another_pool(self) -> str:
        """A ready node with GPUs that is none of the pool's; gives its name."""

    def cordoned(self) -> frozenset[str]:
        """The nodes that no pod can be bound to."""

    def annotations(self) -> Mapping[str, str]:
        """Of all nodes together."""

    def cordon(self, node: str) -> None:
        """As a person does it."""


def use(world: World) -> PoolUse:
    """The pool as its scaler sees it."""
    found = world.scaler.pools()[POOL]
    assert isinstance(found, PoolUse), found
    return found


def nodes(world: World) -> dict[str, ScalableNode]:
    return {node.name: node for node in use(world).nodes}


class NodePoolContract:
    """Tests of one scaler."""

    def test_a_pool_is_told_with_its_nodes_and_what_its_provider_was_asked_for(self, world: World) -> None:
        seen = use(world)
        assert (seen.pool.name, seen.problem) == (POOL, "")
        assert [(node.gpus, node.free_gpus, node.pods, node.draining) for node in seen.nodes] == [
            (GPUS, GPUS, 0, False),
            (GPUS, GPUS, 0, False),
        ]
        assert all(node.ready_at is not None and node.created_at <= datetime.now(UTC) for node in seen.nodes)

    def test_nodes_that_are_ordered_come_and_twice_is_once(self, world: World) -> None:
        before = set(nodes(world))
        for _ in range(2):
            assert world.scaler.set_target(POOL, 4) == ()
            assert use(world).wanted == 4
        world.settle()
        assert before < set(nodes(world))
        assert [node.gpus for node in nodes(world).values()] == [GPUS] * 4
        assert world.scaler.set_target(POOL, 4) == ()
        world.settle()
        assert len(nodes(world)) == 4

    def test_the_node_that_is_named_leaves_and_no_other(self, world: World) -> None:
        world.scaler.set_target(POOL, 3)
        world.settle()
        kept, victim, other = sorted(nodes(world))
        for _ in range(2):  # the second time it is gone, which is a success
            assert world.scaler.set_target(POOL, 2, remove=[victim]) == ()
            assert use(world).wanted == 2
            world.settle()
            assert set(nodes(world)) == {kept, other}

    def test_a_smaller_target_takes_nobody_who_is_not_named(self, world: World) -> None:
        before = set(nodes(world))
        assert world.scaler.set_target(POOL, 1) == ()
        world.settle()
        assert set(nodes(world)) == before
        assert not world.cordoned()

    def test_an_order_can_be_taken_back_before_it_has_come(self, world: World) -> None:
        world.scaler.set_target(POOL, 4)
        booting = [node.name for node in use(world).nodes if not node.ready_at]
        world.scaler.set_target(POOL, 2, remove=booting)
        assert use(world).wanted == 2
        world.settle()
        assert len(nodes(world)) == 2

    def test_a_node_that_is_replaced_comes_back_under_another_name(self, world: World) -> None:
        victim, other = sorted(nodes(world))
        assert world.scaler.set_target(POOL, 2, remove=[victim]) == ()
        assert use(world).wanted == 2
        world.settle()
        after = set(nodes(world))
        assert other in after and victim not in after and len(after) == 2

    def test_a_node_with_a_pod_stays_and_can_be_used_again(self, world: World) -> None:
        busy, idle = sorted(nodes(world))
        world.add_pod(busy)
        assert nodes(world)[busy].pods == 1 and nodes(world)[busy].free_gpus == GPUS - 1
        assert world.scaler.set_target(POOL, 0, remove=[busy, idle]) == (busy,)
        world.settle()
        assert set(nodes(world)) == {busy}
        assert not world.cordoned()

    def test_a_node_that_a_pod_is_bound_to_in_the_last_moment_stays_and_can_be_used_again(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        late, idle = sorted(nodes(world))
        waited: list[float] = []

        def bound_by_who_has_not_heard_of_it(seconds: float) -> None:
            assert world.cordoned() == {late, idle}
            waited.append(seconds)
            world.add_pod(late)

        monkeypatch.setattr(node_pools, "sleep", bound_by_who_has_not_heard_of_it)
        assert world.scaler.set_target(POOL, 0, remove=[late, idle]) == (late,)
        world.settle()
        assert waited == [node_pools.SETTLE_SECONDS]
        assert {name: node.pods for name, node in nodes(world).items()} == {late: 1}
        assert not world.cordoned()

    def test_a_node_that_stays_while_others_are_on_order_is_on_record_as_it_was_asked_for(self, world: World) -> None:
        busy, _ = sorted(nodes(world))
        world.scaler.set_target(POOL, 4)
        seen = use(world)
        world.add_pod(busy)
        stayed = world.scaler.set_target(POOL, 3, remove=[busy])
        target = PoolTarget(cluster=seen.cluster, pool=POOL, nodes=3, remove=(busy,))
        taken = as_taken(target, seen, stayed)
        assert (stayed, taken.nodes, taken.remove) == ((busy,), use(world).wanted, ())

    def test_a_node_that_drains_takes_no_more_pods_and_leaves_when_it_is_empty(self, world: World) -> None:
        busy, idle = sorted(nodes(world))
        pod = world.add_pod(busy)
        assert world.scaler.set_target(POOL, 1, drain=[busy]) == (busy,)
        world.settle()
        assert world.cordoned() == {busy} and nodes(world)[busy].draining
        world.end_pod(pod)
        assert world.scaler.set_target(POOL, 1, drain=[busy]) == ()
        world.settle()
        assert set(nodes(world)) == {idle}

    def test_a_node_that_no_longer_drains_is_used_again(self, world: World) -> None:
        busy, _ = sorted(nodes(world))
        world.add_pod(busy)
        world.scaler.set_target(POOL, 1, drain=[busy])
        world.scaler.set_target(POOL, 2)
        assert not world.cordoned()

    def test_what_a_person_cordoned_stays_so(self, world: World) -> None:
        busy, _ = sorted(nodes(world))
        world.cordon(busy)
        world.add_pod(busy)
        assert world.scaler.set_target(POOL, 2, remove=[busy]) == (busy,)
        world.scaler.set_target(POOL, 2)
        assert world.cordoned() == {busy}

    def test_pods_that_every_node_has_hold_none(self, world: World) -> None:
        node, _ = sorted(nodes(world))
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "plugin", "uid": "u"}
        world.add_pod(node, gpus=0, ownerReferences=[owner])
        world.add_pod(node, gpus=0, annotations={"kubernetes.io/config.mirror": "x"})
        assert nodes(world)[node].pods == 0
        assert world.scaler.set_target(POOL, 1, remove=[node]) == ()

    def test_a_node_of_another_pool_is_refused_and_nothing_is_changed(self, world: World) -> None:
        foreign, before = world.add_node_of_another_pool(), set(nodes(world))
        with pytest.raises(PoolRefused, match=f"rid of node '{foreign}': it is not one of its nodes"):
            world.scaler.set_target(POOL, 1, remove=[sorted(before)[0], foreign])
        assert not world.cordoned()
        world.settle()
        assert set(nodes(world)) == before

    @pytest.mark.parametrize("wanted", [-1, MOST + 1])
    def test_a_target_outside_of_what_is_declared_is_refused(self, world: World, wanted: int) -> None:
        with pytest.raises(PoolRefused, match=f"does not get {wanted} nodes: declared are 0 to {MOST}; ask for so"):
            world.scaler.set_target(POOL, wanted)

    def test_a_pool_that_nothing_scales_is_unknown(self, world: World) -> None:
        with pytest.raises(UnknownName, match=r"that can be scaled 'gpus'; known: gpu\. Did you mean 'gpu'\?"):
            world.scaler.set_target("gpus", 1)

    def test_a_node_is_idle_since_it_was_first_seen_without_a_pod(self, world: World) -> None:
        node, other = sorted(nodes(world))
        pod = world.add_pod(node)
        assert nodes(world)[node].idle_since is None
        idle = nodes(world)[other].idle_since
        assert idle is not None and datetime.now(UTC) - idle < timedelta(minutes=5)
        world.end_pod(pod)
        ended = nodes(world)[node].idle_since
        assert ended is not None and ended >= idle
        assert nodes(world)[node].idle_since == ended  # however often one looks

    def test_who_only_looks_leaves_no_mark(self, world: World) -> None:
        seen = world.scaler.pools(mark=False)[POOL]
        assert isinstance(seen, PoolUse)
        assert [node.idle_since for node in seen.nodes] == [None, None]
        assert not world.annotations()
