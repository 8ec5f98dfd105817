"""Whoever waits for a place looks again and again, without reserving anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spillway.model import JobSpec
from spillway.runs.admission import decide, look, snapshot
from spillway.testing.carried_run import Carried

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


def test_a_look_counts_what_was_promised_since_the_clusters_were_seen(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(gpu_model="H100", gpus_per_node=1))
    seen = snapshot(run.services, run.job)
    [cloud] = [state for state in seen.clusters if state.cluster.name == "cloud"]
    free = sum(node.allocatable_gpus for node in cloud.nodes)
    for _ in range(free):
        found = look(run.services, run.job, seen)
        assert found.chosen is not None
        assert found.chosen.cluster == "cloud"
        open_run(run.job).place()
    for job, possible in ((run.job, True), (replace(run.job, gpu_model="V100"), False)):
        found = look(run.services, job, seen)
        assert found == replace(decide(run.services, job, seen), verdicts=())
        assert (found.chosen, found.possible) == (None, possible)
