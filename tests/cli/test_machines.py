"""Nodes of the sandbox that come when they are ordered and go when they are named, and the drills about them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spillway.clouds.base import NodePoolScaler
from spillway.errors import PoolRefused, SandboxError, SpillwayError, Unreachable
from spillway.model import PoolUse
from spillway.sandbox import drills
from spillway.sandbox.__main__ import main
from spillway.sandbox.machines.fleet import begin_fleet, fleet_file, read_fleet
from spillway.sandbox.supervisor import read_status
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

FIRST = {"cloud-1": 4, "cloud-2": 4}
"""The GPUs of each node that the site starts with."""


@pytest.fixture
def scaler(installation: Installation) -> NodePoolScaler:
    scaler = installation.services().scaler("cloud")
    assert scaler is not None
    drills.misbehave(installation.sandbox, boot=timedelta(seconds=1))
    return scaler


def use(scaler: NodePoolScaler) -> PoolUse:
    found = scaler.pools()["gpu"]
    assert isinstance(found, PoolUse)
    return found


def usable(scaler: NodePoolScaler) -> dict[str, int]:
    """The GPUs of each node that is Ready."""
    return {node.name: node.gpus for node in use(scaler).nodes if node.ready_at}


def test_a_site_whose_nodes_only_people_change_has_no_scaler(installation: Installation) -> None:
    assert installation.services().scaler("onprem") is None


def test_a_node_that_is_ordered_boots_comes_and_goes_when_it_is_named(
    scaler: NodePoolScaler, installation: Installation
) -> None:
    assert scaler.set_target("gpu", 3) == ()
    ordered = use(scaler)
    assert (ordered.wanted, len(ordered.nodes)) == (3, 3)
    (new,) = {node.name for node in ordered.nodes} - set(FIRST)
    eventually(lambda: usable(scaler), lambda seen: seen == {**FIRST, new: 4})

    assert scaler.set_target("gpu", 2, remove=[new]) == ()
    assert use(scaler).wanted == 2
    assert {node.name for node in use(scaler).nodes} == set(FIRST)
    nodes = installation.services().site("cloud").client
    eventually(lambda: {node.name for node in nodes.describe().nodes}, lambda seen: seen == set(FIRST))


def test_the_nodes_that_a_site_starts_with_may_leave_too(scaler: NodePoolScaler) -> None:
    scaler.set_target("gpu", 2, remove=["cloud-2"])
    (new,) = {node.name for node in use(scaler).nodes} - {"cloud-1"}
    eventually(lambda: usable(scaler), lambda seen: seen == {"cloud-1": 4, new: 4})


def test_a_damaged_memory_of_the_machines_ends_none_of_them(scaler: NodePoolScaler, installation: Installation) -> None:
    file = fleet_file(installation.sandbox.state, installation.sandbox.sites[1])
    remembered = file.read_text()
    pid = read_status(installation.sandbox.state)["cloud-1-agent"]["pid"]
    file.write_text("{")
    try:
        with pytest.raises(SandboxError, match="remove it, and its first ones begin anew"):
            read_fleet(file)
        log = installation.sandbox.logs / "supervisor.log"
        eventually(lambda: "reading what comes and goes fails" in log.read_text())
    finally:
        file.write_text(remembered)
    eventually(lambda: "reading what comes and goes works again" in log.read_text())
    assert read_status(installation.sandbox.state)["cloud-1-agent"]["pid"] == pid


def test_what_was_ordered_is_remembered_when_the_site_is_set_up_again(
    scaler: NodePoolScaler, installation: Installation
) -> None:
    cloud = installation.sandbox.sites[1]
    scaler.set_target("gpu", 3)
    file = fleet_file(installation.sandbox.state, cloud)
    before = read_fleet(file)
    begin_fleet(file, cloud)
    assert read_fleet(file) == before


def test_the_cloud_refuses_more_than_the_quota(scaler: NodePoolScaler, installation: Installation) -> None:
    assert main(("--state", str(installation.sandbox.state), "drill", "quota", "2")) == 0
    with pytest.raises(PoolRefused) as refused:
        scaler.set_target("gpu", 4)
    assert str(refused.value) == (
        "pool 'cloud/gpu' does not get 4 nodes: 4 machines of 'cloud' were asked for, the quota is 2; raise the quota"
    )
    assert use(scaler).wanted == 2


def test_a_machine_may_come_without_its_gpus_and_is_replaced_under_another_name(
    scaler: NodePoolScaler, installation: Installation
) -> None:
    assert main(("--state", str(installation.sandbox.state), "drill", "boot-failure")) == 0
    scaler.set_target("gpu", 3)
    (broken,) = {node.name for node in use(scaler).nodes} - set(FIRST)
    eventually(lambda: usable(scaler), lambda seen: seen == {**FIRST, broken: 0})

    drills.misbehave(installation.sandbox, without_gpus=False)
    scaler.set_target("gpu", 3, remove=[broken])
    (whole,) = {node.name for node in use(scaler).nodes} - set(FIRST)
    assert whole != broken
    eventually(lambda: usable(scaler), lambda seen: seen == {**FIRST, whole: 4})


def test_without_its_provider_a_pool_is_an_error_and_nothing_is_changed(
    scaler: NodePoolScaler, installation: Installation
) -> None:
    with installation.taken("cloud-machines"):
        found = scaler.pools()["gpu"]
        assert isinstance(found, SpillwayError)
        assert isinstance(found, Unreachable) and found.retry_helps
        before = installation.objects("cloud")["node"]
        with pytest.raises(Unreachable, match="the provider of machines"):
            scaler.set_target("gpu", 1, remove=["cloud-2"])
        assert installation.objects("cloud")["node"] == before
    assert usable(scaler) == FIRST
