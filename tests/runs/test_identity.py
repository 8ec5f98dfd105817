"""Names of runs: the same for the same work, a new one when it is asked for anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from spillway.losses import VerdictKind
from spillway.model import JobSpec
from spillway.runs.engine import place_run
from spillway.runs.identity import open_generation, run_base
from spillway.runs.services import Services
from spillway.runs.settling import Ended, settle

MakeJob = Callable[..., JobSpec]
ORIGIN: Mapping[str, Any] = {"dag_id": "train", "run_id": "manual__1", "task_id": "place", "map_index": -1}


def end(services: Services, run: str, job: JobSpec, kind: VerdictKind) -> None:
    attempt = place_run(services, run, job, print)
    settle(services, attempt, Ended(kind=kind, reason="as the test wants it"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["digits", "a" * 60, "x" * 23 + "-y"], ids=["short", "long", "hyphen-at-the-cut"])
def test_the_base_of_a_run_leaves_room_in_a_dns_label(name: str) -> None:
    base = run_base(name, ORIGIN)
    assert len(f"{base}-9999-9999") <= 63
    assert "--" not in base


def test_every_part_of_the_origin_counts_and_its_order_does_not() -> None:
    same = run_base("digits", dict(reversed(list(ORIGIN.items()))))
    assert same == run_base("digits", ORIGIN)
    others = {run_base("digits", {**ORIGIN, key: "other"}) for key in ORIGIN}
    assert len(others | {same}) == len(ORIGIN) + 1


def test_asking_again_while_the_run_is_open_gives_the_same_run(services: Services, make_job: MakeJob) -> None:
    job = make_job()
    first = open_generation(services, job, ORIGIN)
    assert first == f"{run_base('digits', ORIGIN)}-1"
    assert open_generation(services, job, ORIGIN) == first
    place_run(services, first, job, print)
    assert open_generation(services, job, ORIGIN) == first


@pytest.mark.parametrize(
    ("kind", "generation"),
    [
        (VerdictKind.LOST_NODE, 1),
        (VerdictKind.SUCCEEDED, 2),
        (VerdictKind.PROGRAM_ERROR, 2),
        (VerdictKind.DELETED_BY_PERSON, 2),
    ],
)
def test_a_run_that_is_over_is_followed_by_the_next_generation(
    services: Services, make_job: MakeJob, kind: VerdictKind, generation: int
) -> None:
    job = make_job()
    end(services, open_generation(services, job, ORIGIN), job, kind)
    assert open_generation(services, job, ORIGIN) == f"{run_base('digits', ORIGIN)}-{generation}"
