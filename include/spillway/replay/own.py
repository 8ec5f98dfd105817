"""An installation's own history under its policy, the candidate beside it, and the presets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from spillway.config.load import POLICY, SHADOW
from spillway.demand.render import aligned
from spillway.errors.counts import counted
from spillway.model import Cluster, JobRecord
from spillway.replay.comparing import Following, comparison, policy_of, replayable
from spillway.replay.engine import Policy
from spillway.replay.page import page
from spillway.replay.report import HEADER, Comparison, as_json, rows
from spillway.runs.reports import Writer, write_files
from spillway.scaling.presets import PRESETS

ENOUGH = timedelta(days=7)
"""Demand has another shape at weekends, so figures of less tell little."""


def policies_of(directory: Path) -> tuple[Policy, ...]:
    """The policy in force, called ``policy``, the candidate if one is declared, ``shadow``, and every preset.

    Raises:
        ConfigError: a file is wrong.
    """
    files = [directory / POLICY, *([directory / SHADOW] if (directory / SHADOW).exists() else [])]
    return (*(policy_of(str(file)) for file in files), *(policy_of(name) for name in PRESETS))


def own_comparison(
    history: Sequence[JobRecord],
    clusters: Sequence[Cluster],
    policies: Sequence[Policy],
    *,
    since: datetime,
    following: Following,
) -> Comparison | str:
    """The jobs that were submitted since then under each of the policies; why there is nothing to compare, if so.

    Args:
        history: by submission.
        clusters: those without GPUs are left out.
    """
    jobs, notes = replayable([job for job in history if job.submitted_at >= since])
    covered = jobs[-1].submitted_at - jobs[0].submitted_at if jobs else timedelta(0)
    if covered < ENOUGH:
        return (
            f"nothing to compare yet: {counted(len(jobs), 'job')} submitted since {since:%Y-%m-%d} and ended, over "
            f"{counted(covered.days, 'day')}; expected at least {ENOUGH.days} days of them "
            "(`history import` adds another scheduler's)"
        )
    usable = [cluster for cluster in clusters if any(pool.max_gpus for pool in cluster.pools)]
    return comparison("own history", jobs, usable, policies, notes=notes, following=following)


def told(found: Comparison) -> str:
    """The table of a comparison and what a reader should know of it, for a log."""
    cells = [["-" if cell is None else cell for cell in row] for row in rows(found)]
    return "\n".join([aligned([HEADER, *cells]), *found.remarks()])


def write_comparison(found: Comparison, folder: Path, name: str) -> tuple[Path, ...]:
    """Write it as a page and as JSON under that name; raises as ``write_files``."""
    contents: dict[str, Writer] = {
        f"{name}.html": lambda path: path.write_text(page(found), encoding="utf-8"),
        f"{name}.json": lambda path: path.write_text(json.dumps(as_json(found), indent=1), encoding="utf-8"),
    }
    return write_files(folder, contents)
