"""The same training without any interruption, for its loss curve."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from spillway.checkpoints.curve import loss_curve
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import SandboxError
from spillway.model import JobSpec
from spillway.sandbox.sample_data import digits_shards
from spillway.sandbox.settings import INCLUDE
from spillway.sandbox.sites import SHARDS
from spillway.stores.local import LocalStore

RUN = "reference"


def reference_loss(job: JobSpec, folder: Path) -> tuple[tuple[int, float], ...]:
    """(step, loss) of every step of the job, trained from start to end by one process in ``folder``."""
    for bucket in ("datasets", "checkpoints"):
        (folder / bucket).mkdir()
    datasets, checkpoints = LocalStore(folder / "datasets"), LocalStore(folder / "checkpoints")
    for name, body in digits_shards(SHARDS).items():
        datasets.put(f"digits/{name}", body, size_bytes=len(body))
    store = CheckpointStore(checkpoints, RUN)
    store.fence(1)
    result = subprocess.run(
        [sys.executable, "-m", "spillway.trainer", *job.command],
        env=_environment(job, folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if result.returncode != 0:
        raise SandboxError(f"the undisturbed reference run failed ({result.returncode}):\n{result.stderr[-2000:]}")
    return loss_curve(store.manifests())


def _environment(job: JobSpec, folder: Path) -> Mapping[str, str]:
    return dict(job.environment) | {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(INCLUDE),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "SPILLWAY_STEP_SECONDS": "0",
        "SPILLWAY_RUN": RUN,
        "SPILLWAY_ATTEMPT": "1",
        "SPILLWAY_STORE_ENDPOINT": folder.as_uri(),
        "SPILLWAY_STORE_REGION": "local",
        "SPILLWAY_STORE_ACCESS_KEY": "local",
        "SPILLWAY_STORE_SECRET_KEY": "local",
        "SPILLWAY_CHECKPOINT_BUCKET": "checkpoints",
        "SPILLWAY_DATASET_BUCKET": "datasets",
        "SPILLWAY_DATASET_PREFIX": "digits/",
    }
