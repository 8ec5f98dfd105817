"""Values of the model survive being plain JSON, and what is not such a value is refused by its path."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from spillway.codec import decode, encode, from_json
from spillway.errors import ConfigError
from spillway.model import (
    Billing,
    CheckpointManifest,
    CheckpointPart,
    Cluster,
    CostEntry,
    DatasetUse,
    JobSpec,
    PlacementDecision,
    PodPhase,
    PodState,
    ScalingSnapshot,
    Snapshot,
)
from spillway.placement.policy import place
from spillway.scaling.presets import S0, S2
from spillway.scaling.rules import ForecastRule
from spillway.testing.builders import (
    NOW,
    cloud_cluster,
    cluster_state,
    job_spec,
    onprem_cluster,
    placement_policy,
    snapshot,
)
from spillway.testing.elastic import POOL, pool_use, scaling_look, scaling_snapshot

TOKYO = timezone(timedelta(hours=9))
JOB = job_spec(expected_duration=timedelta(minutes=90, microseconds=1), pod_overrides={"spec": {"hostname": None}})
SEEN = snapshot(
    cluster_state(onprem_cluster()),
    unreachable={"cloud": "time-out"},
    unreachable_clusters=(cloud_cluster(),),
    datasets_present=frozenset({("digits", "onprem"), ("digits", "cloud")}),
)
VALUES: dict[str, Any] = {
    "job": JOB,
    "cluster": cloud_cluster(),
    "snapshot": SEEN,
    "decision": place(JOB, SEEN, placement_policy()),
    "look": scaling_look(
        scaling_snapshot(pool_use(), last_out={POOL: NOW}, replaced={POOL: {NOW: frozenset({"a"})}}),
        replace(S0, forecast=ForecastRule()),
    ),
    "rules of another kind": S2,
    "pod": PodState(name="r-1", phase=PodPhase.FAILED, grace=timedelta(seconds=30), exit_code=0, finished_at=NOW),
    "cost": CostEntry(
        cluster="onprem",
        pod_uid="u",
        attempt="r-1",
        department="nlp",
        job="digits",
        billing=Billing.OWNED,
        gpus=1,
        gpu_hours=Decimal("0.10"),
        price_per_gpu_hour=Decimal("1E+2"),
        amount=Decimal("12345678901234567890.123456789"),
        started_at=NOW,
        ended_at=NOW + timedelta(microseconds=1),
    ),
    "checkpoint": CheckpointManifest(
        run="r",
        step=1,
        attempt=1,
        world_size=2,
        parts=(CheckpointPart(name="w", size_bytes=3, sha256="ab"),),
        data_cursor={"epoch": 1, "order": [3, 1, 2]},
        metrics={"loss": 0.1},
        created_at=NOW,
    ),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_comes_back_from_json_as_it_was(value: Any) -> None:
    assert decode(type(value), json.loads(json.dumps(encode(value)))) == value


def test_money_keeps_its_digits_and_moments_of_any_zone_become_utc() -> None:
    entry = VALUES["cost"]
    data = encode(entry) | {"started_at": "2026-03-31T22:00:00+09:00"}
    assert (data["gpu_hours"], data["amount"]) == ("0.10", "12345678901234567890.123456789")
    assert decode(CostEntry, data).started_at == datetime(2026, 3, 31, 13, tzinfo=UTC)
    assert encode(datetime(2026, 3, 31, 22, tzinfo=TOKYO)) == "2026-03-31T13:00:00+00:00"


def test_a_moment_without_a_zone_is_not_taken_for_local_time() -> None:
    with pytest.raises(ValueError, match="expected an aware moment"):
        encode(datetime(2026, 3, 31, 22))  # noqa: DTZ001 - the mistake itself


@pytest.mark.parametrize(("written", "uses"), [("digits", (DatasetUse(name="digits"),)), (None, ())])
def test_a_job_of_an_older_release_is_read_with_its_only_dataset(
    written: str | None, uses: tuple[DatasetUse, ...]
) -> None:
    older = {key: value for key, value in encode(JOB).items() if key != "datasets"} | {"dataset": written}
    assert decode(JobSpec, older) == replace(JOB, datasets=uses)


WRONG: dict[str, tuple[type, Any, dict[str, Any], str]] = {
    "unknown key": (JobSpec, JOB, {"gpu": 1}, "JobSpec: unknown key 'gpu'; known: backfill_orders_nodes, "),
    "a missing key": (Cluster, None, {}, "Cluster: .* missing "),
    "a word": (CostEntry, VALUES["cost"], {"billing": "free"}, "CostEntry.billing: expected Billing, got 'free'"),
    "a number": (JobSpec, JOB, {"nodes": "1"}, "JobSpec.nodes: expected int, got '1'"),
    "true for a number": (JobSpec, JOB, {"nodes": True}, "JobSpec.nodes: expected int, got True"),
    "money": (CostEntry, VALUES["cost"], {"amount": "much"}, "CostEntry.amount: expected Decimal, got 'much'"),
    "a moment": (CostEntry, VALUES["cost"], {"ended_at": "noon"}, "CostEntry.ended_at: expected datetime, got 'noon'"),
    "no zone": (CostEntry, VALUES["cost"], {"ended_at": "2026-03-31T22:00"}, "CostEntry.ended_at: expected datetime"),
    "text for a list": (JobSpec, JOB, {"command": "train"}, "JobSpec.command: expected a list, got 'train'"),
    "a list for a mapping": (JobSpec, JOB, {"environment": []}, r"JobSpec.environment: expected a mapping, got \[\]"),
    "a pair of one": (
        Snapshot,
        SEEN,
        {"datasets_present": [["digits"]]},
        "Snapshot.datasets_present: expected 2 items",
    ),
    "a pair that is none": (
        ScalingSnapshot,
        VALUES["look"].snapshot,
        {"last_out": [[["cloud", "h100"]]]},
        r"ScalingSnapshot.last_out\[0\]: expected 2 items, got 1",
    ),
    "deep inside": (
        PlacementDecision,
        VALUES["decision"],
        {"verdicts": [{"candidate": 7}]},
        r"PlacementDecision.verdicts\[0\].candidate: expected a mapping, got 7",
    ),
}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000], ids=lambda body: str(body[:4]))
def test_what_is_no_json_is_a_value_error_however_deep(body: bytes) -> None:
    with pytest.raises(ValueError):
        from_json(body)


@pytest.mark.parametrize(("kind", "value", "changes", "message"), WRONG.values(), ids=WRONG)
def test_data_of_another_shape_is_refused_by_the_path_of_the_field(
    kind: type, value: Any, changes: dict[str, Any], message: str
) -> None:
    data = {} if value is None else encode(value)
    with pytest.raises(ConfigError, match=f"^data: {message}"):
        decode(kind, data | changes)
