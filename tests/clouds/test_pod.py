"""The pod of an attempt, its Secrets, and what a job may override in it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from spillway.clouds.base import ATTEMPT_LABEL, INSTALLATION_LABEL, OWNED_LABEL, RUN_LABEL
from spillway.clouds.pod import PodAccess, build_pod, grace_seconds, pull_secret, store_ca, store_secret
from spillway.errors import ConfigError, LaunchRefused
from spillway.model import Attempt, GpuShare
from spillway.testing.builders import INSTALLATION, attempt, job_spec, node_pool, onprem_cluster

IMAGE = "registry.onprem:5000/train/digits@sha256:" + "a" * 64
ACCESS = PodAccess(store_secret="spillway-store", pull_secret="spillway-registry")
CLUSTER = onprem_cluster(pools=(node_pool(node_selector={"spillway.dev/pool": "a100"}),))


def build(of: Attempt | None = None, **fields: Any) -> Mapping[str, Any]:
    defaults: dict[str, Any] = {
        "attempt": of or attempt(),
        "installation": INSTALLATION,
        "cluster": CLUSTER,
        "image": IMAGE,
        "environment": {"SPILLWAY_RUN": "digits-7f3a"},
        "access": ACCESS,
    }
    return build_pod(**(defaults | fields))


def build_with(overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    return build(attempt(job=job_spec(pod_overrides=overrides)))


def test_the_pod_of_an_attempt_is_always_the_same() -> None:
    of = attempt(
        job=job_spec(
            command=("python", "-m", "digits", "--lr", "0.1"),
            gpus_per_node=2,
            cpu_cores=1.5,
            memory_gib=4,
        )
    )
    told = {"SPILLWAY_RUN": "digits-7f3a", "EPOCHS": "3"}
    assert build(of, environment=told) == build(of, environment=told)
    assert build(of, environment=told) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "digits-7f3a-1",
            "namespace": "training",
            "labels": {
                ATTEMPT_LABEL: "digits-7f3a-1",
                RUN_LABEL: "digits-7f3a",
                INSTALLATION_LABEL: INSTALLATION,
                OWNED_LABEL: "true",
                "app.kubernetes.io/managed-by": "spillway",
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": {"spillway.dev/pool": "a100"},
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "cloud.google.com/gke-spot", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Exists", "effect": "NoSchedule"},
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 30,
                },
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 30,
                },
            ],
            "imagePullSecrets": [{"name": "spillway-registry"}],
            "containers": [
                {
                    "name": "trainer",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "args": ["python", "-m", "digits", "--lr", "0.1"],
                    "env": [{"name": "EPOCHS", "value": "3"}, {"name": "SPILLWAY_RUN", "value": "digits-7f3a"}],
                    "envFrom": [{"secretRef": {"name": "spillway-store"}}],
                    "resources": {
                        "requests": {"cpu": "1500m", "memory": "4096Mi", "nvidia.com/gpu": "2"},
                        "limits": {"nvidia.com/gpu": "2"},
                    },
                    "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                }
            ],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2048Mi"}}],
        },
    }


def test_the_nodes_that_a_pod_prefers_are_a_wish_beside_those_of_its_job() -> None:
    def wish(node: str) -> dict[str, Any]:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        return {"weight": 100, "preference": {"matchFields": [field]}}

    def wishes(*of: Any) -> dict[str, Any]:
        return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list(of)}}

    assert build(prefers=("n1", "n2"))["spec"]["affinity"] == wishes(wish("n1"), wish("n2"))
    own = {"weight": 1, "preference": {"matchExpressions": [{"key": "nvlink", "operator": "Exists"}]}}
    both = build(attempt(job=job_spec(pod_overrides={"spec": {"affinity": wishes(own)}})), prefers=("n1",))
    assert both["spec"]["affinity"] == wishes(wish("n1"), own)
    none = build(attempt(job=job_spec(pod_overrides={"spec": {"affinity": None}})), prefers=("n1",))
    assert "affinity" not in none["spec"] and "affinity" not in build()["spec"]


def test_no_shell_stands_between_the_stop_signal_and_the_trainer() -> None:
    (trainer,) = build()["spec"]["containers"]
    assert "command" not in trainer
    assert trainer["args"] == ["digits"]


def test_a_pod_with_a_cache_has_its_variables_from_a_secret_of_the_caches() -> None:
    (trainer,) = build(access=replace(ACCESS, cache_secret="cache"))["spec"]["containers"]
    assert trainer["envFrom"] == [{"secretRef": {"name": "spillway-store"}}, {"secretRef": {"name": "cache"}}]


@pytest.mark.parametrize("what", ["store", "cache"])
def test_the_certificates_that_vouch_for_a_store_are_where_the_trainer_looks_for_them(what: str) -> None:
    access = {"store": replace(ACCESS, store_ca="ours"), "cache": replace(ACCESS, cache_ca="ours")}
    spec = build(access=access[what])["spec"]
    (trainer,) = spec["containers"]
    told = {entry["name"]: entry["value"] for entry in trainer["env"] if entry["name"].endswith("_CA_FILE")}
    ((name, path),) = told.items()
    folder, _, file = path.rpartition("/")
    assert name == f"SPILLWAY_{what.upper()}_CA_FILE"
    assert {"name": f"{what}-ca", "mountPath": folder, "readOnly": True} in trainer["volumeMounts"]
    assert {"name": f"{what}-ca", "configMap": {"name": "ours"}} in spec["volumes"]
    assert store_ca("ours", "training", "PEM", installation=INSTALLATION) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "ours",
            "namespace": "training",
            "labels": {INSTALLATION_LABEL: INSTALLATION, "app.kubernetes.io/managed-by": "spillway"},
        },
        "data": {file: "PEM"},
    }


@pytest.mark.parametrize(
    ("declared", "flush", "seconds"),
    [(30.0, None, 30), (30.0, 5.0, 30), (30.0, 25.5, 36), (0.5, None, 1), (600.0, 30.0, 600)],
    ids=["never measured", "enough", "raised to the flush and its margin", "rounded up", "longer stays"],
)
def test_the_grace_is_never_shorter_than_a_checkpoint(declared: float, flush: float | None, seconds: int) -> None:
    measured = None if flush is None else timedelta(seconds=flush)
    assert grace_seconds(timedelta(seconds=declared), measured) == seconds
    pod = build(attempt(job=job_spec(grace=timedelta(seconds=declared))), measured_flush=measured)
    assert pod["spec"]["terminationGracePeriodSeconds"] == seconds


@pytest.mark.parametrize(
    "image",
    ["train:v1", "registry/train:v1", "registry/train@sha256:abc", "train@sha256:" + "a" * 64, IMAGE.upper()],
)
def test_an_image_that_is_not_pinned_is_refused(image: str) -> None:
    with pytest.raises(LaunchRefused, match="is not pinned; expected host/repository@sha256"):
        build(image=image)


@pytest.mark.parametrize("run", ["Digits", "d_1", "-d", "d" * 62, "ü"])
def test_a_run_that_cannot_name_a_pod_is_refused(run: str) -> None:
    with pytest.raises(LaunchRefused, match="cannot name a pod: expected at most 63"):
        build(attempt(run=run))


@pytest.mark.parametrize("run", ["7b", "d" * 60])
def test_a_run_that_cannot_name_the_pods_of_a_gang_is_refused(run: str) -> None:
    build(attempt(run=run))
    with pytest.raises(LaunchRefused, match="cannot name a pod: expected at most 61"):
        build(attempt(run=run, job=job_spec(nodes=2)))


def test_overrides_merge_into_what_the_platform_built() -> None:
    pod = build_with(
        {
            "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "x"}},
            "spec": {
                "priorityClassName": "high",
                "nodeSelector": {"zone": "a"},
                "tolerations": [{"key": "team", "operator": "Exists"}],
                "automountServiceAccountToken": None,
                "containers": [
                    {
                        "name": "trainer",
                        "env": [{"name": "DEBUG", "value": "1"}],
                        "resources": {"limits": {"memory": "8Gi"}},
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    },
                    {"name": "exporter", "image": "exporter:1"},
                ],
                "volumes": [
                    {"name": "data", "hostPath": {"path": "/data"}},
                    {"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}},
                ],
            },
        }
    )
    spec = pod["spec"]
    trainer, exporter = spec["containers"]
    plain = build()
    assert pod["metadata"]["labels"] == {**plain["metadata"]["labels"], "team": "vision"}
    assert pod["metadata"]["annotations"] == {"note": "x"}
    assert spec["priorityClassName"] == "high"
    assert spec["nodeSelector"] == {"spillway.dev/pool": "a100", "zone": "a"}
    assert spec["tolerations"] == [*plain["spec"]["tolerations"], {"key": "team", "operator": "Exists"}]
    assert "automountServiceAccountToken" not in spec
    assert trainer["env"] == [{"name": "SPILLWAY_RUN", "value": "digits-7f3a"}, {"name": "DEBUG", "value": "1"}]
    assert trainer["resources"]["limits"] == {"nvidia.com/gpu": "1", "memory": "8Gi"}
    assert [mount["mountPath"] for mount in trainer["volumeMounts"]] == ["/dev/shm", "/data"]
    assert exporter == {"name": "exporter", "image": "exporter:1"}
    assert spec["volumes"] == [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "data", "hostPath": {"path": "/data"}},
    ]


def trainer(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "trainer", **fields}]}}


FORBIDDEN = {
    "kind": ({"kind": "Job"}, "kind"),
    "name": ({"metadata": {"name": "mine"}}, "metadata.name"),
    "namespace": ({"metadata": {"namespace": "kube-system"}}, "metadata.namespace"),
    "attempt label": ({"metadata": {"labels": {ATTEMPT_LABEL: "other-1"}}}, f"metadata.labels[{ATTEMPT_LABEL}]"),
    "label removed": ({"metadata": {"labels": {OWNED_LABEL: None}}}, f"metadata.labels[{OWNED_LABEL}]"),
    "another installation": (
        {"metadata": {"labels": {INSTALLATION_LABEL: "theirs"}}},
        f"metadata.labels[{INSTALLATION_LABEL}]",
    ),
    "all labels removed": ({"metadata": {"labels": None}}, f"metadata.labels[{ATTEMPT_LABEL}]"),
    "restart policy": ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy"),
    "node by name": ({"spec": {"nodeName": "a100-0"}}, "spec.nodeName"),
    "another pool": ({"spec": {"nodeSelector": {"spillway.dev/pool": "h100"}}}, "spec.nodeSelector[spillway.dev/pool]"),
    "image": (trainer(image="other:latest"), "spec.containers[trainer].image"),
    "trainer removed": ({"spec": {"containers": None}}, ""),
    "variable of the platform": (
        trainer(env=[{"name": "SPILLWAY_RUN", "value": "other"}]),
        "spec.containers[trainer].env[SPILLWAY_RUN]",
    ),
    "more GPUs": (trainer(resources={"limits": {"nvidia.com/gpu": 8}}), "spec.containers[].resources[nvidia.com/gpu]"),
    "a second container with GPUs": (
        {"spec": {"containers": [{"name": "b", "image": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}},
        "spec.containers[].resources[nvidia.com/gpu]",
    ),
    "more cores": (trainer(resources={"requests": {"cpu": "32"}}), "spec.containers[].resources[cpu]"),
    "more memory": (trainer(resources={"requests": {"memory": "100Gi"}}), "spec.containers[].resources[memory]"),
    "fewer cores, of which nobody would be told": (
        trainer(resources={"requests": {"cpu": None}}),
        "spec.containers[].resources[cpu]",
    ),
    "a second container with cores": (
        {"spec": {"containers": [{"name": "b", "image": "b", "resources": {"limits": {"cpu": 1}}}]}},
        "spec.containers[].resources[cpu]",
    ),
    "an earlier container with more cores": (
        {"spec": {"initContainers": [{"name": "b", "image": "b", "resources": {"requests": {"cpu": 2}}}]}},
        "spec.containers[].resources[cpu]",
    ),
    "cores of the whole pod": ({"spec": {"resources": {"requests": {"cpu": "32"}}}}, "spec.resources"),
    "shorter grace": ({"spec": {"terminationGracePeriodSeconds": 5}}, "spec.terminationGracePeriodSeconds"),
    "no grace": ({"spec": {"terminationGracePeriodSeconds": None}}, "spec.terminationGracePeriodSeconds"),
    "metadata as text": ({"metadata": "x"}, "metadata"),
    "containers as text": ({"spec": {"containers": "x"}}, "spec.containers"),
    "a container as text": ({"spec": {"containers": ["x"]}}, "spec.containers"),
    "the spec as a list": ({"spec": []}, "spec"),
}


def test_a_part_of_a_gpu_is_asked_for_by_the_resource_of_the_pool_and_no_override_asks_for_more() -> None:
    part = "nvidia.com/mig-3g.40gb"
    pool = node_pool(gpu_share=GpuShare(resource=part, per_gpu=2, memory_gib=40))
    half = attempt(job=job_spec(gpu_fraction=Decimal("0.5")))
    [container] = build(half, cluster=onprem_cluster(pools=(pool,)))["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1000m", "memory": "1024Mi", part: "1"},
        "limits": {part: "1"},
    }
    for resource, count in ((part, "2"), ("nvidia.com/gpu", "1")):
        greedy = trainer(resources={"limits": {resource: count}})
        job = job_spec(gpu_fraction=Decimal("0.5"), pod_overrides=greedy)
        with pytest.raises(ConfigError, match=resource):
            build(attempt(job=job), cluster=onprem_cluster(pools=(pool,)))


def test_work_without_gpus_asks_for_none_and_keeps_off_nodes_that_have_some() -> None:
    spec = build(attempt(job=job_spec(gpus_per_node=0, cpu_cores=4)))["spec"]
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "4000m", "memory": "1024Mi"}, "limits": {}}
    assert "nvidia.com/gpu" not in [toleration["key"] for toleration in spec["tolerations"]]


@pytest.mark.parametrize(("overrides", "field"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_an_override_of_what_the_platform_relies_on_is_refused_by_name(
    overrides: Mapping[str, Any], field: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build_with(overrides)
    assert (caught.value.file, caught.value.path) == ("job 'digits'", f"pod_overrides.{field}".rstrip("."))


@pytest.mark.parametrize("shape", [{"spec": {"initContainers": "x"}}, {"spec": {"initContainers": [{"resources": 7}]}}])
def test_an_override_of_no_possible_shape_is_refused(shape: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match="pod_overrides: expected the shape of a Pod"):
        build_with(shape)


def test_containers_share_what_the_job_declares_and_more_is_to_be_declared() -> None:
    ours = {"name": "trainer", "resources": {"requests": {"cpu": "900m"}, "limits": {"cpu": "64"}}}
    theirs = {"name": "exporter", "image": "exporter:1", "resources": {"requests": {"cpu": "100m"}}}
    assert build_with({"spec": {"containers": [ours, theirs]}})["spec"]["containers"][1] == theirs
    with pytest.raises(ConfigError, match=r"got '1100m'.* to '1000m' and relies on it; declare cpu_cores"):
        build_with({"spec": {"containers": [theirs]}})


def test_a_longer_grace_may_be_asked_for() -> None:
    pod = build_with({"spec": {"terminationGracePeriodSeconds": 900}})
    assert pod["spec"]["terminationGracePeriodSeconds"] == 900


def test_the_pull_secret_is_what_nodes_read() -> None:
    secret = pull_secret("r", "training", host="registry:5000", username="u", password="p", installation=INSTALLATION)
    assert (secret["kind"], secret["type"]) == ("Secret", "kubernetes.io/dockerconfigjson")
    assert secret["metadata"] == {
        "name": "r",
        "namespace": "training",
        "labels": {INSTALLATION_LABEL: INSTALLATION, "app.kubernetes.io/managed-by": "spillway"},
    }
    assert json.loads(base64.b64decode(secret["data"][".dockerconfigjson"])) == {
        "auths": {
            "registry:5000": {"username": "u", "password": "p", "auth": base64.b64encode(b"u:p").decode()},
        }
    }


def test_the_store_secret_holds_a_key_for_each_variable() -> None:
    secret = store_secret("s", "training", {"SPILLWAY_STORE_ACCESS_KEY": "ä"}, installation=INSTALLATION)
    assert (secret["type"], secret["metadata"]["name"]) == ("Opaque", "s")
    assert secret["data"] == {"SPILLWAY_STORE_ACCESS_KEY": base64.b64encode("ä".encode()).decode()}
