"""The tasks of the DAGs that tell what other policies would have done."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from spillway.config import configuration_directory, load_candidate
from spillway.config.directories import reports_directory
from spillway.config.load import SHADOW
from spillway.runs.reports import write_files
from spillway.runs.shadows import shadows
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services
from spillway_airflow.parameters import refuse_unknown_parameters


def run_shadow(*, dry_run: bool, say: Any) -> dict[str, Any]:
    """Tell what the candidate of ``shadow.yaml`` would have decided yesterday; skipped where none is declared.

    Gives all but the differences themselves, which are in the log and in the file.
    """
    with typed_failures():
        refuse_unknown_parameters(get_current_context())
        services = worker_services()
        file = configuration_directory(os.environ) / SHADOW
        if not file.exists():
            raise AirflowSkipException(f"no candidate is declared: there is no {file}")
        candidate = load_candidate(file, services.configuration.clusters)
        until = services.clock().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        since = until - timedelta(days=1)
        found = shadows(services.ledger, *candidate, since=since, until=until)
        say("%s", found.told())
        text, name = json.dumps(found.data(), indent=1), f"{since:%Y-%m-%d}.json"
        folder = _folder("shadow", dry_run=dry_run)
        if folder is not None:
            write_files(folder, {name: lambda path: path.write_text(text, encoding="utf-8")})
            say("wrote %s", folder / name)
    return found.summary()


def run_comparison(*, days: int, dry_run: bool, say: Any) -> dict[str, Any] | None:
    """Compare policies on the jobs of so many days; None where there are too few of them, which is no failure."""
    from spillway.replay.own import own_comparison, policies_of, told, write_comparison
    from spillway.replay.report import as_json

    @contextmanager
    def following(text: str) -> Iterator[Callable[[str], None]]:
        say("%s", text)
        yield lambda state: None

    with typed_failures():
        refuse_unknown_parameters(get_current_context())
        services = worker_services()
        now = services.clock()
        found = own_comparison(
            services.ledger.job_history(),
            tuple(services.configuration.clusters.values()),
            policies_of(configuration_directory(os.environ)),
            since=now - timedelta(days=days),
            following=following,
        )
        if isinstance(found, str):
            say("%s", found)
            return None
        say("%s", told(found))
        folder = _folder("replays", dry_run=dry_run)
        if folder is not None:
            for path in write_comparison(found, folder, f"{now.astimezone(UTC):%Y-%m-%d}"):
                say("wrote %s", path)
    return as_json(found)


def _folder(name: str, *, dry_run: bool) -> Path | None:
    """Where such reports are kept; None where they are only logged."""
    folder = reports_directory(os.environ)
    return None if folder is None or dry_run else folder / name
