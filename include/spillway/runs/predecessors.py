"""The pods of a run's earlier attempts: none may be seen at work when the next attempt is fenced and launched."""

from __future__ import annotations

import contextlib
import time

from spillway.clouds.base import ClusterClient
from spillway.errors import LaunchRefused, SpillwayError, Unreachable
from spillway.losses import may_hand_over
from spillway.model import Attempt, PodState
from spillway.runs.services import Say, Services
from spillway.runs.stopping import ask_to_end, grace_of

POLL_SECONDS = 0.5


def await_predecessors(services: Services, attempt: Attempt, say: Say) -> None:
    """Return when no earlier pod of the run is seen at work; they are asked to end, with their grace.

    A cluster that does not answer is not waited for: what runs there unseen is kept out by the fence.

    Raises:
        LaunchRefused: one is still there past its grace and the margin.
    """
    margin = services.configuration.runs.node_margin
    began = time.monotonic()
    asked: set[str] = set()
    while working := _at_work(services, attempt):
        for client, pod in working:
            if pod.name not in asked:
                asked.add(pod.name)
                say(f"pod {pod.name} of an earlier attempt still runs at {pod.cluster}; waiting for it to end")
                with contextlib.suppress(Unreachable):  # then it is not seen the next time either
                    ask_to_end(client, pod, attempt.job)
        _, pod = working[0]
        patience = grace_of(pod, attempt.job) + margin
        if time.monotonic() - began > patience.total_seconds():
            raise LaunchRefused(
                f"attempt '{attempt.label}' is not launched: pod '{pod.name}' of an earlier attempt still runs on node "
                f"{pod.node} of cluster '{pod.cluster}', {patience.total_seconds():.0f} s after it was asked to end; "
                "end it there, then start the run again"
            )
        time.sleep(POLL_SECONDS)


def _at_work(services: Services, attempt: Attempt) -> list[tuple[ClusterClient, PodState]]:
    """Each earlier pod of the run that is seen and not over, with the client of its cluster."""
    earlier = [a for a in services.ledger.attempts(attempt.run) if a.number < attempt.number and a.image_digest]
    labels = {a.label for a in earlier}
    found = []
    for name in sorted({a.candidate.cluster for a in earlier}):
        try:
            client = services.site(name).client
            pods = client.owned()
        except SpillwayError:
            continue
        margin = services.configuration.runs.node_margin
        now = services.clock()
        found += [
            (client, pod)
            for pod in pods
            if pod.attempt in labels and not may_hand_over(pod, now=now, node_margin=margin)
        ]
    return found
