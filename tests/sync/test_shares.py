"""A sync that many workers share ends as one worker's does."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from spillway.errors import KeepsChanging, Missing, SyncIncomplete, Unreachable
from spillway.model import KeyScope
from spillway.stores.base import ObjectStore, read_all
from spillway.sync.drafts import OBJECT_BYTES
from spillway.sync.manifest import load_record, verified_copies
from spillway.sync.progress import Progress
from spillway.sync.report import ObjectFate, SyncReport, summary
from spillway.sync.shares import Share, copy_share, divide, merge
from spillway.sync.work import Route

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTENTS = {f"{n:03}": b"%03d" % n for n in range(60)}


def route(ends, dataset: str = "digits") -> Route:
    return Route(source=ends.home, destination=ends.cloud, dataset=dataset, scope=KeyScope(prefix="digits/"))


def everything(key: str) -> bool:
    return True


def divided(ends, workers: int, **wish) -> tuple[SyncReport, tuple[Share, ...]]:
    share_bytes = 1 if workers == 1 else 12 * OBJECT_BYTES
    return divide(route(ends), now=NOW, workers=workers, share_bytes=share_bytes, **wish)


def merged(ends, shares: tuple[Share, ...]) -> SyncReport:
    return merge(route(ends), shares[0].draft)


def shared(ends, workers: int, **wish) -> SyncReport:
    """Plan, copy with one thread a share as workers do, merge."""
    report, shares = divided(ends, workers, **wish)
    if not shares:
        return report
    with ThreadPoolExecutor(len(shares)) as pool:
        list(pool.map(lambda share: copy_share(route(ends), share, everything), shares))
    return merged(ends, shares)


def recorded(store: ObjectStore) -> tuple[object, bytes]:
    record = load_record(store, "digits").record
    facts = (record.source, record.scope, record.whole, record.objects, record.size_bytes, record.versions)
    return facts, read_all(store, record.entries)


def change(ends) -> None:
    ends.fill({f"{n:03}": b"changed" for n in range(0, 60, 2)} | {"new": b"new"})
    ends.home.store.delete(["digits/001", "digits/003"])


def test_five_workers_end_as_one_does_in_report_record_and_data(
    s3_ends, s3_sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First all is new, then some of it has changed or is gone."""
    ends: dict[str, object] = {"alone": s3_ends}
    for name in ("one share", "five shares"):
        ends[name] = type(s3_ends)(s3_ends.home.store, s3_sites["cloud"].store())
    syncs: dict[str, Callable[..., SyncReport]] = {
        "alone": lambda each, **wish: each.sync(now=NOW, **wish),
        "one share": lambda each, **wish: shared(each, 1, **wish),
        "five shares": lambda each, **wish: shared(each, 5, **wish),
    }
    s3_ends.fill(CONTENTS)
    for wish in ({}, {"verify": True}):
        reports = {name: summary(sync(ends[name], **wish)) for name, sync in syncs.items()}
        assert reports["one share"] == reports["five shares"] == reports["alone"]
        assert reports["alone"]["objects_copied"] == (31 if wish else 60)
        states = [(recorded(each.cloud.store), each.at_cloud()) for each in ends.values()]
        assert states[0] == states[1] == states[2]
        change(s3_ends)


def test_shares_are_ranges_of_keys_of_about_equal_weight(local_ends) -> None:
    local_ends.fill(CONTENTS)
    _, shares = divided(local_ends, 5)
    draft = shares[0].draft
    assert shares == tuple(Share(draft=draft, number=number, of=5, objects=12, size_bytes=36) for number in range(5))
    counts = [copy_share(route(local_ends), share, everything).counts[ObjectFate.COPIED] for share in shares]
    assert (sum(counts), max(counts) - min(counts) <= 1) == (60, True)


def test_keys_that_are_folders_of_others_are_copied_before_there_are_shares(s3_ends) -> None:
    """Workers know nothing of each other, and a server may lose one of two such keys that come in the same moment."""
    folders = {"1": b"a", "1/2": b"b", "1/2/3": b"c"}
    s3_ends.fill(CONTENTS | folders)
    report, shares = divided(s3_ends, 5)
    assert s3_ends.at_cloud() == {"1": b"a", "1/2": b"b"}
    assert (report.objects_copied, sum(share.objects for share in shares)) == (2, 61)
    for share in shares:
        copy_share(route(s3_ends), share, everything)
    told = summary(merged(s3_ends, shares))
    assert (told["objects_copied"], told["bytes_copied"]) == (63, 60 * 3 + 3)
    assert s3_ends.at_cloud() == CONTENTS | folders


def test_what_one_worker_does_as_well_is_done_at_once(ends) -> None:
    ends.fill({"a": b"1"})
    report, shares = divide(route(ends), now=NOW, workers=5)
    assert (report.objects_copied, shares, verified_copies(ends.cloud.store).keys()) == (1, (), {"digits"})
    report, shares = divide(route(ends), now=NOW, workers=5)
    assert (report.objects_unchanged, report.listed_destination, shares) == (1, False, ())


def test_nothing_is_recorded_before_every_share_has_ended(local_ends) -> None:
    ends = local_ends
    ends.fill(CONTENTS)
    ends.sync(now=NOW)
    change(ends)
    _, shares = divided(ends, 5)
    assert len(shares) > 1
    for share in shares[1:]:
        copy_share(route(ends), share, everything)
    with pytest.raises(SyncIncomplete, match=r"share 1 of .* has not ended"):
        merged(ends, shares)
    assert verified_copies(ends.cloud.store) == {}
    copy_share(route(ends), shares[0], everything)
    assert merged(ends, shares).ok
    assert verified_copies(ends.cloud.store).keys() == {"digits"}
    assert "001" in ends.at_cloud(), "nothing is deleted"


def test_an_object_that_failed_for_a_moment_is_copied_by_the_next_try_of_its_share(ends) -> None:
    ends.fill(CONTENTS)
    _, shares = divided(ends, 5)

    def fail(method: str, key: str) -> None:
        if (method, key) == ("put", "digits/003"):
            raise Unreachable("s3://x@cloud", "the connection was reset")

    ends.cloud.before = fail
    with pytest.raises(SyncIncomplete, match=r"1 object failed .* the first: digits/003: .* was reset") as problem:
        copy_share(route(ends), shares[0], everything)
    assert problem.value.retry_helps
    ends.cloud.before = lambda method, key: None
    ends.home.calls.clear()
    for share in shares:
        assert copy_share(route(ends), share, everything).counts == {ObjectFate.COPIED: 12}
    assert ends.home.calls["read"] == 60 - 11, "what the first try has copied is not read again"
    assert merged(ends, shares).ok
    assert ends.at_cloud() == CONTENTS


def test_a_sync_that_is_divided_again_takes_no_result_of_before_for_its_own(local_ends) -> None:
    ends = local_ends
    ends.fill(CONTENTS)
    _, before = divided(ends, 5)
    for share in before:
        copy_share(route(ends), share, everything)
    ends.fill(dict.fromkeys(CONTENTS, b"newer"))
    _, shares = divided(ends, 5)
    with pytest.raises(SyncIncomplete, match="share 1 of 5 has not ended"):
        merged(ends, shares)
    for share in shares:
        copy_share(route(ends), share, everything)
    assert merged(ends, shares).ok
    assert set(ends.at_cloud().values()) == {b"newer"}


def test_drafts_that_nobody_comes_back_for_are_removed_by_the_next_one(local_ends, tmp_path) -> None:
    local_ends.fill(CONTENTS)
    drafts = tmp_path / "cloud" / ".spillway" / "drafts" / "digits"
    _, old = divided(local_ends, 5)
    _, young = divided(local_ends, 5)
    for file in (drafts / old[0].draft).iterdir():
        os.utime(file, (0, 0))
    _, new = divided(local_ends, 5)
    assert {folder.name for folder in drafts.iterdir()} == {young[0].draft, new[0].draft}


def test_a_share_that_was_interrupted_goes_on_and_sends_nothing_twice(ends) -> None:
    ends.fill(CONTENTS)
    _, shares = divided(ends, 5)

    def interrupt(method: str, key: str) -> None:
        if method == "put" and ends.cloud.calls["put"] > 5:
            raise KeyboardInterrupt

    ends.cloud.calls.clear()
    ends.cloud.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        copy_share(route(ends), shares[0], everything)
    ends.cloud.before = lambda method, key: None
    there = len(ends.at_cloud())
    ends.home.calls.clear()
    seen: list[Progress] = []
    again = copy_share(route(ends), shares[0], everything, seen.append)
    assert seen[-1] == Progress(objects_total=12, bytes_total=36, objects_done=12, bytes_done=36)
    assert 0 < there < again.counts[ObjectFate.COPIED] == 12
    assert ends.home.calls["open"] + ends.home.calls["read"] == 12 - there
    ends.home.calls.clear()
    assert copy_share(route(ends), shares[0], everything).counts == again.counts, "it has ended"
    assert not ends.home.calls


def test_a_merge_that_is_run_again_says_the_same(ends) -> None:
    ends.fill(CONTENTS)
    first = shared(ends, 5)
    state = recorded(ends.cloud.store)
    (draft,) = {entry.key.split("/")[3] for entry in ends.cloud.store.list(".spillway/drafts/digits/")}
    assert merge(route(ends), draft) == first
    assert recorded(ends.cloud.store) == state


def test_a_merge_after_another_sync_has_changed_the_copy_records_nothing(ends) -> None:
    ends.fill(CONTENTS)
    _, shares = divided(ends, 5)
    for share in shares:
        copy_share(route(ends), share, everything)
    ends.fill({"000": b"newer"})
    assert ends.sync().ok
    with pytest.raises(KeepsChanging, match="dataset 'digits' went on changing"):
        merged(ends, shares)
    assert ends.sync().ok
    assert ends.at_cloud()["000"] == b"newer"


def test_what_may_no_longer_leave_is_refused_by_the_share_too(local_ends) -> None:
    ends = local_ends
    ends.fill(CONTENTS)
    _, shares = divided(ends, 5)
    for share in shares:
        copy_share(route(ends), share, lambda key: key != "digits/007")
    report = merged(ends, shares)
    assert report.failures == ("digits/007: it may no longer leave its source",)
    assert ("007" in ends.at_cloud(), verified_copies(ends.cloud.store).keys()) == (False, frozenset())


def test_a_store_that_goes_away_ends_the_share_with_that_error(local_ends) -> None:
    local_ends.fill(CONTENTS)
    _, shares = divided(local_ends, 5)

    def fail(method: str, key: str) -> None:
        if method == "put" and key.startswith("digits/"):
            raise Unreachable("s3://x@cloud", "it is gone")

    local_ends.cloud.before = fail
    assert type(local_ends)(local_ends.home.store, local_ends.cloud.store).sync().ok
    with pytest.raises(Unreachable):
        copy_share(route(local_ends), shares[0], everything)
    assert verified_copies(local_ends.cloud.store) == {}, "another sync's record does not vouch for it"
    with pytest.raises(SyncIncomplete):
        merged(local_ends, shares)


def test_a_draft_that_does_not_exist_is_named(local_ends) -> None:
    with pytest.raises(Missing, match=r"drafts/digits/run-9/draft\.json"):
        merge(route(local_ends), "run-9")
