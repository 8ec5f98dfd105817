"""Pods that really run, lost in every way that the sandbox can lose them, and what they are judged to be."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.clouds.kubernetes import KubernetesCluster, client_from_kubeconfig
from spillway.clouds.pod import PodAccess, build_pod, pull_secret, store_secret
from spillway.handover import may_hand_over
from spillway.losses import PodVerdict, judge
from spillway.model import PodPhase, PodState, VerdictKind
from spillway.registries.base import Manifest
from spillway.registries.digest import digest_of
from spillway.testing.builders import INSTALLATION, attempt, job_spec, node_pool, onprem_cluster
from spillway.testing.images import OCI_LAYER, OCI_MANIFEST, image_manifest
from spillway.testing.kube_server import KubeCluster, start_cluster
from spillway.testing.polling import eventually
from spillway.testing.registry_server import RegistryServer

REPOSITORY = "tests/endings"
GRACE = timedelta(seconds=20)
MARGIN = timedelta(seconds=2)
LIMIT = timedelta(minutes=5)
PROGRAM = """
import os, signal, sys, time

def stop(number, frame):
    print("committed by process", os.getpid(), flush=True)
    sys.exit(75)

signal.signal(signal.SIGTERM, stop)
print("trains with", os.environ["SPILLWAY_STORE_ACCESS_KEY"], os.environ["EPOCHS"], flush=True)
if "JOB_COMPLETION_INDEX" in os.environ:
    print("rank", os.environ["JOB_COMPLETION_INDEX"], "of", os.environ["SPILLWAY_NODES"], flush=True)
if sys.argv[1] == "fail":
    sys.exit(1)
for number in range(int(sys.argv[2])):
    print("step", number, flush=True)
    time.sleep(0.02)
if sys.argv[1] == "wait":
    while True:
        time.sleep(0.1)
"""


def put_program(registry: RegistryServer) -> str:
    """Store an image that runs PROGRAM, and give its digest."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("opt/program.py")
        entry.size = len(PROGRAM)
        archive.addfile(entry, io.BytesIO(PROGRAM.encode()))
    layer = packed.getvalue()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/usr/bin/python3", "/opt/program.py"]},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer)]},
        }
    ).encode()
    client = registry.client()
    for blob in (config, layer):
        client.put_blob(REPOSITORY, digest_of(blob), iter([blob]), size_bytes=len(blob))
    body = image_manifest(config=config, layers=[layer], layer_type=OCI_LAYER.removesuffix("+gzip"))
    manifest = Manifest(digest=digest_of(body), media_type=OCI_MANIFEST, body=body)
    client.put_manifest(REPOSITORY, manifest.digest, manifest)
    return manifest.digest


class Site:
    """A cluster whose nodes a test may lose, and the registry beside it."""

    def __init__(self, kube: KubeCluster, registry: RegistryServer) -> None:
        self.kube, self.registry = kube, registry
        pool = node_pool(gpus_per_node=2, node_selector={"spillway.dev/pool": "a100"})
        self.cluster = onprem_cluster(namespace="default", pools=(pool,))
        self.client = KubernetesCluster(cluster=self.cluster, api_client=client_from_kubeconfig(kube.kubeconfig))
        self.digest = put_program(registry)

    def launch(self, run: str, *command: str, digest: str | None = None, node: str = "steady", **job: Any) -> str:
        """Start the program as the run's first attempt on that node; gives the pod's name."""
        host = f"127.0.0.1:{self.registry.port}"
        self.client.apply(
            [
                store_secret("store", "default", {"SPILLWAY_STORE_ACCESS_KEY": "AKPODS"}, installation=INSTALLATION),
                pull_secret(
                    "registry",
                    "default",
                    host=host,
                    username=self.registry.username,
                    password=self.registry.password,
                    installation=INSTALLATION,
                ),
            ]
        )
        where = {"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}}
        spec = {"grace": GRACE, "pod_overrides": where, **job}
        pod = build_pod(
            attempt=attempt(run=run, job=job_spec(command=command, **spec)),
            installation=INSTALLATION,
            cluster=self.cluster,
            image=f"{host}/{REPOSITORY}@{digest or self.digest}",
            environment={"EPOCHS": "3"},
            access=PodAccess(store_secret="store", pull_secret="registry"),
        )
        return self.client.launch(pod).name

    def verdict(self, name: str) -> PodVerdict:
        return judge(self.client.state(name), now=datetime.now(UTC), startup_limit=LIMIT, node_margin=MARGIN)

    def ending(self, name: str) -> tuple[PodVerdict, PodState]:
        """The first verdict that is an ending, and the pod once it may be handed over."""
        verdict = eventually(lambda: self.verdict(name), lambda seen: not seen.watch_on)
        pod = eventually(
            lambda: self.client.state(name),
            lambda seen: may_hand_over(seen, now=datetime.now(UTC), node_margin=MARGIN),
        )
        return verdict, pod

    def wait_for_line(self, name: str, text: str) -> None:
        eventually(lambda: self.client.logs(name).lines, lambda lines: any(text in line for line in lines))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, registries: Mapping[str, RegistryServer]) -> Iterator[Site]:
    """A cluster of its own with the node ``steady``; tests that lose a node add it first."""
    kube = start_cluster("endings", tmp_path_factory.mktemp("endings"))
    try:
        kube.add_agent("steady", gpus=8)
        yield Site(kube, registries["onprem"])
    finally:
        kube.stop()


def test_a_training_that_ends_well_succeeds_and_every_line_is_shown_once(site: Site) -> None:
    name = site.launch("well", "work", "60")
    lines: list[str] = []
    since = None
    while True:
        pod = site.client.state(name)
        found = site.client.logs(name, since=since)
        lines, since = [*lines, *found.lines], found.until
        if pod.phase is PodPhase.SUCCEEDED:
            break
        assert site.verdict(name).watch_on or site.verdict(name).kind is VerdictKind.SUCCEEDED
        time.sleep(0.05)
    assert lines == ["trains with AKPODS 3", *(f"step {number}" for number in range(60))]
    assert site.verdict(name) == PodVerdict(kind=VerdictKind.SUCCEEDED, reason="the trainer ended with exit code 0")


def test_the_pods_of_a_gang_know_their_rank_and_succeed_together(site: Site) -> None:
    name = site.launch("gang", "work", "2", nodes=2)
    verdict, pod = site.ending(name)
    assert verdict.kind is VerdictKind.SUCCEEDED
    assert pod.phase is PodPhase.SUCCEEDED
    assert site.client.logs(name).lines == ("trains with AKPODS 3", "rank 0 of 2", "step 0", "step 1")
    assert site.client.logs(name, tail=1).lines == ("step 1",)


def test_the_stop_signal_reaches_the_program_itself_which_commits(site: Site) -> None:
    name = site.launch("evicted", "wait", "1")
    site.wait_for_line(name, "step 0")
    site.kube.drill("steady", f"/evict/default/{name}")
    verdict, pod = site.ending(name)
    assert verdict.kind is VerdictKind.PREEMPTED
    assert (pod.reason, pod.exit_code) == ("Evicted", 75)
    assert "committed by process" in site.client.logs(name).lines[-1]


def test_a_program_that_fails_is_at_fault_itself(site: Site) -> None:
    verdict, pod = site.ending(site.launch("fails", "fail"))
    assert verdict.kind is VerdictKind.PROGRAM_ERROR
    assert verdict.reason.startswith("the trainer ended with exit code 1")
    assert pod.exit_code == 1


def test_a_pod_that_a_person_deletes_is_told_from_every_loss(site: Site) -> None:
    name = site.launch("deleted", "wait", "1")
    site.wait_for_line(name, "step 0")
    site.client.stop(name, grace=GRACE)
    verdict, pod = site.ending(name)
    assert verdict.kind is VerdictKind.DELETED_BY_PERSON, (verdict, pod)
    assert pod.phase is PodPhase.GONE or pod.exit_code is not None


def test_an_image_that_the_registry_does_not_have_is_named_at_once(site: Site) -> None:
    name = site.launch("missing", "work", "1", digest="sha256:" + "0" * 64)
    verdict = eventually(lambda: site.verdict(name), lambda seen: not seen.watch_on)
    site.client.stop(name, grace=GRACE)
    assert verdict.kind is VerdictKind.IMAGE_MISSING
    host = f"127.0.0.1:{site.registry.port}"
    for part in (f"image '{host}/{REPOSITORY}@sha256:{'0' * 64}'", f"registry {host}", "cluster 'onprem'", "not found"):
        assert part in verdict.reason


def test_a_registry_that_is_down_for_a_while_only_delays_the_start(site: Site) -> None:
    with site.registry.outage():
        name = site.launch("delayed", "work", "1")
        waiting = eventually(lambda: site.client.state(name), lambda pod: "Pull" in pod.container_reason)
        assert site.verdict(name).kind is VerdictKind.STARTING, waiting
    verdict, _ = site.ending(name)
    assert verdict.kind is VerdictKind.SUCCEEDED


def test_a_spot_notice_lets_the_program_commit_and_is_a_preemption(site: Site) -> None:
    site.kube.add_agent("spot")
    name = site.launch("spot", "wait", "1", node="spot")
    site.wait_for_line(name, "step 0")
    assert site.kube.drill("spot", "/shutdown") == [name]
    verdict, pod = site.ending(name)
    assert verdict.kind is VerdictKind.PREEMPTED
    assert (pod.reason, pod.exit_code, pod.node_ready) == ("Terminated", 75, False)
    assert "committed by process" in site.client.logs(name).lines[-1]


def test_a_machine_that_falls_silent_is_a_loss_and_is_handed_over_only_after_its_grace(site: Site) -> None:
    agent = site.kube.add_agent("lost")
    name = site.launch("lost", "wait", "1", node="lost", grace=timedelta(seconds=3))
    site.wait_for_line(name, "step 0")
    agent.kill()
    silent = eventually(lambda: site.client.state(name), lambda pod: pod.node_ready is False)
    assert silent.node_changed_at is not None
    soon = silent.node_changed_at + timedelta(seconds=1)
    assert judge(silent, now=soon, startup_limit=LIMIT, node_margin=MARGIN).kind is VerdictKind.RUNNING
    assert not may_hand_over(silent, now=soon, node_margin=MARGIN)
    verdict, pod = site.ending(name)
    assert verdict.preempted, verdict
    assert (pod.phase, pod.node_ready) == (PodPhase.RUNNING, False)
    assert datetime.now(UTC) - silent.node_changed_at > timedelta(seconds=3) + MARGIN
