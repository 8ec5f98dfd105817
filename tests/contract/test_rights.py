"""Which rights an identity lacks, as an API tells it, and that the documented roles are enough."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
import yaml
from kubernetes import client

from spillway.clouds.base import ATTEMPT_LABEL, INSTALLATION_LABEL, OWNED_LABEL
from spillway.clouds.facts import TRAINER_CONTAINER
from spillway.clouds.gang import gang_of
from spillway.clouds.kubernetes import KubernetesCluster, client_from_kubeconfig
from spillway.clouds.rights import RIGHTS
from spillway.model import PodPhase
from spillway.sandbox.settings import PROJECT
from spillway.testing.builders import onprem_cluster
from spillway.testing.kube_space import Space
from spillway.testing.polling import eventually
from spillway.testing.runnable_image import SHELL

ACCOUNT = "spillway"


def documented_roles(namespace: str) -> list[dict[str, Any]]:
    """The manifest of docs/clusters.md for this namespace."""
    blocks = (PROJECT / "docs" / "clusters.md").read_text().split("```yaml\n")[1:]
    manifest, _ = [text for block in blocks if "kind: ClusterRole" in (text := block.partition("```")[0])]
    roles = list(yaml.safe_load_all(manifest))
    for role in roles:
        role["metadata"]["name"] = namespace
        if role["kind"] == "Role":
            role["metadata"]["namespace"] = namespace
    return roles


def cluster_of(space: Space, kubeconfig: Any) -> KubernetesCluster:
    declared = dataclasses.replace(onprem_cluster(), namespace=space.name)
    return KubernetesCluster(cluster=declared, api_client=client_from_kubeconfig(kubeconfig))


def test_an_administrator_lacks_nothing(space: Space, access: Any) -> None:
    assert cluster_of(space, access.kubeconfig).missing_rights() == ()


@pytest.mark.real_k8s
@pytest.mark.parametrize("access", ["real"], indirect=True)
def test_the_documented_roles_are_enough_for_all_that_is_done(space: Space, access: Any) -> None:
    space.core.create_namespaced_service_account(space.name, {"metadata": {"name": ACCOUNT}})
    asked = {"spec": {"audiences": []}}
    token = space.core.create_namespaced_service_account_token(ACCOUNT, space.name, asked).status.token
    user = {"name": access.kubeconfig["users"][0]["name"], "user": {"token": token}}
    ours = cluster_of(space, {**access.kubeconfig, "users": [user]})
    assert ours.missing_rights() == RIGHTS

    rbac = client.RbacAuthorizationV1Api(space.api_client)
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": space.name}
    general, own = documented_roles(space.name)
    binding = {"metadata": {"name": space.name}, "subjects": [subject]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "name": space.name}
    rbac.create_cluster_role(general)
    rbac.create_cluster_role_binding({**binding, "roleRef": {**reference, "kind": "ClusterRole"}})
    try:
        rbac.create_namespaced_role(space.name, own)
        rbac.create_namespaced_role_binding(space.name, {**binding, "roleRef": {**reference, "kind": "Role"}})
        assert ours.missing_rights() == ()
        use(ours, space)
    finally:
        rbac.delete_cluster_role_binding(space.name)
        rbac.delete_cluster_role(space.name)


def pod(space: Space, name: str) -> dict[str, Any]:
    body = space.pod(name, *SHELL, "echo hello", env=[])
    body["metadata"]["labels"] = {ATTEMPT_LABEL: name, OWNED_LABEL: "true", INSTALLATION_LABEL: "here"}
    body["spec"]["containers"][0]["name"] = TRAINER_CONTAINER
    return body


def use(cluster: KubernetesCluster, space: Space) -> None:
    """Everything that is asked of a cluster; what its API forbids is an error."""
    assert cluster.namespace_exists()
    cluster.describe()
    for kind in ("Secret", "ConfigMap"):
        for _ in ("created", "updated"):
            labels = {INSTALLATION_LABEL: "here"}
            cluster.apply([{"apiVersion": "v1", "kind": kind, "metadata": {"name": "any", "labels": labels}}])
        assert cluster.applied("here") == ((kind, "any"),)
        cluster.withdraw(kind, "any")
    for launched in (pod(space, "one"), gang_of(pod(space, "gang"), 2)):
        name = launched["metadata"]["name"]
        for _ in ("launched", "adopted"):
            assert cluster.launch(launched).name == name
        eventually(lambda name=name: cluster.state(name).phase, PodPhase.SUCCEEDED.__eq__)
        assert cluster.logs(name).lines == ("hello",)
        assert name in {pod.name for pod in cluster.owned("here")}
        cluster.stop(name, grace=timedelta(seconds=1))
        eventually(lambda name=name: cluster.state(name).phase, PodPhase.GONE.__eq__)
