import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Barrier

import pytest

from spillway.checkpoints import parts as parts_module
from spillway.checkpoints.layout import head_key, manifest_key, part_key, sha256_of
from spillway.checkpoints.store import CheckpointStore, ResumePoint
from spillway.errors import CorruptCheckpoint, ForeignCheckpoint, NoValidCheckpoint, Unreachable
from spillway.stores.base import ObjectStore, read_all
from spillway.stores.local import LocalStore
from spillway.testing.checkpoints import WatchedStore, commit_step

RUN = "llm-7b"
MANIFEST_200 = manifest_key(RUN, 200, 1)
PART_200 = part_key(RUN, sha256_of(b"weights of step 200"))


def two_steps(store: ObjectStore) -> CheckpointStore:
    """Steps 100 and 200 committed; opened anew, so that nothing is believed from having written it."""
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 100)
    commit_step(checkpoints, 200)
    return CheckpointStore(store, RUN)


def overwrite(store: ObjectStore, key: str, body: bytes) -> None:
    store.put(key, body, size_bytes=len(body))


DAMAGES: dict[str, tuple[Callable[[ObjectStore], object], str]] = {
    "manifest missing": (lambda store: store.delete([MANIFEST_200]), "its manifest is missing"),
    "manifest torn": (lambda store: overwrite(store, MANIFEST_200, b'{"run":"llm'), "its manifest has sha256"),
    "manifest of another step": (
        lambda store: overwrite(store, MANIFEST_200, read_all(store, manifest_key(RUN, 100, 1))),
        "its manifest has sha256",
    ),
    "part missing": (lambda store: store.delete([PART_200]), "part 'weights.npy' is missing"),
    "part of another size": (lambda store: overwrite(store, PART_200, b"short"), "has 5 bytes, expected 19"),
    "part with other bytes": (
        lambda store: overwrite(store, PART_200, b"WEIGHTS of step 200"),
        f"expected {sha256_of(b'weights of step 200')}",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_step_is_passed_over_with_its_reason_and_not_deleted(
    any_store: ObjectStore, damage: str
) -> None:
    act, reason = DAMAGES[damage]
    checkpoints = two_steps(any_store)
    act(any_store)
    before = {info.key for info in any_store.list()}
    point = checkpoints.resume_point()
    assert (point.step, point.manifest_key) == (100, manifest_key(RUN, 100, 1))
    assert len(point.rejected) == 1
    assert point.rejected[0].startswith("step 200 of attempt 1: ")
    assert reason in point.rejected[0]
    assert {info.key for info in any_store.list()} == before


def test_a_step_that_head_does_not_list_is_no_candidate(store: LocalStore) -> None:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 100)
    head = read_all(store, head_key(RUN))
    commit_step(checkpoints, 200)
    overwrite(store, head_key(RUN), head)
    assert CheckpointStore(store, RUN).resume_point() == ResumePoint(manifest=checkpoints.manifests()[0])


def test_an_undamaged_newest_step_is_the_resume_point(any_store: ObjectStore) -> None:
    checkpoints = two_steps(any_store)
    assert checkpoints.resume_point() == ResumePoint(manifest=checkpoints.manifests()[1])


def test_a_run_that_never_committed_begins_anew(store: LocalStore) -> None:
    checkpoints = CheckpointStore(store, RUN)
    assert checkpoints.resume_point() == ResumePoint(manifest=None)
    checkpoints.fence(1)
    assert checkpoints.resume_point() == ResumePoint(manifest=None)


def test_a_run_without_any_valid_step_stops_and_says_why_for_each(store: LocalStore) -> None:
    checkpoints = two_steps(store)
    store.delete([manifest_key(RUN, 100, 1), PART_200])
    with pytest.raises(NoValidCheckpoint) as caught:
        checkpoints.resume_point()
    assert str(caught.value) == (
        f"run 'llm-7b' has no valid committed step at {store.name}: "
        "step 200 of attempt 1: part 'weights.npy' is missing; step 100 of attempt 1: its manifest is missing"
    )


@pytest.mark.parametrize("key", [head_key(RUN), MANIFEST_200, PART_200], ids=["HEAD", "manifest", "part"])
def test_an_unreachable_store_is_not_taken_for_a_damaged_step(watched: WatchedStore, key: str) -> None:
    checkpoints = two_steps(watched)
    watched.unreadable = lambda asked: asked == key
    with pytest.raises(Unreachable):
        checkpoints.resume_point()


def test_a_promised_manifest_of_another_run_is_foreign(store: LocalStore) -> None:
    two_steps(store)
    with pytest.raises(ForeignCheckpoint) as caught:
        CheckpointStore(store, "run-2").committed_manifest(MANIFEST_200)
    assert (caught.value.run, caught.value.owner) == ("run-2", RUN)


def test_a_promised_manifest_is_read_when_it_is_committed(store: LocalStore) -> None:
    checkpoints = two_steps(store)
    assert checkpoints.committed_manifest(MANIFEST_200) == checkpoints.manifests()[1]


# -- bytes ------------------------------------------------------------------------------------------------------------


def test_a_part_is_loaded_by_its_name(any_store: ObjectStore) -> None:
    checkpoints = two_steps(any_store)
    assert checkpoints.load(checkpoints.manifests()[1], "weights.npy") == b"weights of step 200"


def test_a_part_that_is_not_listed_is_named_with_those_that_are(store: LocalStore) -> None:
    checkpoints = two_steps(store)
    with pytest.raises(CorruptCheckpoint, match=r"it has no part 'optimizer.npy'; its parts: weights.npy"):
        checkpoints.load(checkpoints.manifests()[1], "optimizer.npy")


@pytest.mark.parametrize("damage", ["part missing", "part of another size", "part with other bytes"])
def test_damaged_bytes_are_neither_loaded_nor_restored(store: LocalStore, tmp_path: Path, damage: str) -> None:
    checkpoints = two_steps(store)
    manifest = checkpoints.manifests()[1]
    DAMAGES[damage][0](store)
    with pytest.raises(CorruptCheckpoint, match="checkpoint of step 200 is not valid: "):
        checkpoints.load(manifest, "weights.npy")
    with pytest.raises(CorruptCheckpoint):
        checkpoints.restore(manifest, tmp_path / "restored")
    assert list((tmp_path / "restored").iterdir()) == []


def test_a_step_is_restored_as_files_by_their_names(any_store: ObjectStore, tmp_path: Path) -> None:
    parts = {"model/weights.npy": b"w" * 3_000_000, "model/deep/er.npy": b"", "optimizer.npy": b"o"}
    checkpoints = CheckpointStore(any_store, RUN)
    checkpoints.fence(1)
    manifest = commit_step(checkpoints, 10, parts=parts)
    CheckpointStore(any_store, RUN).restore(manifest, tmp_path / "restored")
    files = [path for path in (tmp_path / "restored").rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path / "restored").as_posix(): path.read_bytes() for path in files} == parts


def test_parts_may_be_called_like_the_files_of_a_restore_that_is_under_way(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "PARTS_AT_ONCE", 1)
    draft_of_w = f".spillway-half/{sha256_of(b'w')}"
    parts = {"w.half": b"in half precision", draft_of_w: b"a part too", "w": b"w"}
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    checkpoints.restore(commit_step(checkpoints, 10, parts=parts), tmp_path / "restored")
    files = [path for path in (tmp_path / "restored").rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path / "restored").as_posix(): path.read_bytes() for path in files} == parts
    assert {path.name for path in (tmp_path / "restored").iterdir()} == {"w", "w.half", ".spillway-half"}


def test_a_large_part_is_read_in_ranges_and_verified_as_a_whole(
    any_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "RANGE_BYTES", 1000)
    body = bytes(range(256)) * 40
    checkpoints = CheckpointStore(any_store, RUN)
    checkpoints.fence(1)
    manifest = commit_step(checkpoints, 10, parts={"weights": body})
    assert CheckpointStore(any_store, RUN).load(manifest, "weights") == body
    damaged = body[:5000] + b"!" + body[5001:]
    any_store.put(part_key(RUN, manifest.parts[0].sha256), damaged, size_bytes=len(damaged))
    with pytest.raises(CorruptCheckpoint, match="expected digest"):
        CheckpointStore(any_store, RUN).load(manifest, "weights")


def test_of_a_large_part_several_ranges_are_read_at_once(
    watched: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "RANGE_BYTES", 1000)
    ranges = parts_module.RANGES_AHEAD
    body = bytes(range(250)) * 4 * ranges
    checkpoints = CheckpointStore(watched, RUN)
    checkpoints.fence(1)
    manifest = commit_step(checkpoints, 10, parts={"weights": body})
    together = Barrier(ranges, timeout=60)
    watched.unreadable = lambda key: together.wait() < 0
    assert checkpoints.load(manifest, "weights") == body


RESTORE_ON_A_SMALL_DISK = """
import sys
from pathlib import Path
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import StoreFull
from spillway.stores.local import LocalStore

store, disk = Path(sys.argv[1]), Path(sys.argv[2])
checkpoints = CheckpointStore(LocalStore(store), "llm-7b")
try:
    checkpoints.restore(checkpoints.manifests()[0], disk / "restored")
except StoreFull as problem:
    print(problem, [path.name for path in disk.rglob("*") if path.is_file()])
"""


def test_a_full_disk_is_one_clear_error_and_leaves_no_half_file(store: LocalStore, tmp_path: Path) -> None:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10, parts={"weights.npy": b"w" * 300_000})
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=128k small "{disk}" && exec "$@"'
    python = [sys.executable, "-c", RESTORE_ON_A_SMALL_DISK, store.name.removeprefix("file://"), str(disk)]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", *python],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stderr == ""
    assert done.stdout == (
        f"the disk of {disk}/restored is full: {disk}/restored/weights.npy needs 300000 bytes, 131072 are free; "
        "free or add space and run it again []\n"
    )
