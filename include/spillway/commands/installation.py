"""The installation that a command works on: where it is declared, and what its names stand for."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from spillway.config import Configuration, configuration_directory, job_file, jobs_directory, load, load_job
from spillway.config.directories import CONNECTIONS_VARIABLE
from spillway.connections import connections_from_file, database_url
from spillway.errors import ConfigError, Missing, UnknownName
from spillway.ledger import RunRecord
from spillway.model import Cluster, Dataset, JobSpec
from spillway.runs.local import LEDGER_CONNECTION, connector, local_services
from spillway.runs.services import Connect, Services

LATEST_RUNS_NAMED = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A configuration directory, a directory of job files and, where somebody named one, a file of Connections."""

    configuration_directory: Path
    jobs_directory: Path
    connections_file: Path | None

    def configuration(self) -> Configuration:
        """What is declared."""
        return load(self.configuration_directory)

    def connect(self) -> Connect:
        """How a Connection is found by name.

        Raises:
            ConfigError: the file is missing or has another shape: one fault, and not one of each Connection in it.
        """
        file = self._connections()
        connections_from_file(file)
        return connector(file)

    def ledger_url(self) -> str:
        """Where the ledger is."""
        return database_url(self.connect()(LEDGER_CONNECTION))

    def services(self) -> Services:
        """What carrying out a run needs."""
        return local_services(self.configuration_directory, self._connections(), self.jobs_directory)

    def job(self, name: str, datasets: Mapping[str, Dataset]) -> JobSpec:
        """The job of that name in the directory of job files, or of the file where ``name`` is a path with a slash."""
        file = Path(name) if "/" in name else job_file(self.jobs_directory, name)
        return load_job(file, datasets)

    def _connections(self) -> Path:
        if self.connections_file is None:
            raise ConfigError(
                CONNECTIONS_VARIABLE,
                "",
                "is not set; expected the file that `airflow connections export --file-format json` writes, "
                "here or as --connections FILE; the sandbox's is build/sandbox/connections.json",
            )
        return self.connections_file


def installation(
    environ: Mapping[str, str] | None = None, *, config_dir: Path | None = None, connections: Path | None = None
) -> Installation:
    """The installation that the environment names; what is given here goes before it."""
    variables = os.environ if environ is None else environ
    named = variables.get(CONNECTIONS_VARIABLE)
    return Installation(
        configuration_directory=config_dir or configuration_directory(variables),
        jobs_directory=jobs_directory(variables),
        connections_file=connections or (Path(named) if named else None),
    )


def cluster(services: Services, name: str) -> Cluster:
    """The declared cluster; raises UnknownName."""
    return _declared("cluster", name, services.configuration.clusters)


def dataset(services: Services, name: str) -> Dataset:
    """The declared dataset; raises UnknownName."""
    return _declared("dataset", name, services.configuration.datasets)


def run_record(services: Services, name: str) -> RunRecord:
    """The run as it was opened.

    Raises:
        Missing: the ledger has no such run; a close name, or the latest ones, are told.
    """
    records = {record.run: record for record in services.ledger.runs()}
    if name in records:
        return records[name]
    close = difflib.get_close_matches(name, records, n=1)
    latest = ", ".join([*records][-LATEST_RUNS_NAMED:])
    fix = f"did you mean '{close[0]}'?" if close else f"its latest runs: {latest}" if latest else "it has no run yet"
    raise Missing("run", name, "the ledger", fix=fix)


def _declared(kind: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise UnknownName(kind, name, known)
    return known[name]
