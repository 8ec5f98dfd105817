"""The sandbox's provider of machines by the contract; tests of the sandbox tell that its nodes really boot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.connections import ConnectionSpec
from spillway.errors import AccessDenied, Missing, PoolRefused, Unreachable
from spillway.model import ScaledBy
from spillway.sandbox.kube.process import kubeconfig
from spillway.sandbox.machines.fleet import Fleet, begin_fleet, change_fleet, first_fleet, fleet_file, read_fleet
from spillway.sandbox.machines.process import machines_process
from spillway.sandbox.settings import SandboxSettings, credentials, sandbox_settings, write_private
from spillway.testing.node_pool_contract import POOL, NodePoolContract, use
from spillway.testing.node_pool_world import Machines, PoolWorld
from spillway.testing.polling import eventually
from spillway.testing.ports import SANDBOX_PORTS, free_port, free_port_block
from spillway.testing.processes import running

MakeWorld = Callable[..., PoolWorld]
Open = Callable[..., PoolWorld]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, api_server: Any) -> Iterator[SandboxSettings]:
    """A site of which only the provider of machines runs, beside the Kubernetes API of these tests."""
    settings = sandbox_settings(tmp_path_factory.mktemp("sandbox"), free_port_block(300, SANDBOX_PORTS))
    site = settings.sites[1]
    write_private(settings.state / "base_port", str(settings.base_port))
    document = kubeconfig(name="c", server=api_server.url, ca_file=api_server.ca_file, token="test-token")
    write_private(settings.state / site.name / "kubeconfig.json", json.dumps(document))
    begin_fleet(fleet_file(settings.state, site), site)
    credentials(settings)
    with running(machines_process(settings.state, site), settings.state / "machines.log"):
        yield settings


@pytest.fixture
def opened(settings: SandboxSettings, pool_world: MakeWorld) -> Open:
    """The pool through a Connection with these fields changed; its machines boot at once."""
    site = settings.sites[1]
    file = fleet_file(settings.state, site)
    first = first_fleet(site, datetime.now(UTC))
    at_once = replace(first.faults, boot=timedelta())
    change_fleet(file, lambda fleet: replace(first, last=fleet.last, faults=at_once))

    def machines(world: PoolWorld) -> Machines:
        eventually(lambda: not read_fleet(file).leaving)  # until their nodes are deleted
        return {machine.name: {} for machine in read_fleet(file).machines}

    def make(group: str = POOL, **fields: Any) -> PoolWorld:
        token = credentials(settings)["cloud_machines_token"]
        known = {"host": "127.0.0.1", "port": site.machines_port, "password": token}
        connection = ConnectionSpec(conn_id="machines", conn_type="http", **known | fields)
        return pool_world(ScaledBy(provider="sandbox", connection="machines", node_group=group), machines, connection)

    return make


@pytest.fixture
def world(opened: Open) -> PoolWorld:
    world = opened()
    world.settle()
    return world


class TestSandboxNodePools(NodePoolContract):
    pass


def test_a_machine_that_has_not_joined_is_a_node_without_gpus_since_its_order(world: PoolWorld) -> None:
    before = datetime.now(UTC)
    world.scaler.set_target(POOL, 3)
    (booting,) = [node for node in use(world).nodes if node.ready_at is None]
    assert (booting.gpus, booting.free_gpus, booting.pods, booting.idle_since) == (0, 0, 0, None)
    assert before <= booting.created_at <= datetime.now(UTC)


def test_more_than_the_quota_is_refused_and_nothing_is_ordered(world: PoolWorld, settings: SandboxSettings) -> None:
    def strict(fleet: Fleet) -> Fleet:
        return replace(fleet, faults=replace(fleet.faults, quota=3))

    change_fleet(fleet_file(settings.state, settings.sites[1]), strict)
    with pytest.raises(PoolRefused) as refused:
        world.scaler.set_target(POOL, 4)
    assert str(refused.value) == (
        "pool 'cloud/gpu' does not get 4 nodes: 4 machines of 'cloud' were asked for, the quota is 3; raise the quota"
    )
    assert use(world).wanted == 2


@pytest.mark.parametrize(
    ("changed", "kind", "told"),
    [
        pytest.param({"password": "old"}, AccessDenied, "renew the password of its Connection", id="a wrong token"),
        pytest.param({"group": "cpu"}, Missing, "there is only pool gpu", id="a group that is not there"),
        pytest.param({"port": free_port()}, Unreachable, "Connection refused", id="nobody answers"),
    ],
)
def test_a_provider_that_gives_no_pool_is_told_in_its_place_and_nothing_is_cordoned(
    opened: Open, changed: dict[str, Any], kind: type[Exception], told: str
) -> None:
    world = opened(**changed)
    world.join(f"cloud-1-{world.cluster.namespace}")
    found = world.scaler.pools()[POOL]
    assert isinstance(found, kind) and told in str(found)
    with pytest.raises(kind):
        world.scaler.set_target(POOL, 0, remove=[*world.made])
    assert not world.cordoned()
