"""What ``policy.yaml`` may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from spillway.config import notation
from spillway.config.scaling import ScalingEntry
from spillway.config.schema import CheckpointsEntry, Entry, IterationEntry, PlacementEntry, RunsEntry, SamplesEntry

VERSION = 1
"""Of the keys of the file and what they mean. A release that gives one another meaning has another number."""


class PolicyFile(Entry):
    """``version`` may be left out; a file that says another one is refused before anything else is looked at."""

    version: int = VERSION
    iteration: IterationEntry = IterationEntry()
    placement: PlacementEntry
    runs: RunsEntry = RunsEntry()
    checkpoints: CheckpointsEntry = CheckpointsEntry()
    samples: SamplesEntry = SamplesEntry()
    scaling: ScalingEntry | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_this_version(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and (written := data.get("version", VERSION)) != VERSION:
            raise notation.refused(
                f"the file says version {written!r}, and this release reads {VERSION}; "
                "bring its keys to those of include/config/policy.yaml, or use the release that it was written for"
            )
        return data
