"""``sync``: what is missing moves once, a dry run moves nothing, residency is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spillway.runs.services import Services
from spillway.stores.base import ObjectStore
from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation


@pytest.fixture
def empty_cloud(services: Services) -> ObjectStore:
    """The cloud's dataset bucket, without any object."""
    store = services.site("cloud").datasets
    store.delete([entry.key for entry in store.list()])
    return store


def keys(store: ObjectStore) -> set[str]:
    return {entry.key for entry in store.list("digits/")}


def test_a_dry_run_of_a_sync_copies_nothing(spillway: Spillway, services: Services, empty_cloud: ObjectStore) -> None:
    answer = spillway("sync", "digits", "cloud", "--dry-run")
    assert answer.code == 0
    assert answer.out.count("would be copied") == 8
    assert answer.out.splitlines()[-1].startswith("dataset digits from onprem to cloud: would copy 8 objects, ")
    assert (keys(empty_cloud), services.ledger.transfers()) == (set(), ())


def test_a_second_sync_copies_nothing(spillway: Spillway, services: Services, empty_cloud: ObjectStore) -> None:
    first, second = spillway("sync", "digits", "cloud"), spillway("sync", "digits", "cloud")
    assert (first.code, second.code) == (0, 0)
    assert "copied 8 objects, " in first.out and first.out.endswith("; 0 unchanged\n")
    assert second.out == "dataset digits from onprem to cloud: copied 0 objects, 0 bytes; 8 unchanged\n"
    assert keys(empty_cloud) == keys(services.site("onprem").datasets)


def test_a_dataset_at_its_home_has_nothing_to_do(spillway: Spillway) -> None:
    answer = spillway("sync", "digits", "onprem")
    assert (answer.code, answer.out) == (0, "dataset digits is at home at onprem: nothing to do\n")
    counts = json.loads(spillway("sync", "digits", "onprem", "--json").out)
    assert (counts["dataset"], counts["objects_copied"], counts["failures"]) == ("digits", 0, [])


def test_core_data_does_not_leave_its_home(
    installation: Installation, spillway: Spillway, empty_cloud: ObjectStore
) -> None:
    file = installation.config / "datasets.yaml"
    file.write_text(file.read_text().replace("tier: public", "tier: core"))
    answer = spillway("sync", "digits", "cloud")
    assert answer.code == 1
    assert "is of tier 'core' and may not be stored at 'cloud' (its home is 'onprem')" in answer.err
    assert keys(empty_cloud) == set()


def test_a_sync_tells_a_program_its_counts_and_a_file_every_object(
    spillway: Spillway, empty_cloud: ObjectStore, tmp_path: Path
) -> None:
    file = tmp_path / "outcomes"
    dry = spillway("sync", "digits", "cloud", "--dry-run", "--json", "--outcomes", str(file))
    planned = [json.loads(line) for line in file.read_text().splitlines()]
    done = spillway("sync", "digits", "cloud", "--json", "--outcomes", str(file))
    counts = json.loads(done.out)
    assert (counts["objects_copied"], counts["objects_failed"], counts["dry_run"]) == (8, 0, False)
    assert json.loads(dry.out) == counts | {"dry_run": True}
    assert [json.loads(line) for line in file.read_text().splitlines()] == planned
    assert {(line["fate"], line["reason"]) for line in planned} == {("copied", "not at the destination")}


@pytest.mark.parametrize(("file", "told"), [("/", "Is a directory"), ("/dev/full", "No space left on device")])
def test_a_file_of_outcomes_that_cannot_be_written_is_told_by_name(spillway: Spillway, file: str, told: str) -> None:
    answer = spillway("sync", "digits", "cloud", "--dry-run", "--outcomes", file)
    said = f"spillway: {file} cannot be written: {told}; send it elsewhere and run it again\n"
    assert (answer.code, answer.err) == (1, said)


def test_a_verification_finds_what_somebody_changed_at_the_site(
    spillway: Spillway, services: Services, empty_cloud: ObjectStore
) -> None:
    spillway("sync", "digits", "cloud")
    for number in range(40):
        empty_cloud.put(f"digits/extra-{number}", b"x", size_bytes=1)
    unseen, seen = (
        json.loads(spillway("sync", "digits", "cloud", "--json", *more).out) for more in ((), ("--verify",))
    )
    assert (unseen["objects_unchanged"], unseen["listed_destination"]) == (8, False)
    assert (seen["objects_unchanged"], seen["listed_destination"]) == (48, True)


def test_deletes_are_asked_for_by_name_and_guarded(spillway: Spillway, empty_cloud: ObjectStore) -> None:
    spillway("sync", "digits", "cloud")
    empty_cloud.put("digits/extra-0", b"x", size_bytes=1)
    planned, done = (
        spillway("sync", "digits", "cloud", "--delete", "--dry-run"),
        spillway("sync", "digits", "cloud", "--delete"),
    )
    assert "  digits/extra-0 would be deleted, 1 byte: the source no longer has it" in planned.out
    assert "  digits/extra-0 deleted, 1 byte: the source no longer has it" in done.out
    assert done.out.endswith("8 unchanged; deleted 1\n")
    for number in range(3):
        empty_cloud.put(f"digits/extra-{number}", b"x", size_bytes=1)
    refused = spillway("sync", "digits", "cloud", "--delete")
    assert spillway("sync", "digits", "cloud", "--delete", "--dry-run").err == refused.err
    assert (refused.code, "this would delete 3 of 11 objects (27%), the guard allows 20%" in refused.err) == (1, True)
    assert refused.err.endswith("on the command line: --delete-up-to 28\n")
    assert spillway("sync", "digits", "cloud", "--delete-up-to", "27").code == 1
    assert spillway("sync", "digits", "cloud", "--delete-up-to", "28").out.endswith("8 unchanged; deleted 3\n")
