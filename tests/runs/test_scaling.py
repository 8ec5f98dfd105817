"""The scaler on the sandbox's cloud: nodes come for what waits and go when they idle, one writer, one line a change."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from sqlalchemy import select

from spillway.clouds import node_pools
from spillway.clouds.kubernetes import KubernetesCluster
from spillway.errors import PoolRefused, ScalerBusy, SpillwayError, TurnLost
from spillway.ledger import ScalingLook
from spillway.ledger.scaling_tables import scaling_turn
from spillway.model import NoticeTarget, PlacementDecision, PoolTarget, PoolUse, ScalingAlert, ScalingChange
from spillway.runs.notices import Message, deliver_notices
from spillway.runs.scaling import TURN, Scaled, look, scale
from spillway.runs.scaling_effects import usable_nodes
from spillway.runs.scaling_orders import READY_WITHIN, order_more, plan_shrink, pool_named
from spillway.runs.scaling_outcome import order_outcome
from spillway.runs.services import Services
from spillway.sandbox import drills
from spillway.scaling.planner import plan_scaling
from spillway.testing.builders import job_spec
from spillway.testing.elastic import scaling_look
from spillway.testing.ledger_values import SNAPSHOT
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

PLACE = "cloud/gpu"
FIRST = ("cloud-1", "cloud-2")
"""The nodes that the cloud begins with, of 4 GPUs each."""
PODS = "/api/v1/namespaces/training/pods"
OPS = NoticeTarget(name="ops", email="ops@example.com")
SOON = timedelta(minutes=11)
"""Later than an idle node stays, and than an order may take."""


def later(services: Services, ahead: timedelta) -> Services:
    """The services of a moment that is so far ahead."""
    return replace(services, clock=lambda: datetime.now(UTC) + ahead)


@pytest.fixture
def cloud(installation: Installation) -> Services:
    """Services that name who acts, and whom to tell, and look at the queue alone; machines boot within a second."""
    drills.misbehave(installation.sandbox, boot=timedelta(seconds=1))
    services = installation.services()
    declared, rules = services.configuration, replace(services.configuration.scaling, forecast=None)
    return replace(services, configuration=replace(declared, scaling=rules, notices=(OPS,)), actor="a test")


def wait_in_line(services: Services, *runs: str, gpus: int = 4, pools: tuple[str, ...] = ("gpu",)) -> None:
    """Runs that lack nothing but room in the cloud."""
    job, now = job_spec(gpus_per_node=gpus, nodes=1), services.clock()

    def full(whole: Any) -> PlacementDecision:
        places = frozenset(("cloud", pool) for pool in pools)
        return PlacementDecision(job=job.name, taken_at=now, chosen=None, possible=True, verdicts=(), queues_at=places)

    for run in runs:
        services.ledger.open_run(run, job, {"dag_id": "train", "run_id": run}, now)
        lease, policy = timedelta(minutes=5), services.configuration.policy
        services.ledger.reserve(run, job, now=now, lease=lease, snapshot=SNAPSHOT, policy=policy, decide=full)


def now_scaled(services: Services, said: list[str] | None = None) -> Scaled:
    return scale(services, (said if said is not None else []).append)


def pool(services: Services) -> PoolUse:
    return pool_named(services, PLACE)


def names(services: Services) -> set[str]:
    return {node.name for node in pool(services).nodes}


def alerts(services: Services) -> list[str]:
    found = (notice.about for notice in services.ledger.undelivered())
    return [about.title for about in found if isinstance(about, ScalingAlert)]


def told(change: ScalingChange) -> tuple[int, int, bool]:
    return change.before, change.target.nodes, change.asked_at is not None


def test_nodes_come_for_what_waits_and_the_oldest_idle_ones_go_when_nobody_needs_them(cloud: Services) -> None:
    wait_in_line(cloud, "one", "two", "three")
    assert [told(change) for change in now_scaled(cloud).changes] == [(2, 3, True)]
    again = now_scaled(cloud)
    assert (again.changes, again.problems) == ((), ())
    eventually(lambda: usable_nodes(pool(cloud)), lambda nodes: nodes == 3)
    now_scaled(cloud)
    (grown,) = cloud.ledger.scaling_changes()
    assert grown.reached_at is not None
    (wish,) = grown.target.contributions
    assert wish.reason == "1 more: for jobs that wait and find no room"

    for run in ("one", "two", "three"):
        cloud.ledger.cancel_run(run, "no longer needed", cloud.clock())
    tomorrow = later(cloud, SOON)
    (shrunk,) = now_scaled(tomorrow).changes
    assert told(shrunk) == (3, 0, True)
    eventually(lambda: names(cloud), lambda left: not left)
    now_scaled(later(cloud, SOON))
    assert [(told(c), c.actor, c.reached_at is not None) for c in cloud.ledger.scaling_changes()] == [
        ((2, 3, True), "a test", True),
        ((3, 0, True), "a test", True),
    ]
    assert set(FIRST) <= set(shrunk.target.remove)


def test_every_change_has_what_it_was_planned_from_and_a_look_without_one_is_stored_now_and_then(
    cloud: Services,
) -> None:
    def stored() -> list[ScalingLook]:
        return list(cloud.ledger.looks_between(cloud.clock() - timedelta(hours=1), cloud.clock() + timedelta(hours=1)))

    assert now_scaled(cloud).changes == ()
    now_scaled(cloud)
    look(cloud)
    (first,) = stored()
    wait_in_line(cloud, "one", "two", "three")
    (change,) = now_scaled(cloud).changes
    planned = cloud.ledger.planned_from(change.number)
    assert stored() == [first, planned]
    assert planned is not None
    assert [job.run for job in planned.snapshot.queue] == ["one", "three", "two"]
    assert (planned.plan, planned.rules) == ((change.target,), cloud.configuration.scaling)
    assert plan_scaling(planned.snapshot, planned.forecasts, planned.rules) == planned.plan


def test_a_node_that_a_pod_is_bound_to_in_the_last_moment_stays_and_the_line_of_the_change_says_so(
    cloud: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cloud.site("cloud").client
    assert isinstance(client, KubernetesCluster)
    api, containers = client.api, [{"name": "c", "image": "i"}]
    late = {"metadata": {"name": "late"}, "spec": {"nodeSelector": {"no": "node"}, "containers": containers}}

    def about_to_be_bound(seconds: float) -> None:
        patch, status = "application/merge-patch+json", {"status": {"nominatedNodeName": FIRST[0]}}
        api.json("POST", PODS, body=late)
        api.json("PATCH", f"{PODS}/late/status", body=status, content_type=patch)

    now_scaled(cloud)  # from now on both idle
    monkeypatch.setattr(node_pools, "sleep", about_to_be_bound)
    said: list[str] = []
    (change,) = now_scaled(later(cloud, SOON), said).changes
    stays = f"{FIRST[0]} stays for a pod that came meanwhile"
    assert (told(change), change.target.remove, change.target.clamps) == ((2, 1, True), (FIRST[1],), (stays,))
    assert said[-1].endswith(f"  {stays}")
    assert cloud.ledger.scaling_changes() == (change,)
    eventually(lambda: names(cloud), lambda left: left == {FIRST[0]})
    assert [(node.pods, node.draining) for node in pool(cloud).nodes] == [(1, False)]
    api.json("DELETE", f"{PODS}/late", {"gracePeriodSeconds": 0})


def test_a_look_says_every_reason_and_changes_nothing(cloud: Services) -> None:
    wait_in_line(cloud, "one", "two", "three")
    found = look(cloud)
    (target,) = found.plan
    assert found.told(target).splitlines() == [
        "cloud/gpu: 2 -> 3 nodes",
        "  reactive wants 3: 1 more: for jobs that wait and find no room",
    ]
    assert (pool(cloud).wanted, cloud.ledger.scaling_changes()) == (2, ())


def test_who_only_looks_leaves_no_mark_on_a_node_and_who_scales_does(cloud: Services) -> None:
    def marks() -> list[bool]:
        return [node.idle_since is not None for node in pool(cloud).nodes if node.name not in FIRST]

    order_more(cloud, PLACE, 1, order="o", by="ann")
    now_scaled(cloud)
    eventually(lambda: usable_nodes(pool(cloud)), lambda nodes: nodes == 3)
    look(cloud)
    plan_shrink(cloud, PLACE, 0)
    assert marks() == [False]
    now_scaled(cloud)
    assert marks() == [True]


def test_while_one_scales_another_is_told_so_and_changes_nothing(cloud: Services) -> None:
    wait_in_line(cloud, "one", "two", "three")
    cloud.ledger.take_turn("the first", TURN)
    with pytest.raises(ScalerBusy, match="the first scales the node pools since"):
        now_scaled(cloud)
    assert (pool(cloud).wanted, cloud.ledger.scaling_changes()) == (2, ())
    cloud.ledger.end_turn("the first")
    assert len(now_scaled(cloud).changes) == 1


@pytest.mark.parametrize(
    ("next_is_done", "error", "message"), [(False, ScalerBusy, "the next"), (True, TurnLost, "another one has scaled")]
)
def test_one_who_lost_its_turn_in_the_middle_asks_no_provider(
    cloud: Services, monkeypatch: pytest.MonkeyPatch, next_is_done: bool, error: type[SpillwayError], message: str
) -> None:
    wait_in_line(cloud, "one", "two", "three")

    def hang(*arguments: object) -> None:
        cloud.ledger.end_turn(_holder(cloud))
        cloud.ledger.take_turn("the next", TURN)
        if next_is_done:
            cloud.ledger.end_turn("the next")

    monkeypatch.setattr("spillway.runs.scaling.note_effects", hang)
    with pytest.raises(error, match=message):
        now_scaled(cloud)
    assert (pool(cloud).wanted, cloud.ledger.scaling_changes()) == (2, ())


def test_a_change_whose_process_died_before_it_was_done_is_taken_up_in_the_same_line(cloud: Services) -> None:
    wait_in_line(cloud, "one", "two", "three")
    seen = look(cloud)
    (target,) = seen.plan
    cloud.ledger.begin_change(target, before=2, actor="one who died", now=cloud.clock(), look=seen.look)
    now_scaled(cloud)
    (line,) = cloud.ledger.scaling_changes()
    assert (line.tries, line.actor, told(line)) == (2, "a test", (2, 3, True))


@pytest.mark.parametrize("problem", ["", "the provider is unreachable: timed out"])
def test_a_change_that_its_provider_has_taken_is_told_as_done_whether_who_asked_died_or_the_answer_was_lost(
    cloud: Services, problem: str
) -> None:
    wait_in_line(cloud, "one", "two", "three")
    seen = look(cloud)
    (target,) = seen.plan
    change = cloud.ledger.begin_change(target, before=2, actor="one who died", now=cloud.clock(), look=seen.look)
    if problem:
        cloud.ledger.change_failed(change, problem)
    scaler = cloud.scaler("cloud")
    assert scaler is not None
    scaler.set_target("gpu", 3)
    assert now_scaled(cloud).changes == ()
    (line,) = cloud.ledger.scaling_changes()
    assert (line.tries, line.actor, told(line), line.problem) == (1, "one who died", (2, 3, True), None)


def test_a_provider_that_refuses_changes_nothing_and_people_are_told_once(
    cloud: Services, installation: Installation
) -> None:
    drills.misbehave(installation.sandbox, quota=2)
    wait_in_line(cloud, "one", "two", "three")
    said: list[str] = []
    scaled = now_scaled(cloud, said)
    now_scaled(cloud)
    (line,) = cloud.ledger.scaling_changes()
    refused = str(
        PoolRefused(PLACE, "3 nodes", "3 machines of 'cloud' were asked for, the quota is 2", fix="raise the quota")
    )
    assert scaled.problems == (f"{PLACE}: {refused}",)
    assert (line.problem, line.tries, told(line)) == (refused, 2, (2, 3, False))
    assert alerts(cloud) == ["cloud/gpu was not brought from 2 to 3 nodes"]
    sent: list[Message] = []
    assert len(deliver_notices(cloud, lambda target, message: sent.append(message), said.append).delivered) == 1
    (message,) = sent
    assert message.title == "cloud/gpu was not brought from 2 to 3 nodes"
    assert message.text.startswith(f"{refused}. Wanted because of: reactive wants 3: 1 more")
    assert alerts(cloud) == []
    assert "not done (1. try)" in said[0]
    drills.misbehave(installation.sandbox, quota=None)
    now_scaled(cloud)
    assert [(told(c), c.problem, c.tries) for c in cloud.ledger.scaling_changes()] == [((2, 3, True), None, 3)]


def test_people_are_told_once_of_a_provider_that_refuses_ever_more(cloud: Services, installation: Installation) -> None:
    drills.misbehave(installation.sandbox, quota=2)
    wait_in_line(cloud, "one", "two", "three")
    now_scaled(cloud)
    wait_in_line(cloud, "four", "five")
    now_scaled(cloud)
    assert [told(change) for change in cloud.ledger.scaling_changes()] == [(2, 3, False), (2, 4, False)]
    assert alerts(cloud) == ["cloud/gpu was not brought from 2 to 3 nodes"]


def test_a_pool_that_cannot_be_read_keeps_its_size_and_is_scaled_when_it_answers_again(
    cloud: Services, installation: Installation
) -> None:
    wait_in_line(cloud, "one", "two", "three")
    with installation.taken("cloud-machines"):
        said: list[str] = []
        scaled = now_scaled(cloud, said)
        assert (scaled.changes, cloud.ledger.scaling_changes()) == ((), ())
        assert [line.startswith("not scaled, for its state is not known: cloud/gpu: ") for line in said] == [True]
        assert ["the provider of machines" in problem for problem in scaled.problems] == [True]
    assert [told(change) for change in now_scaled(cloud).changes] == [(2, 3, True)]


def test_a_pool_that_cannot_be_opened_stops_no_other(cloud: Services, installation: Installation) -> None:
    declared = yaml.safe_load((installation.config / "clusters.yaml").read_text())
    (first,) = declared["clusters"][1]["pools"]
    lost = first | {"name": "lost", "node_selector": {"no": "node"}}
    lost["scaled_by"] = first["scaled_by"] | {"connection": "nowhere"}
    declared["clusters"][1]["pools"].append(lost)
    (installation.config / "clusters.yaml").write_text(yaml.safe_dump(declared))
    services = replace(installation.services(), actor="a test")
    wait_in_line(services, "one", "two", "three", pools=("gpu", "lost"))
    assert now_scaled(services).changes == ()  # nor does who may go to it order nodes elsewhere instead
    wait_in_line(services, "four")
    scaled = now_scaled(services)
    assert [(c.pool, told(c)) for c in scaled.changes] == [("gpu", (2, 3, True))]
    assert scaled.seen.unknown == {("cloud", "lost"): scaled.problems[0].removeprefix("cloud/lost: ")}
    assert "Connection 'nowhere' is not in" in scaled.problems[0]


def ordered_without_gpus(cloud: Services, installation: Installation) -> str:
    """The name of a node that was ordered, and has come without its GPUs."""
    drills.misbehave(installation.sandbox, without_gpus=True)
    order_more(cloud, PLACE, 1, order="o", by="ann")
    now_scaled(cloud)
    (broken,) = names(cloud) - set(FIRST)
    eventually(lambda: [n.ready_at for n in pool(cloud).nodes if n.name == broken], lambda at: at != [None])
    return broken


def test_a_node_that_comes_without_gpus_is_replaced_once_and_told_once(
    cloud: Services, installation: Installation
) -> None:
    broken = ordered_without_gpus(cloud, installation)
    drills.misbehave(installation.sandbox, without_gpus=False)
    now_scaled(later(cloud, timedelta(seconds=90)))
    past = later(cloud, timedelta(minutes=3))
    (change,) = now_scaled(past).changes
    assert (change.target.replaces, told(change)) == ((broken,), (3, 3, True))
    eventually(lambda: usable_nodes(pool(cloud)), lambda nodes: nodes == 3)
    assert now_scaled(past).changes == ()
    assert alerts(cloud) == [f"node {broken} of cloud/gpu failed and is replaced"]
    assert broken not in names(cloud)


@pytest.mark.parametrize("jump", [timedelta(days=3), -timedelta(days=3)])
def test_by_a_clock_that_jumps_no_node_that_boots_has_failed(
    cloud: Services, installation: Installation, jump: timedelta
) -> None:
    drills.misbehave(installation.sandbox, boot=timedelta(hours=1))
    order_more(cloud, PLACE, 1, order="o", by="ann", lasting=timedelta(days=30))
    now_scaled(cloud)
    before = names(cloud)
    now_scaled(later(cloud, jump))
    assert before - names(cloud) <= {*FIRST}  # idle ones may leave
    assert not [name for change in cloud.ledger.scaling_changes() for name in change.target.replaces]
    assert not [title for title in alerts(cloud) if "failed" in title]


def test_nodes_that_fail_again_and_again_are_given_back_and_people_are_told_once(
    cloud: Services, installation: Installation
) -> None:
    broken = ordered_without_gpus(cloud, installation)
    for number in range(3):
        target = PoolTarget(cluster="cloud", pool="gpu", nodes=3, replaces=(f"gone-{number}",))
        change = cloud.ledger.begin_change(target, before=3, actor="a test", now=cloud.clock(), look=scaling_look())
        cloud.ledger.change_is_asked(change, cloud.clock())
    now_scaled(later(cloud, timedelta(seconds=90)))
    past = later(cloud, timedelta(minutes=3))
    (change,) = now_scaled(past).changes
    assert (change.target.replaces, told(change), broken in change.target.remove) == ((), (3, 2, True), True)
    assert now_scaled(past).changes == ()
    assert alerts(cloud) == ["cloud/gpu gets no more nodes: those that replace failed ones fail too"]
    assert broken not in names(cloud)


def test_ordered_nodes_are_awaited_with_a_timer_and_people_are_told_once_when_they_are_late(
    cloud: Services, installation: Installation
) -> None:
    drills.misbehave(installation.sandbox, boot=timedelta(hours=1))
    order = order_more(cloud, PLACE, 1, order="o", by="ann")
    assert order == order_more(cloud, PLACE, 1, order="o", by="ann")
    assert (order.base_nodes, order.wanted, order.ready_by) == (2, 3, order.ordered_at + READY_WITHIN)
    said: list[str] = []
    now_scaled(cloud, said)
    assert "2 of 3 nodes ready" in said[0]
    assert " left" in said[0]
    late = later(cloud, SOON)
    for _ in range(2):
        now_scaled(late)
    assert alerts(cloud)[0] == "nodes that were ordered of cloud/gpu are late: 2 of 3 are ready"
    assert [title for title in alerts(cloud)[1:] if "failed" not in title] == []
    outcome = order_outcome(late, "o", (), said.append)
    assert (outcome.over, outcome.as_planned) == (False, False)
    assert "late by 1:0" in outcome.lines[1]


def test_an_order_of_more_comes_on_top_of_one_that_the_scaler_has_not_seen_yet(cloud: Services) -> None:
    for order in ("one", "two"):
        order_more(cloud, PLACE, 1, order=order, by="ann")
    assert [told(change) for change in now_scaled(cloud).changes] == [(2, 4, True)]


def test_an_order_that_is_ready_in_time_is_told_beside_its_plan(cloud: Services) -> None:
    order = order_more(cloud, PLACE, 1, order="o", by="ann")
    now_scaled(cloud)
    eventually(lambda: usable_nodes(pool(cloud)), lambda nodes: nodes == 3)
    outcome = order_outcome(cloud, "o", (), lambda line: None)
    assert (outcome.over, outcome.as_planned) == (True, True)
    ready_by = order.ready_by
    assert ready_by is not None
    assert outcome.lines[0] == f"planned: 3 nodes, ready by {ready_by:%H:%M:%S} UTC"
    assert outcome.lines[1].startswith("cloud/gpu: 3 of 3 nodes ready, all of them 0:")
    assert alerts(cloud) == []


@pytest.mark.parametrize(
    ("place", "nodes", "message"),
    [
        ("cloud/gpus", 1, "unknown pool that can be scaled 'cloud/gpus'; known: cloud/gpu. Did you mean 'cloud/gpu'?"),
        ("onprem/gpu", 1, "pool 'onprem/gpu' does not get more or fewer nodes: it declares no scaled_by"),
        (
            PLACE,
            3,
            "pool 'cloud/gpu' does not get 3 nodes more: it is to have 2 and may have 4; order fewer, or raise",
        ),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused(cloud: Services, place: str, nodes: int, message: str) -> None:
    with pytest.raises(SpillwayError) as refused:
        order_more(cloud, place, nodes, order="o", by="ann")
    assert message in str(refused.value)
    assert cloud.ledger.scaling_orders() == ()


def _holder(services: Services) -> str:
    with services.ledger.engine.connect() as connection:
        found: str = connection.execute(select(scaling_turn.c.holder)).scalar_one()
    return found
