"""What becomes of each tag, decided without a registry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.errors import DeletesRefused
from spillway.images.plan import PlannedTag, TagAction, choose_tags, plan_tags
from spillway.model import MirroredRepository
from spillway.registries.digest import digest_of

ONE, TWO = digest_of(b"one"), digest_of(b"two")
RULES = MirroredRepository(repository="train")
SIGNATURE = f"sha256-{'0' * 64}.sig"


def test_tags_are_chosen_by_pattern_and_every_other_one_is_told_why_not() -> None:
    rules = replace(RULES, tags=("torch*", "jax*"), exclude=("*-dev",), signatures=False)
    chosen = choose_tags(["torch2.1", "torch2.0", "torch2.1-dev", "nightly", SIGNATURE], rules)
    assert chosen.wanted == ("torch2.0", "torch2.1")
    assert chosen.skipped == {
        "torch2.1-dev": "matches a pattern that is left out",
        "nightly": "matches none of the wanted patterns",
        SIGNATURE: "belongs to another image, and its rule leaves signatures out",
    }


@pytest.mark.parametrize("name", ["", ".hidden", "a b", "a/b", "v1\n", "größe", "v" * 129])
def test_what_can_be_no_tag_is_skipped_at_both_ends_and_told(name: str) -> None:
    chosen = choose_tags(["v1", name], RULES)
    assert (chosen.wanted, chosen.skipped.keys()) == (("v1",), {name})


@pytest.mark.parametrize("ending", [".sig", ".att", ".sbom", ""])
def test_a_tag_of_a_signature_goes_with_its_image_whatever_the_patterns_say(ending: str) -> None:
    tag = f"sha256-{'0' * 64}{ending}"
    chosen = choose_tags(["v1", tag], replace(RULES, tags=("v*",)))
    assert (chosen.wanted, chosen.attached) == (("v1",), {tag: f"sha256:{'0' * 64}"})


ACTIONS = {
    "nothing there": (None, {}, TagAction.COPY),
    "the same digest": (ONE, {}, TagAction.KEEP),
    "another digest": (TWO, {}, TagAction.CONFLICT),
    "another digest, tags may be moved": (TWO, {"move_tags": True}, TagAction.COPY),
    "another digest, fewer platforms": (TWO, {"platforms": ("linux/amd64",)}, TagAction.COPY),
}


@pytest.mark.parametrize(("there", "rules", "action"), ACTIONS.values(), ids=ACTIONS.keys())
def test_the_table_of_actions(there: str | None, rules: dict[str, bool], action: TagAction) -> None:
    (planned,) = plan_tags({"v1": ONE}, {"v1": there} if there else {}, replace(RULES, **rules))  # type: ignore[arg-type]
    assert (planned.tag, planned.action) == ("v1", action)


def test_an_index_is_looked_into_although_its_digest_is_the_same() -> None:
    (planned,) = plan_tags({"v1": ONE}, {"v1": ONE}, RULES, unproven={"v1"})
    assert planned.action is TagAction.COPY


def test_a_tag_that_only_the_destination_has_stays_unless_deleting_is_asked_for() -> None:
    here = {f"v{number}": ONE for number in range(9)}
    kept, deleted = (
        plan_tags(here, here, replace(RULES, delete=delete), only_there=["old"])[0] for delete in (False, True)
    )
    assert kept == PlannedTag(tag="old", action=TagAction.KEEP, reason="only at the destination; deleting is off")
    assert deleted == PlannedTag(tag="old", action=TagAction.DELETE, reason="the source no longer has it")


@pytest.mark.parametrize(
    ("listed", "gone", "problem"),
    [(0, 3, "the source lists no tags"), (7, 3, "would delete 3 of 10 tags .* the guard allows 20%")],
    ids=["an empty source", "more than the share"],
)
def test_deletes_beyond_what_anybody_means_are_refused(listed: int, gone: int, problem: str) -> None:
    here = {f"v{number}": ONE for number in range(listed)}
    with pytest.raises(DeletesRefused, match=problem):
        plan_tags(here, here, replace(RULES, delete=True), only_there=[f"old{number}" for number in range(gone)])
