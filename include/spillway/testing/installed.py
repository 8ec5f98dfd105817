"""An installation as Airflow's processes find it: a configuration directory, and Connections in the environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.ledger import Ledger, open_ledger
from spillway.sandbox.configuration import write_configuration, write_connections
from spillway.sandbox.settings import SandboxSettings, sandbox_settings
from spillway.sandbox.sites import certificates
from spillway.testing.ledger_files import new_ledger

UNUSED_PORTS = 1
"""Below every port that a sandbox takes, so that nobody's answers here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What a sandbox would declare that does not run; a test replaces what is to answer."""

    settings: SandboxSettings
    environment: pytest.MonkeyPatch

    @property
    def ledger(self) -> Ledger:
        return open_ledger(self.settings.ledger_url)

    def connection(self, conn_id: str, entry: dict[str, Any] | None) -> None:
        """Let the Connection be this one from now on, or none."""
        name = f"AIRFLOW_CONN_{conn_id.upper()}"
        if entry is None:
            self.environment.delenv(name)
        else:
            self.environment.setenv(name, json.dumps(entry))

    def kubernetes(self, site: str, kubeconfig: dict[str, Any]) -> None:
        """Let the site's cluster be reached by this kubeconfig from now on."""
        extra = json.dumps({"kube_config": json.dumps(kubeconfig)})
        self.connection(f"{site}_kubernetes", {"conn_type": "kubernetes", "extra": extra})

    def edit(self, file: str, change: Callable[[Any], None]) -> None:
        """Change a file of the configuration as a person would."""
        path = self.settings.config / file
        document = yaml.safe_load(path.read_text())
        change(document)
        path.write_text(yaml.safe_dump(document))


def install(directory: Path, environment: pytest.MonkeyPatch) -> Installed:
    """An installation with every Connection and an empty ledger."""
    settings = sandbox_settings(directory, UNUSED_PORTS)
    write_configuration(settings)
    write_connections(settings, certificates(settings))
    new_ledger(settings.state / "ledger.db")
    environment.setenv("SPILLWAY_CONFIG_DIR", str(settings.config))
    made = Installed(settings=settings, environment=environment)
    for conn_id, entry in json.loads(settings.connections.read_text()).items():
        made.connection(conn_id, entry)
    return made
