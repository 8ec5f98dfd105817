"""Images and checkpoints on their way say how far they are, as datasets do."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

from spillway.checkpoints.store import CheckpointStore
from spillway.model import JobSpec, Tier
from spillway.runs.moving_checkpoints import copy_checkpoints
from spillway.runs.moving_images import copy_image
from spillway.runs.services import Services
from spillway.sync.progress import Progress
from spillway.testing.carried_run import Carried
from spillway.testing.checkpoints import commit_step
from spillway.testing.images import put_image

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
MIB = 1 << 20


def test_an_image_counts_the_bytes_that_its_site_lacks_and_no_others(services: Services) -> None:
    repository, layer = f"train-{uuid.uuid4().hex}", os.urandom(2 * MIB)
    put_image(services.site("onprem").registry, repository, "v1", layer=layer)
    seen: list[Progress] = []
    report = copy_image(services, repository, "v1", "cloud", tier=Tier.PUBLIC, on_progress=seen.append)
    assert seen[-1] == Progress(bytes_total=report.bytes_copied, bytes_done=report.bytes_copied)
    assert report.bytes_copied > 2 * MIB
    again: list[Progress] = []
    copy_image(services, repository, "v1", "cloud", tier=Tier.PUBLIC, on_progress=again.append)
    assert [each.bytes_done for each in again if each.bytes_done] == []


def test_checkpoints_count_the_parts_that_are_sent(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    attempt = run.place()
    store = CheckpointStore(run.services.site("onprem").checkpoints, run.run)
    store.fence(1)
    shared = os.urandom(MIB)
    commit_step(store, 2, parts={"a": shared, "b": os.urandom(MIB)})
    commit_step(store, 4, parts={"a": shared, "b": os.urandom(MIB)})
    seen: list[Progress] = []
    report = copy_checkpoints(run.services, attempt, "onprem", "cloud", run.said.append, seen.append)
    assert seen[-1] == Progress(bytes_total=3 * MIB, bytes_done=3 * MIB)
    assert report.bytes_copied == 3 * MIB
    assert 0 < seen[0].bytes_done <= seen[0].bytes_total == 2 * MIB
