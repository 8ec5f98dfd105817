"""AWS as a process of this machine: moto's server, without anything in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from spillway.clouds.aws import AwsClients
from spillway.connections import ConnectionSpec
from spillway.sandbox.kube.process import python_environment
from spillway.sandbox.process import ProcessSpec, http_answers
from spillway.testing.ports import free_port
from spillway.testing.processes import running

REGION = "eu-central-1"
_IMAGE = "ami-12c6146b"
"""One that moto begins with."""


@dataclass(kw_only=True)
class AwsServer:
    """A running server."""

    url: str

    def connection(self, **fields: Any) -> ConnectionSpec:
        """A Connection that leads to it."""
        extra = {"endpoint_url": self.url, "region_name": REGION}
        known: dict[str, Any] = {"login": "key", "password": "secret", "extra": extra}
        return ConnectionSpec(conn_id="cloud_aws", conn_type="aws", **known | fields)

    def client(self, service: str) -> Any:
        return self._clients[service]

    @cached_property
    def _clients(self) -> AwsClients:
        return AwsClients(self.connection())

    def add_node_group(self, cluster: str, name: str, *, machines: int, most: int) -> str:
        """A managed node group and its Auto Scaling group, which AWS makes itself; gives the name of the latter."""
        eks, scaling = self.client("eks"), self.client("autoscaling")
        role, subnets = "arn:aws:iam::123456789012:role/nodes", ["subnet-1"]
        eks.create_cluster(name=cluster, roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
        made = eks.create_nodegroup(clusterName=cluster, nodegroupName=name, nodeRole=role, subnets=subnets)
        group = str(made["nodegroup"]["resources"]["autoScalingGroups"][0]["name"])
        scaling.create_launch_configuration(LaunchConfigurationName=group, ImageId=_IMAGE, InstanceType="p5.48xlarge")
        scaling.create_auto_scaling_group(
            AutoScalingGroupName=group,
            LaunchConfigurationName=group,
            MinSize=0,
            MaxSize=most,
            DesiredCapacity=machines,
            AvailabilityZones=[f"{REGION}a"],
        )
        return group

    def scaling_group(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.client("autoscaling").describe_auto_scaling_groups(
            AutoScalingGroupNames=[name]
        )["AutoScalingGroups"][0]
        return found


@contextmanager
def aws_server(directory: Path) -> Iterator[AwsServer]:
    """The server on a free port, for as long as the block lasts."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    spec = ProcessSpec(
        name="aws",
        argv=(sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)),
        environment=python_environment(),
        working_directory=directory,
        ready=lambda: http_answers(f"{url}/moto-api/"),
        ports=(port,),
    )
    with running(spec, directory / "aws.log"):
        yield AwsServer(url=url)
