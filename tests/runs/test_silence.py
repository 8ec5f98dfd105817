"""A Kubernetes API that does not answer: for a while it changes nothing, for long the run goes on behind a fence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from spillway.checkpoints.layout import Head
from spillway.clouds.kubernetes import KubernetesCluster
from spillway.model import Cluster, ExitCode, JobSpec, Outcome, PodPhase
from spillway.runs.cancelling import cancel
from spillway.runs.services import Services, Site
from spillway.runs.sweeping import Remedy, sweep
from spillway.runs.watching import Watch
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation
from spillway.testing.scripted_api import Answer, scripted_api

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
PATIENT = timedelta(seconds=90)
BAD_ANSWERS = {
    "unauthorized": (Answer(status=401), None),
    "server-error": (Answer(status=500), None),
    "reset": (Answer(status=0), None),
    "not-json": (Answer(body=b"<html>"), None),
    "too-many-requests": (Answer(status=429, headers=(("Retry-After", "2"),)), timedelta(seconds=2)),
    "come-back-tomorrow": (Answer(status=429, headers=(("Retry-After", "86400"),)), timedelta(seconds=20)),
}


@pytest.mark.parametrize(("answer", "pause"), BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
def test_one_bad_answer_ends_nothing_and_starts_nothing(
    open_run: Carry, make_job: MakeJob, answer: Answer, pause: timedelta | None
) -> None:
    run = open_run(make_job())
    attempt = run.place()
    with scripted_api(answer) as api:

        def open_site(cluster: Cluster) -> Site:
            client = KubernetesCluster(cluster=cluster, api_client=api.client())
            return replace(run.services.open_site(cluster), client=client)

        ours = run.services
        services = Services(
            configuration=ours.configuration,
            open_ledger=ours.open_ledger,
            open_site=open_site,
            image_uses=ours.image_uses,
        )
        look = Watch(services=services, attempt=attempt).poll()
    assert (look.ended, look.pause) == (None, pause)
    assert look.summary.startswith("no answer since")
    assert api.asked == [f"GET /api/v1/namespaces/training/pods/{attempt.label}"]
    assert run.attempts[0].outcome is None


def test_an_api_that_is_gone_for_a_few_polls_changes_nothing(
    installation: Installation, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(steps=60, every=5, pace=0.1, grace=PATIENT))
    first = run.running(1)
    with installation.taken("onprem-kube-api"):
        eventually(lambda: "no answer since" in run.story)
    assert run.result().outcome is Outcome.SUCCEEDED, run.story
    assert [(a.number, a.pod_uid, a.last_step) for a in run.attempts] == [(1, first.pod_uid, 60)]


def test_credentials_are_read_again_once_the_api_refuses_them(
    installation: Installation, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(steps=9000, every=9000, pace=0.2, grace=PATIENT))
    first = run.running(1)
    good = installation.connections.read_text()
    extra = json.loads(json.loads(good)["onprem_kubernetes"]["extra"])
    extra["kube_config"] = re.sub(r'"token": "[^"]+"', '"token": "expired"', extra["kube_config"])
    installation.connection("onprem_kubernetes", extra=json.dumps(extra))
    run.services.forget("onprem")
    eventually(lambda: "refused the credentials" in run.story)
    installation.connections.write_text(good)
    said = len(run.said)
    eventually(lambda: any("running on node" in line for line in run.said[said:]))
    assert [(a.number, a.pod_uid, a.outcome) for a in run.attempts] == [(1, first.pod_uid, None)]


def test_a_pod_that_goes_on_behind_a_silent_api_can_commit_nothing_any_more(
    installation: Installation, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(steps=9000, every=5, pace=0.1, grace=timedelta(seconds=2)))
    first = run.running(1, committed=1)
    old = run.services.site("onprem").client
    with installation.taken("onprem-kube-api"):
        second = run.running(2, committed=1)
        assert second.candidate.cluster == "cloud"
        head = run.checkpoints("onprem").head()
        assert head is not None and head.attempt == 2
        fenced_at = head.committed
    ended = eventually(lambda: old.state(first.label), lambda pod: pod.phase is not PodPhase.RUNNING, seconds=120)
    assert ended.exit_code == ExitCode.FENCED
    head = run.checkpoints("onprem").head()
    assert head is not None and head.committed == fenced_at
    swept = sweep(run.services, lambda origin: True, run.said.append)
    assert {entry.remedy for entry in swept} <= {Remedy.REBOOKED}  # it worked on for a while, and has ended by itself
    assert run.attempts[0].outcome is Outcome.PREEMPTED
    cancel(run.services, run.run, "seen enough", run.said.append)


@pytest.mark.slow
def test_a_pod_that_survives_on_a_lost_node_is_fenced_and_swept_when_the_node_is_back(
    installation: Installation, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(steps=9000, every=9000, pace=0.1, grace=timedelta(seconds=2)))
    first = run.running(1)
    client = run.services.site("onprem").client
    with installation.frozen(f"{first.node}-agent"):
        second = run.running(2)
        assert second.candidate.cluster == "cloud"
        head = run.checkpoints("onprem").head()
        assert head == Head(run=run.run, attempt=2)
    gone = {PodPhase.FAILED, PodPhase.GONE}
    eventually(lambda: client.state(first.label).phase, lambda phase: phase in gone, seconds=120)
    assert run.checkpoints("onprem").head() == Head(run=run.run, attempt=2)
    cancel(run.services, run.run, "seen enough", run.said.append)
