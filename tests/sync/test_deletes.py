"""Deletes: what a store refuses to delete is tried again and told; a listing that cannot be trusted deletes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pytest

from spillway.errors import IncompleteListing
from spillway.model import ObjectInfo
from spillway.sync import work
from spillway.sync.manifest import verified_copies


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_DELETE_PAUSE_SECONDS", 0.0)


@pytest.fixture
def shrunk(ends):
    """Ten objects at the destination, of which the source has lost two."""
    ends.fill({f"{n}": b"x" for n in range(10)})
    ends.sync()
    ends.home.store.delete(["digits/3", "digits/4"])
    return ends


def refuse(ends, times: int) -> list[set[str]]:
    """Let the destination refuse one key inside an answer that is a success; gives what was asked each time."""
    asked: list[set[str]] = []
    real = ends.cloud.delete

    def delete(keys: Iterable[str]) -> Mapping[str, str]:
        wanted = set(keys)
        asked.append(wanted)
        if "digits/3" in wanted and len(asked) <= times:
            return {**real(wanted - {"digits/3"}), "digits/3": "SlowDown: later"}
        return real(wanted)

    ends.cloud.delete = delete
    return asked


def test_an_object_that_is_refused_once_is_deleted_by_the_next_try(shrunk) -> None:
    asked = refuse(shrunk, 1)
    report = shrunk.sync(delete=True)
    assert (report.ok, asked) == (True, [{"digits/3", "digits/4"}, {"digits/3"}])
    assert {key for key, fate in shrunk.fates().items() if fate == "deleted"} == {"3", "4"}


def test_an_object_that_is_refused_again_and_again_is_told_and_the_copy_is_not_called_whole(shrunk) -> None:
    refuse(shrunk, 99)
    report = shrunk.sync(delete=True)
    assert (shrunk.fates()["3"], shrunk.fates()["4"]) == ("failed", "deleted")
    assert report.failures == ("digits/3: not deleted: SlowDown: later",)
    assert verified_copies(shrunk.cloud.store) == {}


@pytest.mark.parametrize("end", ["home", "cloud"])
def test_a_listing_that_gives_a_key_twice_or_breaks_off_changes_nothing(local_ends, end: str) -> None:
    ends = local_ends
    ends.fill({f"{n}": b"x" for n in range(10)})
    ends.sync()
    ends.home.store.delete(["digits/3"])
    before = ends.at_cloud()
    store = getattr(ends, end)
    real = store.list

    def twice(prefix: str = "") -> Iterator[ObjectInfo]:
        yield from real(prefix)
        yield next(iter(real(prefix)))

    def broken(prefix: str = "") -> Iterator[ObjectInfo]:
        yield next(iter(real(prefix)))
        raise IncompleteListing("the listing broke off")

    for listing in (twice, broken):
        store.list = listing
        with pytest.raises(IncompleteListing):
            ends.sync(delete=True)
        assert ends.at_cloud() == before
    assert ends.cloud.calls["put"] == ends.cloud.calls["delete"] == 0
