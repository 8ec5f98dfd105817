"""What became of a pod: told from the facts of its API alone, so that every rule is a row of a table.

The rules are asked in the order of ``RULES`` and the first that answers decides. Two principles order them: what the
platform did to the pod comes before what its program returned, and a program that never exited is not at fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from spillway.model import ExitCode, PodPhase, PodState, VerdictKind
from spillway.pulls import PULL_REASONS, pull_can_succeed

KUBERNETES_DEFAULT_GRACE = timedelta(seconds=30)

_ENDED_BY_PLATFORM = {
    ExitCode.PREEMPTED.value: "was told to stop and committed what fitted into its grace",
    ExitCode.STORE_UNREACHABLE.value: "ended because its data went on changing or its site's store stayed unreachable",
}
_TERMINATED_BY_STOP_SIGNAL = 128 + 15
_LOSS_REASONS = frozenset({
    "Terminated", "Shutdown", "NodeShutdown", "Evicted", "NodeLost", "Preempting", "Preempted", "PreemptionByScheduler",
})  # fmt: skip
_LOSS_MESSAGE = re.compile(r"node shutdown|node is shutting down|node was (shut down|preempted)|preempt", re.IGNORECASE)
_OWN_LIMIT_MESSAGE = re.compile(r"exceed\w* (its|the)\b.*\blimit", re.IGNORECASE)
_CONFIGURATION_REASONS = frozenset({"DeadlineExceeded", "SysctlForbidden", "PodOSNotSupported", "AppArmor"})
_UNSTARTABLE_REASONS = frozenset({
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "ContainerCannotRun", "StartError",
})  # fmt: skip
_CACHE_NOT_READY = re.compile(r"timed out|failed to sync", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVerdict:
    """One class of ending (or that there is none yet) and its reason, meant for a person."""

    kind: VerdictKind
    reason: str

    @property
    def preempted(self) -> bool:
        """The platform took the pod away: resume elsewhere, at nobody's expense."""
        return self.kind in {VerdictKind.PREEMPTED, VerdictKind.LOST_NODE}

    @property
    def watch_on(self) -> bool:
        """The pod is expected to do something yet."""
        return self.kind in {VerdictKind.STARTING, VerdictKind.RUNNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A pod and what it is judged with; ``patience`` is the pod's grace and the margin for its node."""

    pod: PodState
    now: datetime
    startup_limit: timedelta
    patience: timedelta


def judge(
    pod: PodState,
    *,
    now: datetime,
    startup_limit: timedelta,
    node_margin: timedelta,
    unreachable_since: datetime | None = None,
) -> PodVerdict:
    """The class that the pod belongs to at ``now``.

    Args:
        now: by the cluster's clock, as the moments of ``pod`` are.
        startup_limit: from creation to a running trainer: scheduling, image pull and container start together.
        node_margin: how long beyond the pod's grace a silent node or cluster is waited for.
        unreachable_since: the first of the failed polls since the last answer; ``pod`` is then the last answer, and
            nothing is concluded from its age.
    """
    patience = patience_with(pod, node_margin)
    if unreachable_since is not None:
        if now - unreachable_since > patience:
            silence = _seconds(now - unreachable_since)
            text = f"{_cluster(pod)} has not answered for {silence}; whether pod '{pod.name}' still runs is not known"
            return _verdict(VerdictKind.CLUSTER_UNREACHABLE, text)
        now = unreachable_since
    case = _Case(pod=pod, now=now, startup_limit=startup_limit, patience=patience)
    return next(verdict for rule in RULES if (verdict := rule(case)) is not None)


def patience_with(pod: PodState, node_margin: timedelta) -> timedelta:
    """How long the pod, or its silent node, is waited for: the pod's grace and the margin."""
    return (KUBERNETES_DEFAULT_GRACE if pod.grace is None else pod.grace) + node_margin


def node_silent_for(pod: PodState, now: datetime) -> timedelta:
    """How long the pod's node has not been Ready; zero for a node that is Ready or of which nothing is known."""
    if pod.node_ready is not False or pod.node_changed_at is None:
        return timedelta()
    return now - pod.node_changed_at


def _said_by_trainer(case: _Case) -> PodVerdict | None:
    if case.pod.phase is PodPhase.SUCCEEDED:
        return _verdict(VerdictKind.SUCCEEDED, "the trainer ended with exit code 0")
    if case.pod.exit_code == ExitCode.FENCED:
        return _verdict(VerdictKind.FENCED, "the trainer found that another attempt owns its run")
    return None


def _disrupted(case: _Case) -> PodVerdict | None:
    """The DisruptionTarget condition, whatever its reason: only the platform sets it."""
    pod = case.pod
    if pod.disruption is None:
        return None
    return _verdict(VerdictKind.PREEMPTED, f"disrupted: {pod.disruption}" + _detail(pod.message))


def _platform_reason(case: _Case) -> PodVerdict | None:
    pod = case.pod
    if pod.reason == "Evicted" and _OWN_LIMIT_MESSAGE.search(pod.message):
        text = f"evicted for its own limit{_detail(pod.message)}"
        return _verdict(VerdictKind.PROGRAM_ERROR, text)
    if pod.reason in _LOSS_REASONS or (pod.phase is PodPhase.FAILED and _LOSS_MESSAGE.search(pod.message)):
        return _verdict(VerdictKind.PREEMPTED, (pod.reason or "ended by its node") + _detail(pod.message))
    return None


def _removed(case: _Case) -> PodVerdict | None:
    """The pod object is gone or going, and nothing says that the platform did it: its node tells who."""
    pod = case.pod
    if pod.phase is not PodPhase.GONE and (pod.deleted_at is None or _ended_before_deletion(pod)):
        return None
    how = "is gone" if pod.phase is PodPhase.GONE else "is being deleted"
    if pod.node is None or _node_healthy(pod):
        where = f"its node {pod.node} is healthy" if pod.node else "it was on no node yet"
        text = f"pod '{pod.name}' {how} while {where}: somebody deleted it"
        return _verdict(VerdictKind.DELETED_BY_PERSON, text)
    return _verdict(VerdictKind.PREEMPTED, f"pod '{pod.name}' {how} and {_node_condition(pod)}")


def _exited(case: _Case) -> PodVerdict | None:
    pod = case.pod
    if pod.exit_code is None and pod.phase is not PodPhase.FAILED:
        return None
    if pod.exit_code == 0:
        return _verdict(VerdictKind.SUCCEEDED, "the trainer ended with exit code 0, its pod did not")
    if pod.exit_code in _ENDED_BY_PLATFORM:
        how = f"{_ENDED_BY_PLATFORM[pod.exit_code]} (exit code {pod.exit_code})"
        text = f"the trainer {how}{_detail(pod.container_message)}"
        return _verdict(VerdictKind.PREEMPTED, text)
    if pod.exit_code is None and pod.reason in _CONFIGURATION_REASONS:
        return _verdict(VerdictKind.PROGRAM_ERROR, pod.reason + _detail(pod.message))
    if pod.exit_code is None or pod.container_reason == "ContainerStatusUnknown":
        return _verdict(VerdictKind.PREEMPTED, (pod.reason or "the node lost the container") + _detail(pod.message))
    if pod.container_reason != "OOMKilled":
        if pod.exit_code == _TERMINATED_BY_STOP_SIGNAL:
            return _verdict(
                VerdictKind.PREEMPTED,
                f"ended by a stop signal (exit code {pod.exit_code}){_detail(_node_condition(pod))}",
            )
        if pod.exit_code > 128 and _node_going(pod):
            return _verdict(VerdictKind.PREEMPTED, f"killed (exit code {pod.exit_code}) while {_node_condition(pod)}")
    why = f" ({pod.container_reason})" if pod.container_reason not in {"", "Error"} else ""
    text = f"the trainer ended with exit code {pod.exit_code}{why}{_detail(pod.container_message)}"
    return _verdict(VerdictKind.PROGRAM_ERROR, text)


def _image(case: _Case) -> PodVerdict | None:
    """A pull that can never work; one that may pass is waited for by the rule of the startup limit."""
    pod = case.pod
    if pod.container_reason not in PULL_REASONS or pull_can_succeed(pod.container_reason, pod.container_message):
        return None
    text = (
        f"image '{pod.image}' cannot be pulled from registry {pod.image.partition('/')[0]} by {_cluster(pod)}: "
        f"{pod.container_reason}{_detail(pod.container_message)}"
    )
    return _verdict(VerdictKind.IMAGE_MISSING, text)


def _unstartable(case: _Case) -> PodVerdict | None:
    pod = case.pod
    if pod.container_reason not in _UNSTARTABLE_REASONS or _CACHE_NOT_READY.search(pod.container_message):
        return None
    text = f"the container cannot start: {pod.container_reason}{_detail(pod.container_message)}"
    return _verdict(VerdictKind.PROGRAM_ERROR, text)


def _lost_node(case: _Case) -> PodVerdict | None:
    pod = case.pod
    if pod.node_exists is False:
        return _verdict(VerdictKind.LOST_NODE, f"node lost: node {pod.node} does not exist any more")
    silence = node_silent_for(pod, case.now)
    if silence <= case.patience:
        return None
    text = f"node lost: node {pod.node} has not been Ready for {_seconds(silence)} (limit {_seconds(case.patience)})"
    return _verdict(VerdictKind.LOST_NODE, text)


def _starting(case: _Case) -> PodVerdict | None:
    pod = case.pod
    if pod.phase is not PodPhase.PENDING:
        return None
    doing = pod.container_reason or ("starting" if pod.scheduled else "waiting for a node")
    text = f"{doing}{_detail(pod.container_message or pod.message)}"
    if pod.created_at is None or case.now - pod.created_at <= case.startup_limit:
        return _verdict(VerdictKind.STARTING, text)
    age, limit = _seconds(case.now - pod.created_at), _seconds(case.startup_limit)
    return _verdict(VerdictKind.START_TIMEOUT, f"not running {age} after its creation, limit {limit}: {text}")


def _running(case: _Case) -> PodVerdict | None:
    where = f"running on node {case.pod.node}"
    if _node_going(case.pod):
        where += f"; {_node_condition(case.pod)}"
    return _verdict(VerdictKind.RUNNING, where)


RULES: tuple[Callable[[_Case], PodVerdict | None], ...] = (
    _said_by_trainer,
    _disrupted,
    _platform_reason,
    _removed,
    _exited,
    _image,
    _unstartable,
    _lost_node,
    _starting,
    _running,
)


def _ended_before_deletion(pod: PodState) -> bool:
    return pod.finished_at is not None and pod.deleted_at is not None and pod.finished_at < pod.deleted_at


def _node_going(pod: PodState) -> bool:
    return pod.node_exists is False or pod.node_ready is False or pod.node_deleted


def _node_healthy(pod: PodState) -> bool:
    return pod.node_exists is True and pod.node_ready is True and not pod.node_deleted


def _node_condition(pod: PodState) -> str:
    if pod.node_exists is False:
        return f"its node {pod.node} does not exist any more"
    if pod.node_deleted:
        return f"its node {pod.node} is being removed"
    if pod.node_ready is False:
        return f"its node {pod.node} is not Ready"
    return f"its node {pod.node} is Ready" if pod.node_ready else f"nothing is known of its node {pod.node}"


def _verdict(kind: VerdictKind, reason: str) -> PodVerdict:
    return PodVerdict(kind=kind, reason=reason)


def _cluster(pod: PodState) -> str:
    return f"cluster '{pod.cluster}'" if pod.cluster else "the cluster"


def _detail(text: str) -> str:
    return f": {text.strip()}" if text.strip() else ""


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.0f} s"
