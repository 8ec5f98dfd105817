"""Wrong names and passwords: one clear error each, and nothing half-changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spillway.errors import AccessDenied, ConfigError, Missing, SpillwayError, UnknownName
from spillway.model import JobSpec, Outcome
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.services import Services
from spillway.testing.carried_run import Carried
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


def refused(run: Carried, kind: type[SpillwayError], message: str) -> None:
    """Asking for the run raises this, settles its attempt with the same words and leaves nothing behind."""
    with pytest.raises(kind, match=message) as problem:
        run.advance()
    assert not problem.value.retry_helps
    assert [(attempt.outcome, attempt.reason) for attempt in run.attempts] == [(Outcome.FAILED, str(problem.value))]
    assert run.services.ledger.reservations() == ()
    assert run.services.ledger.costs(run.run) == ()
    for site in run.services.configuration.clusters:
        assert run.services.site(site).client.owned(run.services.ledger.installation()) == ()


def test_an_image_tag_that_does_not_exist_is_named_with_those_that_do(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(image="train:numpy2.4.6-py3.12"))
    refused(run, Missing, "image 'train:numpy2.4.6-py3.12' is not in .*numpy2.4.6-py3.11")


def test_a_wrong_store_password_is_told_before_any_pod_starts(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    installation.connection("onprem_store", password="wrong")
    refused(open_run(make_job()), AccessDenied, "onprem.* refused the credentials")


def test_a_wrong_registry_password_is_told_before_any_pod_starts(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    installation.connection("onprem_registry", password="wrong")
    refused(open_run(make_job()), AccessDenied, "onprem.* refused the credentials")


def test_a_connection_that_does_not_exist_is_named(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    written = installation.connections.read_text()
    run = open_run(make_job())
    run.place()
    installation.connections.write_text(written.replace('"onprem_store_pods"', '"other_store_pods"'))
    run.services.forget("onprem")
    with pytest.raises(Missing, match="Connection 'onprem_store_pods' is not in"):
        run.advance()
    assert run.attempts[0].outcome is Outcome.FAILED


def test_a_cluster_that_is_not_declared_is_named_with_those_that_are(services: Services) -> None:
    with pytest.raises(UnknownName, match=r"unknown cluster 'onpremise'; known: cloud, onprem\. Did you mean 'onprem'"):
        services.site("onpremise")
    with pytest.raises(UnknownName, match="unknown cluster 'onpremise'"):
        copy_dataset(services, services.configuration.datasets["digits"], "onpremise")
    assert services.ledger.transfers() == ()


def test_a_dataset_that_is_not_declared_is_named(open_run: Carry, make_job: MakeJob) -> None:
    refused(open_run(make_job(dataset="digit")), UnknownName, "unknown dataset 'digit'; known: digits")


def test_a_dataset_without_objects_is_told_before_any_pod_starts(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    file = installation.config / "datasets.yaml"
    file.write_text(file.read_text().replace("prefix: digits/", "prefix: digit/"))
    run = open_run(make_job())
    run.services = installation.services()
    refused(run, Missing, "dataset 'digits' is not in onprem")


def test_another_job_under_the_name_of_a_run_is_refused(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    run.job = replace(run.job, image="train:other")
    with pytest.raises(ConfigError, match="expected the job it was opened with"):
        run.advance()
    assert run.attempts == ()


def test_pod_overrides_that_the_platform_relies_on_are_refused(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(pod_overrides={"spec": {"restartPolicy": "Always"}}))
    refused(run, ConfigError, "pod_overrides.spec.restartPolicy")
