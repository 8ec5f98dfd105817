"""Bring what a run reads to the site that was chosen for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from spillway.model import Attempt, DatasetUse
from spillway.runs.links import link_between_sites
from spillway.runs.services import Services
from spillway.runs.staging import stage_datasets
from spillway.sync.report import summary
from spillway_airflow.operators.staging import StagingOperator


class SyncDatasetOperator(StagingOperator):
    """Copy what is new or changed to the store of the run's open attempt; gives the counts of each report."""

    def links_of(self, services: Services, attempt: Attempt) -> Iterable[str | None]:
        return [_link(services, attempt, use) for use in attempt.job.datasets]

    def stage(self, services: Services, attempt: Attempt, known: Collection[str]) -> list[dict[str, Any]]:
        target = attempt.candidate.cluster
        mine = [use for use in attempt.job.datasets if self.serves(_link(services, attempt, use), known)]
        reports = stage_datasets(services, attempt.job, target, self.log.info, run=attempt.run, only=mine)
        return [{"cluster": target, **summary(report)} for report in reports]


def _link(services: Services, attempt: Attempt, use: DatasetUse) -> str | None:
    return link_between_sites(services, services.dataset(use.name).home, attempt.candidate.cluster)
