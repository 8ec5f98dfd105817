"""The pods of a run's earlier attempts: none may be seen at work when the next attempt is fenced and launched."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from datetime import datetime

from spillway.clouds.base import ClusterClient
from spillway.errors import SpillwayError, Unreachable
from spillway.handover import may_hand_over, stuck
from spillway.model import Attempt, PodState
from spillway.runs.services import Say, Services
from spillway.runs.stopping import ask_to_end

POLL_SECONDS = 0.5


def await_predecessors(services: Services, attempt: Attempt, say: Say) -> None:
    """Return when no earlier pod of the run is seen at work; they are asked to end, with their grace.

    A cluster that does not answer is not waited for, nor is a pod that is stuck for too long: what still runs is kept
    out by the fence.
    """
    asked: dict[str, datetime] = {}  # by the clock of each pod's cluster
    said: set[str] = set()
    while working := _at_work(services, attempt, asked):
        for client, pod in working:
            if pod.name not in asked:
                asked[pod.name] = pod.read_at or services.clock()
                say(f"pod {pod.name} of an earlier attempt still runs at {pod.cluster}; waiting for it to end")
                with contextlib.suppress(Unreachable):  # then it is not seen the next time either
                    ask_to_end(client, pod, attempt.job)
            margin = services.configuration.runs.node_margin
            now = pod.read_at or services.clock()
            late = stuck(pod, now=now, node_margin=margin, ending_since=asked[pod.name])
            if late and late not in said:
                said.add(late)
                say(late)
        time.sleep(POLL_SECONDS)


def _at_work(
    services: Services, attempt: Attempt, asked: Mapping[str, datetime]
) -> list[tuple[ClusterClient, PodState]]:
    """Each earlier pod of the run that is seen and not over, with the client of its cluster."""
    earlier = [a for a in services.ledger.attempts(attempt.run) if a.number < attempt.number and a.image_digest]
    labels = {a.label for a in earlier}
    found = []
    for name in sorted({a.candidate.cluster for a in earlier}):
        try:
            client = services.site(name).client
            pods = client.owned(services.ledger.installation())
        except SpillwayError:
            continue
        margin = services.configuration.runs.node_margin
        found += [
            (client, pod)
            for pod in pods
            if pod.attempt in labels
            and not may_hand_over(
                pod, now=pod.read_at or services.clock(), node_margin=margin, ending_since=asked.get(pod.name)
            )
        ]
    return found
