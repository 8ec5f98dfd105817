"""A provider of machines as the supervisor starts it."""

from __future__ import annotations

import sys
from pathlib import Path

from spillway.sandbox.kube.process import python_environment
from spillway.sandbox.process import ProcessSpec, http_answers
from spillway.sandbox.settings import SiteSettings


def machines_process(state: Path, site: SiteSettings) -> ProcessSpec:
    """The API for the machines of a site that has one."""
    port = int(site.machines_port or 0)
    return ProcessSpec(
        name=site.machines_process,
        argv=(sys.executable, "-m", "spillway.sandbox.machines", "--state", str(state), "--site", site.name),
        environment=python_environment(),
        working_directory=state / site.name,
        ready=lambda: http_answers(f"http://127.0.0.1:{port}/health"),
        ports=(port,),
    )
