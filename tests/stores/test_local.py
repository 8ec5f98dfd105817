"""The store on a file system: the contract, and where a file system is not an object store."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from spillway.errors import KeyRefused, Missing, StoreFull
from spillway.model import ObjectInfo
from spillway.stores.base import ObjectStore, read_all
from spillway.stores.local import LocalStore
from spillway.testing.contracts import RACERS, ObjectStoreContract, race

INCLUDE = Path(__file__).resolve().parents[2] / "include"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    (tmp_path / "root").mkdir()
    return LocalStore(tmp_path / "root")


class TestContract(ObjectStoreContract):
    pass


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def test_files_that_were_there_before_are_objects(store: ObjectStore, root: Path) -> None:
    (root / "scans").mkdir()
    (root / "scans" / "1.bin").write_bytes(b"one")
    assert [(entry.key, entry.size_bytes) for entry in store.list()] == [("scans/1.bin", 3)]
    assert read_all(store, "scans/1.bin") == b"one"


def test_a_key_below_an_object_and_an_object_over_a_folder_are_refused_by_name(store: ObjectStore) -> None:
    store.put("d/servers", b"x", size_bytes=1)
    with pytest.raises(KeyRefused, match=r"'d/servers/0/x': 'd/servers' is an object, so not a folder here"):
        store.put("d/servers/0/x", b"x", size_bytes=1)
    with pytest.raises(KeyRefused, match=r"'d': it is a folder of other objects here"):
        store.put("d", b"x", size_bytes=1)
    assert [entry.key for entry in store.list()] == ["d/servers"]


@pytest.mark.parametrize("key", ["../outside", "/outside", "a/../../outside", "folder/", "a//b", "n" * 256, "nul\0"])
def test_a_key_that_is_no_path_below_the_root_is_refused_by_name(store: ObjectStore, root: Path, key: str) -> None:
    (root.parent / "outside").write_text("secret")
    with pytest.raises(KeyRefused) as refusal:
        store.put(key, b"x", size_bytes=1)
    assert refusal.value.key == key
    assert store.head(key) is None
    with pytest.raises(Missing):
        read_all(store, key)
    assert store.delete([key]) == {key: refusal.value.problem}
    assert (root.parent / "outside").read_text() == "secret"


def test_a_file_whose_name_is_not_utf_8_is_refused_by_name_and_never_left_out(store: ObjectStore, root: Path) -> None:
    (root / os.fsdecode(b"caf\xe9")).write_text("x")
    with pytest.raises(KeyRefused, match=r"cannot hold the key 'caf\\udce9': it is not UTF-8.*rename the object"):
        list(store.list())
    with pytest.raises(KeyRefused, match="it is not UTF-8"):
        store.put("\udce9", b"x", size_bytes=1)


def test_a_link_is_not_followed_out_of_the_root(store: ObjectStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    for use in (
        lambda: store.put("folder/x", b"x", size_bytes=1),
        lambda: read_all(store, "folder/secret"),
        lambda: store.head("file"),
        lambda: list(store.list()),
    ):
        with pytest.raises(KeyRefused, match="a link that leads out"):
            use()
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


def test_a_folder_that_is_not_mounted_is_missing_not_empty(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "not-mounted")
    for use in (
        lambda: list(store.list()),
        lambda: store.head("x"),
        lambda: read_all(store, "x"),
        lambda: store.put("x", b"1", size_bytes=1),
        lambda: store.delete(["x"]),
    ):
        with pytest.raises(Missing, match=r"folder '.*not-mounted' is not in the file system; create or mount it"):
            use()


def test_a_full_disk_is_said_so_and_leaves_the_old_object(store: ObjectStore, root: Path) -> None:
    store.put("x", b"before", size_bytes=6)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(StoreFull, match=r"is full: .*free or add space"):
            store.put("x", b"y" * 200_000, size_bytes=200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert read_all(store, "x") == b"before"
    assert list(root.rglob("*.draft")) == []


def test_the_attributes_of_a_version_never_describe_another(store: ObjectStore, root: Path) -> None:
    store.put("x", b"one", size_bytes=3, content_type="text/one", metadata={"version": "1"})
    store.put("x", b"two", size_bytes=3)
    head = store.head("x")
    assert head is not None
    assert (head.content_type, head.metadata) == (None, {})
    assert len(list(root.rglob("notes/*/*"))) == 1
    store.delete(["x"])
    assert list(root.rglob("notes/*")) == []


def test_in_many_races_there_is_one_winner_each(store: ObjectStore) -> None:
    etag = store.put("x", b"start", size_bytes=5).etag
    for round_number in range(15):
        content = b"%d of round %d" % (RACERS, round_number)

        def write(number: int, etag: str = etag, content: bytes = content) -> ObjectInfo:
            body = b"%02d %s" % (number, content)
            return store.put("x", body, size_bytes=len(body), if_match=etag)

        assert len(race(RACERS, write)) == 1
        head = store.head("x")
        assert head is not None
        etag = head.etag


def test_a_deleted_object_leaves_no_folder_in_the_way(store: ObjectStore) -> None:
    store.put("d/servers/0", b"x", size_bytes=1)
    store.delete(["d/servers/0"])
    store.put("d", b"x", size_bytes=1)
    assert [entry.key for entry in store.list()] == ["d"]


WRITER = """
import sys, time
from pathlib import Path
from spillway.stores.local import LocalStore

def body():
    yield b"be" * 100_000
    print("begun", flush=True)
    sys.stdin.readline()
    yield b"gun"

LocalStore(Path(sys.argv[1])).put("x", body(), size_bytes=200_003)
"""


def test_the_draft_of_a_killed_writer_is_swept_and_that_of_a_living_one_never(store: ObjectStore, root: Path) -> None:
    argv = [sys.executable, "-c", WRITER, str(root)]
    environment = {**os.environ, "PYTHONPATH": str(INCLUDE)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen(argv, env=environment, text=True, **pipes) as killed,
        subprocess.Popen(argv, env=environment, text=True, **pipes) as living,
    ):
        for writer in (killed, living):
            assert writer.stdout is not None and writer.stdout.readline() == "begun\n"
        killed.kill()
        killed.wait(60)
        assert len(drafts(root)) == 2
        store.put("y", b"", size_bytes=0)
        assert len(drafts(root)) == 2, "the file system may not pass on locks, so what is young stays"
        for draft in drafts(root):
            os.utime(draft, (0, 0))
        LocalStore(root).put("y", b"", size_bytes=0)
        assert len(drafts(root)) == 1
        living.communicate("\n", timeout=60)
        assert living.returncode == 0
    assert (len(read_all(store, "x")), drafts(root)) == (200_003, [])


def drafts(root: Path) -> list[Path]:
    return list(root.rglob("*.draft"))
