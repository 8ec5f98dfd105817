"""When a run may go on elsewhere, and what is said of a pod that does not end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spillway.handover import STUCK_LIMIT, may_hand_over, stuck
from spillway.model import PodPhase, PodState

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
GRACE = timedelta(seconds=60)
MARGIN = timedelta(seconds=40)
SECOND = timedelta(seconds=1)

RUNNING = PodState(
    name="digits-1",
    phase=PodPhase.RUNNING,
    cluster="cloud",
    node="gpu-1",
    node_exists=True,
    node_ready=True,
    node_changed_at=NOW - timedelta(days=3),
    grace=GRACE,
)
FAILED = replace(RUNNING, phase=PodPhase.FAILED)
NODE_GONE = replace(RUNNING, node_exists=False, node_ready=None)


def ending_for(duration: timedelta, pod: PodState = RUNNING) -> PodState:
    return replace(pod, deleted_at=NOW - duration)


def silent_for(silence: timedelta, pod: PodState = RUNNING) -> PodState:
    return replace(pod, node_ready=False, node_changed_at=NOW - silence)


CASES = {
    "running": (RUNNING, False, False),
    "being deleted": (ending_for(timedelta()), False, False),
    "gone": (replace(RUNNING, phase=PodPhase.GONE), True, False),
    "failed": (FAILED, True, False),
    "trainer over, sidecar runs": (replace(RUNNING, exit_code=75), True, False),
    "node object gone": (NODE_GONE, True, False),
    "node silent, within its margin": (silent_for(GRACE + MARGIN), False, False),
    "node silent for too long": (silent_for(GRACE + MARGIN + SECOND), True, False),
    "failed while others of its gang run": (replace(FAILED, others_running=True), False, False),
    "node gone while others of its gang run": (replace(NODE_GONE, others_running=True), False, False),
    "terminating within grace and margin": (ending_for(GRACE + MARGIN), False, False),
    "stuck on a node that is Ready": (ending_for(GRACE + MARGIN + SECOND), False, True),
    "stuck to the limit": (ending_for(GRACE + MARGIN + STUCK_LIMIT), False, True),
    "stuck past the limit": (ending_for(GRACE + MARGIN + STUCK_LIMIT + SECOND), True, True),
    "stuck, nothing known of its node": (
        ending_for(GRACE + MARGIN + SECOND, replace(RUNNING, node_exists=None, node_ready=None)),
        False,
        True,
    ),
    "terminating on a node that was lost": (silent_for(GRACE + MARGIN + SECOND, ending_for(GRACE * 9)), True, False),
    "one of a gang is stuck": (ending_for(GRACE + MARGIN + SECOND, replace(FAILED, others_running=True)), False, True),
    "one of a gang is stuck past the limit": (
        ending_for(GRACE + MARGIN + STUCK_LIMIT + SECOND, replace(NODE_GONE, others_running=True)),
        True,
        True,
    ),
}


@pytest.mark.parametrize(("pod", "allowed", "told"), CASES.values(), ids=CASES)
def test_a_run_goes_on_elsewhere_when_its_pod_is_over_lost_or_stuck_for_too_long(
    pod: PodState, allowed: bool, told: bool
) -> None:
    assert may_hand_over(pod, now=NOW, node_margin=MARGIN) is allowed
    assert bool(stuck(pod, now=NOW, node_margin=MARGIN)) is told


@pytest.mark.parametrize("waited", [GRACE + MARGIN + SECOND, GRACE + MARGIN + STUCK_LIMIT + SECOND])
def test_a_pod_that_was_asked_to_end_in_vain_is_waited_for_no_longer_than_one_that_is_being_deleted(
    waited: timedelta,
) -> None:
    asked = {"now": NOW, "node_margin": MARGIN, "ending_since": NOW - waited}
    deleted = ending_for(waited)
    assert may_hand_over(RUNNING, **asked) is may_hand_over(deleted, now=NOW, node_margin=MARGIN)
    assert stuck(RUNNING, **asked) == stuck(deleted, now=NOW, node_margin=MARGIN) != ""


def test_what_is_said_of_a_stuck_pod_names_it_and_what_follows_and_does_not_change_while_it_is_waited_for() -> None:
    pod = ending_for(GRACE + MARGIN + SECOND)
    said = stuck(pod, now=NOW, node_margin=MARGIN)
    assert said == (
        "pod 'digits-1' should have ended by 11:59:59 UTC and is still there: look at node gpu-1 of cluster 'cloud'; "
        "the run goes on without it after 12:04:59 UTC"
    )
    assert stuck(pod, now=NOW + SECOND, node_margin=MARGIN) == said
