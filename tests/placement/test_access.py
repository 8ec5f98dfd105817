"""Who may use the cloud: deny by default, then by cluster, billing type and the DAG that asks."""

from __future__ import annotations

from typing import Any

import pytest

from spillway.model import Billing, CloudAccess, JobSpec
from spillway.placement.policy import place
from spillway.testing.builders import job_spec, placement_policy, snapshot

BOUGHT = frozenset({Billing.ON_DEMAND, Billing.SPOT})
EVERYTHING = CloudAccess(clusters=None, billing=BOUGHT)
JOB = job_spec(spot_ok=True)


def denied(access: dict[str, CloudAccess] | None, billing: Billing, *, job: JobSpec = JOB, **seen: Any) -> list[str]:
    """What speaks against cloud GPUs of that billing."""
    decision = place(job, snapshot(**seen), placement_policy(cloud_access=access))
    (verdict,) = (v for v in decision.verdicts if (v.candidate.cluster, v.candidate.billing) == ("cloud", billing))
    return [r.reason for r in verdict.rejections if r.rule == "cloud-access" and not r.waits]


def test_who_is_not_named_may_not_use_the_cloud_and_stays_on_premises() -> None:
    reason = "'research' may not use the cloud; departments that may (cloud_access): vision"
    assert denied({"vision": EVERYTHING}, Billing.SPOT) == [reason]
    assert denied({}, Billing.ON_DEMAND) == [
        "'research' may not use the cloud; departments that may (cloud_access): none"
    ]
    decision = place(JOB, snapshot(), placement_policy(cloud_access={}))
    assert decision.chosen is not None
    assert decision.chosen.cluster == "onprem"


def test_who_is_named_may_use_what_is_named() -> None:
    assert denied({"research": EVERYTHING}, Billing.ON_DEMAND) == []
    elsewhere = CloudAccess(clusters=frozenset({"paris"}), billing=BOUGHT)
    assert denied({"research": elsewhere}, Billing.SPOT) == ["'research' may use paris of the clouds only"]
    spot = CloudAccess(clusters=frozenset({"cloud"}), billing=frozenset({Billing.SPOT}))
    assert denied({"research": spot}, Billing.SPOT) == []
    assert denied({"research": spot}, Billing.ON_DEMAND) == ["'research' may buy spot GPUs only"]


ONLY = "for 'research' only DAGs train_nlp*, nightly may use it, this is asked by"


@pytest.mark.parametrize(
    ("requester", "reasons"),
    [
        ("train_nlp", []),
        ("train_vision", [f"{ONLY} DAG 'train_vision'"]),
        (None, [f"{ONLY} no DAG"]),
    ],
    ids=["its DAG", "another DAG", "a person"],
)
def test_only_the_dags_of_a_department_may_spend_for_it(requester: str | None, reasons: list[str]) -> None:
    access = CloudAccess(clusters=None, billing=BOUGHT, dags=("train_nlp*", "nightly"))
    assert denied({"research": access}, Billing.SPOT, requester=requester) == reasons


def test_a_decision_of_before_the_rule_is_still_the_same() -> None:
    assert denied(None, Billing.SPOT) == []
