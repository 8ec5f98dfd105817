"""Uploads of parts that were begun and never ended: a sweep aborts those that nobody will take up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from spillway.checkpoints.claims import CLAIM_LIFE, claim_parts
from spillway.checkpoints.layout import part_key, sha256_of
from spillway.checkpoints.parts import measure
from spillway.checkpoints.prune import PruneReport
from spillway.checkpoints.store import CheckpointStore
from spillway.checkpoints.sweep import SweepReport, sweep
from spillway.errors import AccessDenied
from spillway.runs.retention import summary
from spillway.stores.base import Upload
from spillway.stores.s3 import S3Store
from spillway.testing.checkpoints import WatchedStore, commit_step
from spillway.testing.s3_server import S3Server

RUN, OTHER_RUN = "llm-7b", "llm-7b-2"


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def store(s3_server: S3Server, bucket: str) -> S3Store:
    return s3_server.open(bucket)


def begun(server: S3Server, bucket: str, run: str, body: bytes) -> str:
    """The key of a part of which an upload was begun and one piece sent."""
    key, client = part_key(run, sha256_of(body)), server.client()
    upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=body)
    return key


def swept(checkpoints: CheckpointStore, age: timedelta, *, dry_run: bool = False) -> SweepReport:
    """What a sweep does that much later."""
    return sweep(checkpoints, now=datetime.now(UTC) + age, grace=timedelta(0), dry_run=dry_run)


def unfinished(store: S3Store) -> set[str]:
    return {upload.key for upload in store.uploads()}


def test_uploads_of_the_run_that_nobody_ended_within_the_life_of_a_claim_are_aborted(
    s3_server: S3Server, bucket: str, store: S3Store
) -> None:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10)
    lost = begun(s3_server, bucket, RUN, b"of a killed attempt")
    strange = begun(s3_server, bucket, OTHER_RUN, b"of another run")
    assert swept(checkpoints, CLAIM_LIFE - timedelta(minutes=5)).uploads == ()
    assert swept(checkpoints, CLAIM_LIFE + timedelta(minutes=5), dry_run=True).uploads == (lost,)
    assert unfinished(store) == {lost, strange}

    report = swept(checkpoints, CLAIM_LIFE + timedelta(minutes=5))
    assert report.uploads == (lost,)
    assert unfinished(store) == {strange}
    assert f"1 unfinished uploads aborted: {lost}" in summary(PruneReport(swept=report))
    assert checkpoints.resume_point().step == 10


class LateClaims(WatchedStore):
    """A store whose claims are as young as the moment of the sweep, as those of a living attempt are."""

    def list(self, prefix: str = "") -> Iterator[object]:  # type: ignore[override]
        for info in super().list(prefix):
            yield info._replace(modified_at=None) if "/claims/" in info.key else info


def test_an_upload_of_a_part_that_a_living_attempt_has_claimed_is_left_alone_however_old(
    s3_server: S3Server, bucket: str, store: S3Store
) -> None:
    checkpoints = CheckpointStore(LateClaims(store), RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10)
    wanted = begun(s3_server, bucket, RUN, b"of step 20")
    claim_parts(store, RUN, measure({"weights": b"of step 20"}), step=20, attempt=1)
    assert swept(checkpoints, 2 * CLAIM_LIFE).uploads == ()
    assert unfinished(store) == {wanted}


class Secretive(WatchedStore):
    """A store that does not let this identity see uploads."""

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        raise AccessDenied(self.name, "ListMultipartUploads is not allowed", fix="allow it")


def test_an_identity_that_may_not_see_uploads_sweeps_the_rest_and_says_so(store: S3Store) -> None:
    checkpoints = CheckpointStore(Secretive(store), RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10)
    left_over = part_key(RUN, sha256_of(b"left"))
    store.put(left_over, b"left", size_bytes=4)
    report = swept(checkpoints, timedelta(hours=1))
    assert (report.parts, report.uploads) == (1, ())
    assert "ListMultipartUploads is not allowed" in report.uploads_unknown
    assert "which uploads are unfinished is not known" in summary(PruneReport(swept=report))
