"""The pod of an attempt as ``launch`` takes it, for tests of clusters."""

from __future__ import annotations

from typing import Any

from spillway.clouds.pod import PodAccess, build_pod
from spillway.model import Cluster
from spillway.testing.builders import INSTALLATION, attempt, job_spec

IMAGE = "registry.onprem:5000/train/digits@sha256:" + "a" * 64


def manifest(
    cluster: Cluster,
    *,
    run: str = "digits-7f3a",
    installation: str = INSTALLATION,
    environment: dict[str, str] | None = None,
    **job: Any,
) -> dict[str, Any]:
    """The pod, or the Job of several, of the run's first attempt."""
    return dict(
        build_pod(
            attempt=attempt(run=run, job=job_spec(**job)),
            installation=installation,
            cluster=cluster,
            image=IMAGE,
            environment=environment or {},
            access=PodAccess(store_secret="store", pull_secret="registry"),
        )
    )
