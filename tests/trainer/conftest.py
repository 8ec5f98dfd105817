"""Sites to train at: folders, and a real S3 server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spillway.testing.s3_server import S3Server
from spillway.testing.training import Finished, Train, TrainingSite, finished, folder_site, load_digits
from spillway.trainer.__main__ import main


@pytest.fixture(autouse=True)
def _process_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A trainer that runs within the test's process takes over its signal handler and its environment."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("os.environ", dict(os.environ))
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def site(tmp_path: Path) -> TrainingSite:
    """A site whose buckets are folders."""
    return folder_site(tmp_path)


@pytest.fixture
def s3_site(s3_server: S3Server) -> TrainingSite:
    """A site with a real S3 server."""
    return site_of(s3_server)


@pytest.fixture
def own_s3_site(own_s3_server: S3Server) -> TrainingSite:
    """The same with a server that the test may kill."""
    return site_of(own_s3_server)


def site_of(s3_server: S3Server) -> TrainingSite:
    """A site at the server; the trainer gets the identity of pods, not the administrator's."""
    data, checkpoints = s3_server.new_bucket(), s3_server.new_bucket()
    load_digits(s3_server.open(data))
    variables = {
        "SPILLWAY_STORE_ENDPOINT": s3_server.endpoint_url,
        "SPILLWAY_STORE_REGION": s3_server.region,
        "SPILLWAY_STORE_ACCESS_KEY": s3_server.trainer.access_key,
        "SPILLWAY_STORE_SECRET_KEY": s3_server.trainer.secret_key,
        "SPILLWAY_DATASET_BUCKET": data,
        "SPILLWAY_CHECKPOINT_BUCKET": checkpoints,
    }
    return TrainingSite(data=s3_server.open(data), bucket=s3_server.open(checkpoints), variables=variables)


@pytest.fixture(params=["folder", "s3"])
def any_site(request: pytest.FixtureRequest) -> TrainingSite:
    """A site of every kind."""
    found: TrainingSite = request.getfixturevalue("site" if request.param == "folder" else "s3_site")
    return found


@pytest.fixture
def train(capsys: pytest.CaptureFixture[str]) -> Train:
    """Runs an attempt within the test's process, for whatever does not need a process of its own."""

    def run(
        site: TrainingSite, *, program: str = "digits", attempt: int = 1, fence: bool = True, **changes: Any
    ) -> Finished:
        if fence:
            site.checkpoints.fence(attempt)
        capsys.readouterr()
        code = main([program], site.environment(attempt=attempt, **changes))
        stdout, stderr = capsys.readouterr()
        return finished(code, stdout.splitlines(), stderr)

    return run
