"""A managed node group of EKS, whose machines are those of its Auto Scaling group.

Its size is that of the Auto Scaling group, which EKS leaves to whoever scales: ``UpdateNodegroupConfig`` would let AWS
choose who goes. Here that is ours to choose: a machine leaves by name, the group's wish counted down with it, and all
others are protected from scale-in before the group is asked for less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spillway.clouds.aws import AwsClients, typed_answers
from spillway.clouds.base import Machine, NodeGroup
from spillway.errors import Missing, PoolRefused
from spillway.errors.counts import counted
from spillway.model import ScalableNode

_GOING = ("Terminating", "Detaching")
_PROTECTED_AT_ONCE = 50
"""The most machines that one request may name."""


class EksNodeGroup:
    """A ``NodeProvider``; ``pool`` is how messages call it."""

    def __init__(self, *, pool: str, cluster: str, node_group: str, clients: AwsClients) -> None:
        self._pool, self._cluster, self._node_group, self._clients = pool, cluster, node_group, clients

    def group(self, nodes: Sequence[ScalableNode]) -> NodeGroup:
        """The group; a machine that was started a moment ago may be missing among those that it tells."""
        with self._asking("an answer"):
            described = self._described()
            group = self._scaling_group(described)
            started = self._started([instance["InstanceId"] for instance in _present(group)])
            lacking = group["DesiredCapacity"] > len(started)
            return NodeGroup(
                wanted=group["DesiredCapacity"],
                machines=tuple(Machine(name=name, ordered_at=at) for name, at in sorted(started.items())),
                problem=self._problem(described, group) if lacking else "",
            )

    def resize(self, wanted: int, *, kept: Sequence[ScalableNode], leaving: Sequence[str]) -> None:
        with self._asking(counted(wanted, "node")):
            group = self._scaling_group(self._described())
            self._check_size(group, wanted)
            present = {instance["InstanceId"]: instance for instance in _present(group)}
            gone = [name for name in leaving if name in present]
            # A group at its minimum lets none go without another one in its place, even if more are asked for next.
            refilled = max(0, min(len(gone), wanted - group["DesiredCapacity"] + len(gone)))
            left = group["DesiredCapacity"] - len(gone) + refilled
            if wanted < left:
                self._protect(group, [one for name, one in present.items() if name not in gone])
            for number, name in enumerate(gone):
                self._clients["autoscaling"].terminate_instance_in_auto_scaling_group(
                    InstanceId=name, ShouldDecrementDesiredCapacity=number >= refilled
                )
            if wanted != left:
                self._clients["autoscaling"].set_desired_capacity(
                    AutoScalingGroupName=group["AutoScalingGroupName"], DesiredCapacity=wanted, HonorCooldown=False
                )

    def _asking(self, asked: str) -> Any:
        return typed_answers(self._pool, asked, self._clients.connection)

    def _described(self) -> Mapping[str, Any]:
        asked = {"clusterName": self._cluster, "nodegroupName": self._node_group}
        found: Mapping[str, Any] = self._clients["eks"].describe_nodegroup(**asked)["nodegroup"]
        return found

    def _scaling_group(self, described: Mapping[str, Any]) -> Mapping[str, Any]:
        names = [group["name"] for group in (described.get("resources") or {}).get("autoScalingGroups") or ()]
        found: Sequence[Mapping[str, Any]] = (
            self._clients["autoscaling"].describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"]
            if names
            else ()
        )
        if not found:
            where = f"node group '{self._node_group}' of EKS cluster '{self._cluster}'"
            raise Missing("Auto Scaling group", ", ".join(names) or "any", where, fix="wait until it is ACTIVE")
        return found[0]

    def _started(self, instances: Sequence[str]) -> Mapping[str, Any]:
        """When each machine was started; those that AWS has not heard of everywhere yet are left out."""
        if not instances:
            return {}
        pages = self._clients["ec2"].get_paginator("describe_instances")
        by_id = [{"Name": "instance-id", "Values": list(instances)}]
        return {
            instance["InstanceId"]: instance["LaunchTime"]
            for page in pages.paginate(Filters=by_id)
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        }

    def _problem(self, described: Mapping[str, Any], group: Mapping[str, Any]) -> str:
        """Why machines that were asked for do not come, as far as AWS says it."""
        issues = [f"{issue['code']}: {issue['message']}" for issue in (described.get("health") or {}).get("issues", ())]
        newest = self._clients["autoscaling"].describe_scaling_activities(
            AutoScalingGroupName=group["AutoScalingGroupName"], MaxRecords=1
        )["Activities"]
        failed = [one.get("StatusMessage", "no reason was given") for one in newest if one["StatusCode"] == "Failed"]
        return "; ".join([*issues, *failed])

    def _check_size(self, group: Mapping[str, Any], wanted: int) -> None:
        least, most = group["MinSize"], group["MaxSize"]
        if not least <= wanted <= most:
            raise PoolRefused(
                self._pool,
                counted(wanted, "node"),
                f"node group '{self._node_group}' has {least} to {most}",
                fix="set its minimum and maximum size in AWS to those of the pool in clusters.yaml",
            )

    def _protect(self, group: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]) -> None:
        """Keep the group from choosing any of these when less is asked for."""
        exposed = [
            instance["InstanceId"]
            for instance in instances
            if not instance["ProtectedFromScaleIn"] and instance["LifecycleState"] == "InService"
        ]
        for start in range(0, len(exposed), _PROTECTED_AT_ONCE):
            self._clients["autoscaling"].set_instance_protection(
                AutoScalingGroupName=group["AutoScalingGroupName"],
                InstanceIds=exposed[start : start + _PROTECTED_AT_ONCE],
                ProtectedFromScaleIn=True,
            )


def _present(group: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [instance for instance in group["Instances"] if not instance["LifecycleState"].startswith(_GOING)]
