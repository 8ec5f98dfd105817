"""Node groups of EKS by the contract, on moto's server; what moto does not do AWS's own answers are written down for.

Where moto differs: a group gets its machines at once and they never boot; it does not make the Auto Scaling group of a
node group, refuse sizes outside of its limits, nor tell scaling activities.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

import pytest

from spillway.connections import ConnectionSpec
from spillway.errors import AccessDenied, Missing, PoolRefused, Unreachable
from spillway.model import ScaledBy
from spillway.runs.scalers import open_scaler
from spillway.testing.aws_server import REGION, AwsServer, aws_server
from spillway.testing.node_pool_contract import MOST, POOL, NodePoolContract, nodes, use
from spillway.testing.node_pool_world import Machines, PoolWorld
from spillway.testing.ports import free_port
from spillway.testing.scripted_http import Answer, Call, ScriptedServer

MakeWorld = Callable[..., PoolWorld]
Scripted = Callable[..., tuple[PoolWorld, ScriptedServer]]
_clusters = itertools.count(1)


def scaled_by(cluster: str, node_group: str = "gpu") -> ScaledBy:
    return ScaledBy(provider="eks", connection="cloud_aws", cluster=cluster, node_group=node_group)


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsServer]:
    with aws_server(tmp_path_factory.mktemp("aws")) as server:
        yield server


@pytest.fixture
def cluster() -> str:
    """The name of an EKS cluster that no other test has."""
    return f"training-{next(_clusters)}"


@pytest.fixture
def group(aws: AwsServer, cluster: str) -> str:
    """The Auto Scaling group of its node group ``gpu``, with two machines."""
    return aws.add_node_group(cluster, "gpu", machines=2, most=MOST)


@pytest.fixture
def world(aws: AwsServer, cluster: str, group: str, pool_world: MakeWorld) -> PoolWorld:
    def machines(world: PoolWorld) -> Machines:
        instances = [instance["InstanceId"] for instance in aws.scaling_group(group)["Instances"]]
        return {f"node-of-{name}": {"providerID": f"aws:///{REGION}a/{name}"} for name in instances}

    world = pool_world(scaled_by(cluster), machines, aws.connection())
    world.settle()
    return world


class TestEksNodePools(NodePoolContract):
    pass


def test_the_machine_of_the_node_that_is_named_is_ended_and_the_wish_counted_down(
    world: PoolWorld, aws: AwsServer, group: str
) -> None:
    victim, other = sorted(nodes(world))
    world.scaler.set_target(POOL, 1, remove=[victim])
    after = aws.scaling_group(group)
    assert after["DesiredCapacity"] == 1
    assert [instance["InstanceId"] for instance in after["Instances"]] == [other.removeprefix("node-of-")]
    found = aws.client("ec2").describe_instances(InstanceIds=[victim.removeprefix("node-of-")])
    assert found["Reservations"][0]["Instances"][0]["State"]["Name"] == "terminated"


def test_a_machine_that_has_not_joined_is_a_node_by_its_own_name_and_can_be_taken_back(
    world: PoolWorld, aws: AwsServer, group: str
) -> None:
    world.scaler.set_target(POOL, 3)
    (booting,) = [node for node in use(world).nodes if node.ready_at is None]
    assert booting.name.startswith("i-") and booting.gpus == 0
    world.scaler.set_target(POOL, 2, remove=[booting.name])
    assert booting.name not in {instance["InstanceId"] for instance in aws.scaling_group(group)["Instances"]}


def test_a_node_of_another_group_with_the_same_labels_is_none_of_the_pool(world: PoolWorld) -> None:
    stranger = f"stranger-{world.cluster.namespace}"
    world.join(stranger, providerID=f"aws:///{REGION}a/i-other")
    assert stranger not in nodes(world)
    with pytest.raises(PoolRefused, match=f"rid of node '{stranger}': it is not one of its nodes"):
        world.scaler.set_target(POOL, 1, remove=[stranger])


def test_a_size_beyond_the_node_group_s_own_is_refused_before_anything_is_ended(
    world: PoolWorld, aws: AwsServer, group: str
) -> None:
    aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group, MinSize=1, MaxSize=3)
    victim, other = sorted(nodes(world))
    for wanted, remove in ((4, [victim]), (0, [victim, other])):
        with pytest.raises(PoolRefused) as refused:
            world.scaler.set_target(POOL, wanted, remove=remove)
        assert str(refused.value) == (
            f"pool 'cloud/gpu' does not get {wanted} nodes: node group 'gpu' has 1 to 3; "
            "set its minimum and maximum size in AWS to those of the pool in clusters.yaml"
        )
    world.settle()
    assert sorted(nodes(world)) == [victim, other]


def test_a_pool_that_has_more_than_it_may_have_by_now_comes_down_as_far_as_its_pods_let_it(
    world: PoolWorld, aws: AwsServer, control_plane: Any
) -> None:
    world.scaler.set_target(POOL, 4)
    world.settle()
    (pool,) = world.cluster.pools
    lowered = replace(world.cluster, pools=(replace(pool, max_nodes=1),))
    scaler = open_scaler(lowered, control_plane.open(lowered), lambda _: aws.connection())
    assert scaler is not None
    victim, *others = sorted(nodes(world))
    assert scaler.set_target(POOL, 3, remove=[victim]) == ()
    world.settle()
    assert sorted(nodes(world)) == others
    with pytest.raises(PoolRefused, match="does not get 4 nodes: declared are 0 to 1"):
        scaler.set_target(POOL, 4)


@pytest.mark.parametrize("lacking", ["cluster", "node group"])
def test_a_node_group_that_is_not_there_is_missing(
    aws: AwsServer, cluster: str, group: str, pool_world: MakeWorld, lacking: str
) -> None:
    named = scaled_by("other") if lacking == "cluster" else scaled_by(cluster, "cpu")
    found = pool_world(named, lambda _: {}, aws.connection()).scaler.pools()[POOL]
    assert isinstance(found, Missing)
    assert str(found).startswith("node group 'cloud/gpu' is not in AWS; it says DescribeNodegroup: ResourceNotFound")
    assert str(found).endswith("correct scaled_by in clusters.yaml")


def test_an_address_where_nobody_answers_is_unreachable(pool_world: MakeWorld) -> None:
    extra = {"endpoint_url": f"http://127.0.0.1:{free_port()}", "region_name": REGION}
    nobody = ConnectionSpec(conn_id="cloud_aws", conn_type="aws", login="key", password="secret", extra=extra)
    world = pool_world(scaled_by("c"), lambda _: {}, nobody)
    found = world.scaler.pools()[POOL]
    assert isinstance(found, Unreachable) and found.retry_helps


NODE_GROUP = '{"nodegroup": {"resources": {"autoScalingGroups": [{"name": "g"}]}, "health": {"issues": [%s]}}}'
LAUNCHED = "2026-11-30T12:00:00Z"


def scripted(activity: str = "", issue: str = "", *, desired: int = 3, fails: dict[str, Answer] | None = None) -> Any:
    """A script in AWS's words: a group of one machine that wants more, its newest scaling activity, its answers."""

    def answer(call: Call) -> Answer:
        if call.path.startswith("/clusters/"):
            return Answer(body=(NODE_GROUP % issue).encode(), headers={"Content-Type": "application/json"})
        asked = parse_qs(call.body.decode())["Action"][0]
        if fails and asked in fails:
            return fails[asked]
        result = {
            "DescribeAutoScalingGroups": (
                "<AutoScalingGroups><member><AutoScalingGroupName>g</AutoScalingGroupName><MinSize>0</MinSize>"
                f"<MaxSize>4</MaxSize><DesiredCapacity>{desired}</DesiredCapacity><Instances><member>"
                "<InstanceId>i-1</InstanceId><LifecycleState>InService</LifecycleState>"
                "<ProtectedFromScaleIn>false</ProtectedFromScaleIn></member><member><InstanceId>i-2</InstanceId>"
                "<LifecycleState>Terminating:Wait</LifecycleState>"
                "<ProtectedFromScaleIn>false</ProtectedFromScaleIn></member></Instances></member></AutoScalingGroups>"
            ),
            "DescribeScalingActivities": f"<Activities>{activity}</Activities>",
        }.get(asked, "")
        if asked == "DescribeInstances":
            instance = f"<instanceId>i-1</instanceId><launchTime>{LAUNCHED}</launchTime>"
            body = (
                f"<DescribeInstancesResponse><reservationSet><item><instancesSet><item>{instance}</item></instancesSet>"
                "</item></reservationSet></DescribeInstancesResponse>"
            )
        else:
            body = f"<{asked}Response><{asked}Result>{result}</{asked}Result></{asked}Response>"
        return Answer(body=body.encode(), headers={"Content-Type": "text/xml"})

    return answer


def refusal(status: int, code: str, message: str) -> Answer:
    body = f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
    return Answer(status=status, body=body.encode(), headers={"Content-Type": "text/xml"})


@pytest.fixture
def scripted_world(pool_world: MakeWorld) -> Iterator[Scripted]:
    """Makes the pool on a server that answers by a script."""
    server = ScriptedServer()

    def make(**words: Any) -> tuple[PoolWorld, ScriptedServer]:
        server.script = scripted(**words)
        extra = {"endpoint_url": server.url, "region_name": REGION}
        known = ConnectionSpec(conn_id="cloud_aws", conn_type="aws", login="key", password="secret", extra=extra)
        world = pool_world(scaled_by("c"), lambda _: {}, known)
        world.join(f"n1-{world.cluster.namespace}", providerID=f"aws:///{REGION}a/i-1")
        return world, server

    yield make
    server.close()


ACTIVITY = (
    "<member><ActivityId>a</ActivityId><AutoScalingGroupName>g</AutoScalingGroupName><Cause>c</Cause>"
    f"<StartTime>{LAUNCHED}</StartTime><StatusCode>Failed</StatusCode><StatusMessage>{{}}</StatusMessage></member>"
)
LIMIT = "You have requested more vCPU capacity than your current vCPU limit of 0 allows"
ISSUE = '{"code": "AsgInstanceLaunchFailures", "message": "Instance became unhealthy"}'


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param({"activity": ACTIVITY.format(LIMIT)}, LIMIT, id="what the newest activity says"),
        pytest.param(
            {"issue": ISSUE}, "AsgInstanceLaunchFailures: Instance became unhealthy", id="what the node group says"
        ),
        pytest.param(
            {"activity": ACTIVITY.format("over by now"), "desired": 1}, "", id="nothing where all of them are there"
        ),
    ],
)
def test_why_machines_do_not_come_is_told_in_aws_s_words(
    scripted_world: Scripted, words: dict[str, Any], problem: str
) -> None:
    world, _ = scripted_world(**words)
    assert use(world).problem == problem


def test_a_machine_on_its_way_out_is_none_and_a_started_one_counts_since_its_start(scripted_world: Scripted) -> None:
    world, _ = scripted_world()
    (node,) = use(world).nodes
    assert node.name == f"n1-{world.cluster.namespace}"
    assert node.created_at == datetime.fromisoformat(LAUNCHED)


def test_orders_are_taken_back_only_when_no_machine_that_is_there_can_be_chosen_to_go(
    scripted_world: Scripted,
) -> None:
    world, server = scripted_world()
    world.scaler.set_target(POOL, 1)
    asked = [parse_qs(call.body.decode()) for call in server.calls if call.body]
    written = [words for words in asked if words["Action"][0].startswith("Set")]
    assert [words["Action"][0] for words in written] == ["SetInstanceProtection", "SetDesiredCapacity"]
    assert (written[0]["InstanceIds.member.1"], written[0]["ProtectedFromScaleIn"]) == (["i-1"], ["true"])
    assert written[1]["DesiredCapacity"] == ["1"]


@pytest.mark.parametrize(("wanted", "counted_down"), [(3, "false"), (2, "true")])
def test_a_machine_that_is_replaced_is_never_counted_down_which_a_group_at_its_minimum_refuses(
    scripted_world: Scripted, wanted: int, counted_down: str
) -> None:
    world, server = scripted_world()
    world.scaler.set_target(POOL, wanted, remove=[f"n1-{world.cluster.namespace}"])
    asked = [parse_qs(call.body.decode()) for call in server.calls if call.body]
    (ended,) = [words for words in asked if not words["Action"][0].startswith("Describe")]
    assert ended["Action"] == ["TerminateInstanceInAutoScalingGroup"]
    assert (ended["InstanceId"], ended["ShouldDecrementDesiredCapacity"]) == (["i-1"], [counted_down])


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        pytest.param(
            (400, "ValidationError", "New SetDesiredCapacity value 4 is above max value 3"),
            PoolRefused,
            "pool 'cloud/gpu' does not get 4 nodes: SetDesiredCapacity: ValidationError: New SetDesiredCapacity "
            "value 4 is above max value 3; see what it asks for; until then the pool stays as it is",
            id="a limit",
        ),
        pytest.param(
            (403, "AccessDenied", "not authorized to perform: autoscaling:SetDesiredCapacity"),
            AccessDenied,
            "AWS refused the credentials: SetDesiredCapacity: AccessDenied: not authorized to perform: "
            "autoscaling:SetDesiredCapacity; check the keys of Connection 'cloud_aws', and that its identity has the "
            "rights of docs/clusters.md",
            id="a right",
        ),
        pytest.param(
            (400, "ScalingActivityInProgress", "wait for it"),
            Unreachable,
            "AWS is unreachable: SetDesiredCapacity: ScalingActivityInProgress: wait for it",
            id="another change under way",
        ),
    ],
)
def test_what_aws_will_not_do_has_an_error_that_says_what_it_said(
    scripted_world: Scripted, answer: tuple[int, str, str], kind: type[Exception], told: str
) -> None:
    world, _ = scripted_world(fails={"SetDesiredCapacity": refusal(*answer)})
    with pytest.raises(kind) as raised:
        world.scaler.set_target(POOL, 4)
    assert str(raised.value) == told


def test_one_that_is_throttled_is_tried_again_and_told_as_out_of_reach(
    scripted_world: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    world, server = scripted_world(fails={"DescribeAutoScalingGroups": refusal(400, "Throttling", "Rate exceeded")})
    found = world.scaler.pools()[POOL]
    assert isinstance(found, Unreachable) and found.retry_helps
    assert "Throttling: Rate exceeded" in str(found)
    assert sum(b"DescribeAutoScalingGroups" in call.body for call in server.calls) == 4
