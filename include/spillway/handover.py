"""When a run may be fenced and launched elsewhere: its pod is over, or has been given all the time that it may have.

A machine that is cut off, or a pod that cannot be ended, may still compute: the fence, not this rule, keeps its
checkpoints out. The rule keeps two pods of a run from working side by side as long as waiting may help.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from spillway.losses import node_silent_for, patience_with
from spillway.model import PodPhase, PodState

OVER = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})
"""The phases of a pod that has ended."""
STUCK_LIMIT = timedelta(minutes=5)
"""How long, beyond its grace and the margin, a pod on a node that answers may still not have ended.

Its GPUs are taken until it has, so that nothing is placed on them; its run goes on without it.
"""


def may_hand_over(
    pod: PodState, *, now: datetime, node_margin: timedelta, ending_since: datetime | None = None
) -> bool:
    """Whether the pod is over, its node lost or silent past grace and margin, or it is stuck past STUCK_LIMIT.

    Args:
        ending_since: when the pod was to end, where its own deletion does not tell.
    """
    patience = patience_with(pod, node_margin)
    late = _late_since(pod, patience, ending_since)
    return _over(pod) or _lost(pod, now, patience) or (late is not None and now - late > STUCK_LIMIT)


def stuck(pod: PodState, *, now: datetime, node_margin: timedelta, ending_since: datetime | None = None) -> str:
    """That a pod on a node that answers should have ended by now, in words; empty where that is not so."""
    patience = patience_with(pod, node_margin)
    late = _late_since(pod, patience, ending_since)
    if late is None or now <= late or _over(pod) or _lost(pod, now, patience):
        return ""
    return (
        f"pod '{pod.name}' should have ended by {late:%H:%M:%S} UTC and is still there: look at node {pod.node} of "
        f"cluster '{pod.cluster}'; the run goes on without it after {late + STUCK_LIMIT:%H:%M:%S} UTC"
    )


def _over(pod: PodState) -> bool:
    ended = pod.phase in OVER or pod.exit_code is not None
    return ended and not pod.others_running


def _lost(pod: PodState, now: datetime, patience: timedelta) -> bool:
    return (pod.node_exists is False or node_silent_for(pod, now) > patience) and not pod.others_running


def _late_since(pod: PodState, patience: timedelta, ending_since: datetime | None) -> datetime | None:
    """When the pod's grace and the margin are over; None for one that was never to end."""
    asked = min((at for at in (pod.deleted_at, ending_since) if at is not None), default=None)
    return None if asked is None else asked + patience
