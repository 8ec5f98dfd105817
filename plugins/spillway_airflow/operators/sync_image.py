"""Bring a run's image to the site that was chosen for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from spillway.codec import encode
from spillway.model import Attempt
from spillway.runs.links import link_between_sites
from spillway.runs.services import Services
from spillway.runs.staging import stage_image
from spillway_airflow.operators.staging import StagingOperator


class SyncImageOperator(StagingOperator):
    """Mirror the image by digest to the registry of the run's open attempt."""

    def links_of(self, services: Services, attempt: Attempt) -> Iterable[str | None]:
        return [link_between_sites(services, services.image_home, attempt.candidate.cluster)]

    def stage(self, services: Services, attempt: Attempt, known: Collection[str]) -> Any:
        return encode(stage_image(services, attempt, self.log.info))
