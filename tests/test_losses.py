"""Every shape in which a pod ends, and the class that it belongs to."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.losses import PodVerdict, judge
from spillway.model import PodPhase, PodState, VerdictKind

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
GRACE = timedelta(seconds=60)
MARGIN = timedelta(seconds=40)
LIMIT = timedelta(minutes=10)
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
IMAGE = "registry.cloud:5000/train/digits@sha256:" + "429" + "0" * 61

RUNNING = PodState(
    name="digits-1",
    phase=PodPhase.RUNNING,
    cluster="cloud",
    image=IMAGE,
    uid="u-1",
    node="gpu-1",
    node_exists=True,
    node_ready=True,
    node_changed_at=NOW - timedelta(days=3),
    scheduled=True,
    grace=GRACE,
    created_at=NOW - timedelta(hours=2),
    started_at=NOW - timedelta(hours=1),
)
FAILED = replace(RUNNING, phase=PodPhase.FAILED)
PENDING = replace(RUNNING, phase=PodPhase.PENDING, created_at=NOW - timedelta(minutes=1), started_at=None)
GONE = replace(RUNNING, phase=PodPhase.GONE)
PULLING = replace(PENDING, container_reason="ErrImagePull")


def verdict(pod: PodState, *, unreachable_since: datetime | None = None) -> PodVerdict:
    return judge(pod, now=NOW, startup_limit=LIMIT, node_margin=MARGIN, unreachable_since=unreachable_since)


def silent_for(pod: PodState, silence: timedelta) -> PodState:
    return replace(pod, node_ready=False, node_changed_at=NOW - silence)


PREEMPTIONS = {
    "spot notice, graceful node shutdown": replace(FAILED, reason="Terminated", message=SHUTDOWN, exit_code=143),
    "the same without a container status": replace(FAILED, reason="Terminated", message=SHUTDOWN),
    "older kubelet": replace(FAILED, reason="Shutdown", message="Node is shutting, evicting pods"),
    "rejected by a node that shuts down": replace(FAILED, reason="NodeShutdown"),
    "a new reason with the known message": replace(FAILED, reason="Reclaimed", message=SHUTDOWN, exit_code=137),
    "node pressure": replace(FAILED, reason="Evicted", message="The node was low on resource: memory.", exit_code=143),
    "evicted without a container status": replace(FAILED, reason="Evicted"),
    "node lost, old controller": replace(FAILED, reason="NodeLost"),
    "taint manager": replace(RUNNING, disruption="DeletionByTaintManager", deleted_at=NOW),
    "eviction API": replace(FAILED, disruption="EvictionByEvictionAPI", exit_code=1),
    "scheduler preemption": replace(FAILED, disruption="PreemptionByScheduler", exit_code=137),
    "disruption of a kind nobody heard of": replace(FAILED, disruption="SomethingNew", exit_code=1),
    "pod and node gone": replace(GONE, node_exists=False, node_ready=None),
    "pod gone, node not Ready": replace(GONE, node_ready=False),
    "pod gone, node being drained": replace(GONE, node_deleted=True),
    "pod gone, its node unknown": replace(GONE, node_exists=None, node_ready=None),
    "deleted while its node is drained": replace(RUNNING, deleted_at=NOW, node_deleted=True),
    "143 while the node is being deleted": replace(FAILED, exit_code=143, node_deleted=True),
    "143 and nothing else": replace(FAILED, exit_code=143),
    "137 on a node that is gone": replace(FAILED, exit_code=137, node_exists=False, node_ready=None),
    "the trainer stopped and committed": replace(FAILED, exit_code=75),
    "its site's store stayed unreachable": replace(FAILED, exit_code=74, container_reason="Error"),
    "lost container after a reboot": replace(FAILED, exit_code=137, container_reason="ContainerStatusUnknown"),
    "no device left on the node": replace(FAILED, reason="UnexpectedAdmissionError"),
    "image pull interrupted by the shutdown": replace(PULLING, disruption="TerminationByKubelet"),
    "failed during the pull, never started": replace(FAILED, started_at=None),
}


@pytest.mark.parametrize("pod", PREEMPTIONS.values(), ids=PREEMPTIONS)
def test_what_the_platform_takes_away_is_a_preemption(pod: PodState) -> None:
    found = verdict(pod)
    assert found.kind is VerdictKind.PREEMPTED, found
    assert found.preempted
    assert found.reason


def test_a_trainer_that_stopped_is_told_with_what_it_says_of_its_steps() -> None:
    said = '{"outcome": "preempted", "last_step": 7, "durable_step": 5, "error": null}'
    reason = verdict(replace(FAILED, exit_code=75, container_message=said)).reason
    assert reason == f"the trainer was told to stop and committed what fitted into its grace (exit code 75): {said}"


OTHER_ENDINGS = {
    "exit 1": (replace(FAILED, exit_code=1, container_reason="Error"), VerdictKind.PROGRAM_ERROR),
    "out of memory": (replace(FAILED, exit_code=137, container_reason="OOMKilled"), VerdictKind.PROGRAM_ERROR),
    "out of memory, node going": (
        replace(FAILED, exit_code=137, container_reason="OOMKilled", node_deleted=True),
        VerdictKind.PROGRAM_ERROR,
    ),
    "killed on a healthy node": (replace(FAILED, exit_code=137, container_reason="Error"), VerdictKind.PROGRAM_ERROR),
    "no such program": (replace(FAILED, exit_code=128, container_reason="StartError"), VerdictKind.PROGRAM_ERROR),
    "over its own disk": (
        replace(FAILED, reason="Evicted", message='Usage of EmptyDir volume "shm" exceeds the limit "1Gi".'),
        VerdictKind.PROGRAM_ERROR,
    ),
    "active deadline": (replace(FAILED, reason="DeadlineExceeded"), VerdictKind.PROGRAM_ERROR),
    "a Secret that does not exist": (
        replace(PENDING, container_reason="CreateContainerConfigError", container_message='secret "s" not found'),
        VerdictKind.PROGRAM_ERROR,
    ),
    "a Secret not yet seen": (
        replace(
            PENDING,
            container_reason="CreateContainerConfigError",
            container_message="failed to sync secret cache: timed out waiting for the condition",
        ),
        VerdictKind.STARTING,
    ),
    "failed, then cleaned up by hand": (
        replace(FAILED, exit_code=1, finished_at=NOW - timedelta(seconds=9), deleted_at=NOW),
        VerdictKind.PROGRAM_ERROR,
    ),
    "succeeded": (replace(RUNNING, phase=PodPhase.SUCCEEDED, exit_code=0), VerdictKind.SUCCEEDED),
    "trainer done, sidecar runs on": (replace(RUNNING, exit_code=0), VerdictKind.SUCCEEDED),
    "fenced": (replace(FAILED, exit_code=76), VerdictKind.FENCED),
    "deleted by a person": (replace(RUNNING, deleted_at=NOW), VerdictKind.DELETED_BY_PERSON),
    "deleted by a person, trainer stopped": (
        replace(FAILED, exit_code=75, deleted_at=NOW, finished_at=NOW + timedelta(seconds=3)),
        VerdictKind.DELETED_BY_PERSON,
    ),
    "gone, node healthy": (GONE, VerdictKind.DELETED_BY_PERSON),
    "gone before it had a node": (
        replace(GONE, node=None, node_exists=None, node_ready=None),
        VerdictKind.DELETED_BY_PERSON,
    ),
    "waiting for a node": (replace(PENDING, node=None, scheduled=False), VerdictKind.STARTING),
    "waiting for too long": (
        replace(PENDING, node=None, scheduled=False, created_at=NOW - timedelta(minutes=11)),
        VerdictKind.START_TIMEOUT,
    ),
    "running": (RUNNING, VerdictKind.RUNNING),
}


@pytest.mark.parametrize(("pod", "kind"), OTHER_ENDINGS.values(), ids=OTHER_ENDINGS)
def test_every_other_state_has_its_own_class(pod: PodState, kind: VerdictKind) -> None:
    found = verdict(pod)
    assert found.kind is kind, found
    assert not found.preempted


def test_a_fenced_trainer_names_no_attempt_as_the_newer_one() -> None:
    fenced = verdict(replace(FAILED, exit_code=76))
    assert fenced.reason == "the trainer found that another attempt owns its run"


def test_a_silent_node_is_waited_for_until_grace_and_margin_are_over() -> None:
    assert verdict(silent_for(RUNNING, GRACE + MARGIN)).kind is VerdictKind.RUNNING
    lost = verdict(silent_for(RUNNING, GRACE + MARGIN + timedelta(seconds=1)))
    assert lost == PodVerdict(
        kind=VerdictKind.LOST_NODE, reason="node lost: node gpu-1 has not been Ready for 101 s (limit 100 s)"
    )
    assert lost.preempted


def test_a_node_lost_during_the_image_pull_is_a_lost_node_and_no_image_error() -> None:
    pulling = replace(PULLING, container_message="dial tcp 10.0.0.7:5000: i/o timeout")
    assert verdict(silent_for(pulling, timedelta(minutes=5))).kind is VerdictKind.LOST_NODE
    assert verdict(replace(pulling, node_exists=False, node_ready=None)).kind is VerdictKind.LOST_NODE


def test_a_silent_cluster_is_no_verdict_on_the_pod_before_its_limit() -> None:
    assert verdict(RUNNING, unreachable_since=NOW - GRACE - MARGIN) == verdict(RUNNING)
    silent = verdict(RUNNING, unreachable_since=NOW - timedelta(seconds=101))
    assert silent.kind is VerdictKind.CLUSTER_UNREACHABLE
    assert not silent.preempted
    assert not silent.watch_on
    assert "cluster 'cloud' has not answered for 101 s" in silent.reason


def test_nothing_is_concluded_from_the_age_of_the_last_answer() -> None:
    before_its_limit = replace(PENDING, created_at=NOW - LIMIT - timedelta(seconds=30))
    assert verdict(before_its_limit, unreachable_since=NOW - timedelta(seconds=60)).kind is VerdictKind.STARTING


PULLS_THAT_MAY_PASS = {
    "rate limit": "toomanyrequests: You have reached your pull rate limit. pull access denied",
    "429": f"failed to resolve reference {IMAGE}: unexpected status: 429 Too Many Requests",
    "time-out": 'Head "https://registry.cloud:5000/v2/": dial tcp 10.0.0.7:5000: i/o timeout',
    "refused": "dial tcp 10.0.0.7:5000: connect: connection refused",
    "registry down": "unexpected status from HEAD request: 503 Service Unavailable",
    "no address yet": "dial tcp: lookup registry.cloud: no such host",
    "no cause given": f'Back-off pulling image "{IMAGE}"',
    "a code that is no cause": "rpc error: code = Unknown desc = error pulling image",
    "an image called not-found": 'Back-off pulling image "registry.cloud/not found/denied@sha256:404"',
}


@pytest.mark.parametrize("message", PULLS_THAT_MAY_PASS.values(), ids=PULLS_THAT_MAY_PASS)
def test_a_pull_that_may_pass_is_waited_for_until_the_startup_limit(message: str) -> None:
    pod = replace(PULLING, container_message=message)
    assert verdict(pod).kind is VerdictKind.STARTING
    late = verdict(replace(pod, created_at=NOW - LIMIT - timedelta(seconds=1)))
    assert late.kind is VerdictKind.START_TIMEOUT
    assert message in late.reason


PULLS_THAT_NEVER_WORK = {
    "not found": f"rpc error: code = NotFound desc = failed to resolve reference {IMAGE}: {IMAGE}: not found",
    "manifest unknown": "manifest unknown: manifest unknown",
    "invalid name": 'couldn\'t parse image name "x": invalid reference format',
    "unauthorized": "unauthorized: authentication required",
    "denied": "pull access denied, repository does not exist or may require authorization",
    "untrusted": "tls: failed to verify certificate: x509: certificate signed by unknown authority",
    "other bytes": "blob sha256:12: expected digest sha256:12, the bytes have sha256:34; they were not used",
    "time-out in the name only": 'failed to pull "registry.cloud/timeout@sha256:0": not found',
}


@pytest.mark.parametrize("message", PULLS_THAT_NEVER_WORK.values(), ids=PULLS_THAT_NEVER_WORK)
@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_a_pull_that_never_works_fails_at_once_naming_image_registry_and_cluster(reason: str, message: str) -> None:
    found = verdict(replace(PULLING, container_reason=reason, container_message=message))
    assert found == PodVerdict(
        kind=VerdictKind.IMAGE_MISSING,
        reason=f"image '{IMAGE}' cannot be pulled from registry registry.cloud:5000 by cluster 'cloud': "
        f"{reason}: {message}",
    )


def test_an_image_name_that_no_registry_could_hold_is_never_waited_for() -> None:
    assert verdict(replace(PULLING, container_reason="InvalidImageName")).kind is VerdictKind.IMAGE_MISSING


@given(
    phase=st.sampled_from(PodPhase),
    reason=st.sampled_from(["", "Evicted", "Terminated", "Other"]),
    exit_code=st.one_of(st.none(), st.integers(0, 255)),
    container_reason=st.sampled_from(["", "Error", "OOMKilled", "ErrImagePull", "ContainerCreating"]),
    disruption=st.one_of(st.none(), st.just("TerminationByKubelet")),
    deleted=st.booleans(),
    node=st.one_of(st.none(), st.just("gpu-1")),
    node_ready=st.sampled_from([None, True, False]),
    node_exists=st.sampled_from([None, True, False]),
)
def test_every_pod_has_exactly_one_class_and_a_reason(
    phase: PodPhase,
    reason: str,
    exit_code: int | None,
    container_reason: str,
    disruption: str | None,
    deleted: bool,
    node: str | None,
    node_ready: bool | None,
    node_exists: bool | None,
) -> None:
    found = verdict(
        PodState(
            name="digits-1",
            phase=phase,
            reason=reason,
            exit_code=exit_code,
            container_reason=container_reason,
            disruption=disruption,
            deleted_at=NOW if deleted else None,
            node=node,
            node_ready=node_ready,
            node_exists=node_exists,
        )
    )
    assert found.kind in VerdictKind
    assert found.reason
    assert not (found.preempted and found.watch_on)
