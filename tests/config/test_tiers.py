"""Which tier an object has by its dataset's rules, and what is made of a dataset that has several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillway.config import load, load_image_uses, load_job
from spillway.config.load import with_neighbours
from spillway.errors import ConfigError
from spillway.model import Tier, TierRule
from spillway.testing.builders import dataset

Write = Callable[..., Path]

MIXED = dataset(
    prefix="faces/",
    tier=Tier.CORE,
    rules=(
        TierRule(prefix="faces/open/", tier=Tier.PUBLIC),
        TierRule(prefix="faces/open/embargo/", tier=Tier.CORE),
    ),
)


def entry(name: str, prefix: str, tier: str | None = None, **rules: str) -> dict[str, Any]:
    """A dataset of datasets.yaml at home on premises, with rules ``folder="tier"``."""
    named = [{"prefix": f"{folder}/", "tier": ruled} for folder, ruled in rules.items()]
    return {"name": name, "home": "onprem", "prefix": prefix, "rules": named, **({"tier": tier} if tier else {})}


@pytest.mark.parametrize(
    ("key", "tier"),
    [
        ("faces/a", Tier.CORE),
        ("faces/open/a", Tier.PUBLIC),
        ("faces/open", Tier.CORE),
        ("faces/open-not/a", Tier.CORE),
        ("faces/open/embargo/a", Tier.CORE),
        ("faces/open/embargo-not/a", Tier.PUBLIC),
        ("digits/a", Tier.CORE),
        ("", Tier.CORE),
    ],
)
def test_the_longest_prefix_decides_and_what_nothing_names_is_core(key: str, tier: Tier) -> None:
    assert MIXED.tier_of(key) is tier


def test_what_is_made_from_a_dataset_is_core_where_any_object_of_it_may_be() -> None:
    assert (MIXED.tiers, MIXED.strictest) == ({Tier.CORE, Tier.PUBLIC}, Tier.CORE)
    assert dataset(tier=Tier.PUBLIC).strictest is Tier.PUBLIC
    assert dataset(tier=Tier.PUBLIC, rules=(TierRule(prefix="digits/x/", tier=Tier.CORE),)).strictest is Tier.CORE


def test_rules_are_below_their_datasets_prefix_and_core_is_the_default(directory: Path, write: Write) -> None:
    write("datasets.yaml", ("datasets",), [entry("faces", "faces/", open="public")])
    (faces,) = load(directory).datasets.values()
    assert (faces.tier, faces.rules) == (Tier.CORE, (TierRule(prefix="faces/open/", tier=Tier.PUBLIC),))


def test_core_data_inside_a_public_dataset_stays_core_and_of_two_equal_prefixes_too(
    directory: Path, write: Write
) -> None:
    inside = [
        entry("everything", "", "public"),
        entry("faces", "faces/", open="public"),
        entry("digits", "digits/", "public"),
        entry("digits-again", "digits/", "core"),
    ]
    write("datasets.yaml", ("datasets",), inside)
    declared = load(directory).datasets
    tiers = {
        key: {name: data.tier_of(key).value for name, data in declared.items() if key.startswith(data.prefix)}
        for key in ("a", "faces/a", "faces/open/a", "digits/a")
    }
    assert tiers == {
        "a": {"everything": "public"},
        "faces/a": {"everything": "core", "faces": "core"},
        "faces/open/a": {"everything": "public", "faces": "public"},
        "digits/a": {"everything": "core", "digits": "core", "digits-again": "core"},
    }


def test_what_another_homes_dataset_says_of_a_key_counts_too() -> None:
    """A copy of ``ids`` that lies at the home of ``faces``: nothing that reads it there may take it for public."""
    ids = dataset(name="ids", home="lab", prefix="faces/ids/", tier=Tier.CORE)
    faces, _ = with_neighbours([dataset(name="faces", prefix="faces/"), ids])
    assert (faces.tier_of("faces/ids/x"), faces.tier_of("faces/x")) == (Tier.CORE, Tier.PUBLIC)


@pytest.mark.parametrize(
    ("prefix", "other"),
    [("faces/", "faces/synth/"), ("faces/synth/", "faces/"), ("faces/", "faces/"), ("", "faces/")],
)
def test_datasets_of_different_homes_that_overlap_are_refused(
    directory: Path, write: Write, prefix: str, other: str
) -> None:
    cloud = entry("synth", other, "public") | {"home": "cloud"}
    write("datasets.yaml", ("datasets",), [entry("faces", prefix, "public"), cloud])
    with pytest.raises(ConfigError) as raised:
        load(directory)
    assert (raised.value.file, raised.value.path) == ("datasets.yaml", "datasets[1].prefix")
    assert raised.value.problem == (
        f"the dataset 'synth' (home 'cloud', prefix '{other}') and the dataset 'faces' (home 'onprem', prefix "
        f"'{prefix}') overlap, so that a copy of one would become part of the other; move one below a prefix of its "
        "own, or give both the same home"
    )


def test_datasets_of_different_homes_may_have_names_that_begin_alike(directory: Path, write: Write) -> None:
    cloud = entry("synth", "faces-synth/", "public") | {"home": "cloud"}
    write("datasets.yaml", ("datasets",), [entry("faces", "faces/", "public"), cloud])
    assert sorted(load(directory).datasets) == ["faces", "synth"]


def test_a_job_and_its_image_are_of_the_strictest_tier_of_their_dataset(directory: Path, write: Write) -> None:
    write("datasets.yaml", ("datasets",), [entry("digits", "digits/", "public", secret="core")])
    declared, file = load(directory).datasets, write("job.yaml", ("dataset",), "digits")
    assert load_job(file, declared).tier is Tier.CORE
    (file.parent / "jobs").mkdir()
    file.rename(file.parent / "jobs" / "job.yaml")
    assert [use.tier for use in load_image_uses(file.parent / "jobs", declared)] == [Tier.CORE]


def test_the_name_of_a_public_part_is_no_name_of_a_dataset(directory: Path, write: Write) -> None:
    write("datasets.yaml", ("datasets",), [entry("faces", "faces/", "core"), entry("faces@public", "other/", "core")])
    with pytest.raises(ConfigError, match=r"datasets\[1\]\.name: 'faces@public' is how the public part"):
        load(directory)


TAGGED = dataset(
    prefix="faces/",
    tier=Tier.CORE,
    rules=(
        TierRule(prefix="faces/open/", tier=Tier.PUBLIC, tags={"release": "cleared", "by": "lab"}),
        TierRule(prefix="faces/open/all/", tier=Tier.PUBLIC),
        TierRule(prefix="faces/open/shut/", tier=Tier.PUBLIC, tags={"release": "cleared"}),
        TierRule(prefix="faces/open/shut/", tier=Tier.CORE),
    ),
)


@pytest.mark.parametrize(
    ("key", "tags", "tier"),
    [
        ("faces/open/a", {"release": "cleared", "by": "lab", "more": "x"}, Tier.PUBLIC),
        ("faces/open/a", {"release": "cleared"}, Tier.CORE),
        ("faces/open/a", {"release": "Cleared", "by": "lab"}, Tier.CORE),
        ("faces/open/a", {}, Tier.CORE),
        ("faces/open/a", None, Tier.CORE),
        ("faces/open/all/a", None, Tier.PUBLIC),
        ("faces/open/shut/a", {"release": "cleared"}, Tier.CORE),
        ("faces/a", {"release": "cleared", "by": "lab"}, Tier.CORE),
    ],
)
def test_what_a_tag_decides_of_is_core_unless_all_of_its_tags_are_there(
    key: str, tags: dict[str, str] | None, tier: Tier
) -> None:
    assert TAGGED.tier_of(key, tags) is tier
    assert TAGGED.asks_tags(key) == (key == "faces/open/a")


def test_what_is_made_of_a_dataset_of_which_tags_decide_is_core() -> None:
    all_public = dataset(tier=Tier.PUBLIC, rules=(TierRule(prefix="digits/", tier=Tier.PUBLIC, tags={"a": "b"}),))
    assert (all_public.tiers, all_public.strictest) == ({Tier.CORE, Tier.PUBLIC}, Tier.CORE)


@pytest.mark.parametrize("tier", ["core", "public"])
def test_a_tag_without_a_prefix_is_for_all_of_the_dataset_whatever_its_tier(
    directory: Path, write: Write, tier: str
) -> None:
    rules = [{"tag": {"release": "cleared"}, "tier": "public"}, {"prefix": "shut/", "tier": "core"}]
    write("datasets.yaml", ("datasets",), [entry("faces", "faces/", tier) | {"rules": rules}])
    (faces,) = load(directory).datasets.values()
    told = {key: faces.tier_of(key, {"release": "cleared"}) for key in ("faces/a", "faces/shut/a")}
    assert told == {"faces/a": Tier.PUBLIC, "faces/shut/a": Tier.CORE}
    assert faces.tier_of("faces/a") is Tier.CORE


def test_a_tag_does_not_open_what_another_dataset_calls_core(directory: Path, write: Write) -> None:
    rules = [{"tag": {"release": "cleared"}, "tier": "public"}]
    same = [entry("faces", "faces/") | {"rules": rules}, entry("again", "faces/", "core")]
    write("datasets.yaml", ("datasets",), same)
    for declared in load(directory).datasets.values():
        assert declared.tier_of("faces/a", {"release": "cleared"}) is Tier.CORE


@pytest.mark.parametrize(
    ("changed", "path", "problem"),
    [
        pytest.param(
            {"home": "cloud", "rules": [{"prefix": "x/", "tier": "core"}]},
            "datasets[0].home",
            "the dataset 'digits' is of tier 'core', which the residency of cluster 'cloud' in clusters.yaml does not "
            "allow",
            id="core objects at home where they may not be",
        ),
        pytest.param(
            {"rules": [{"prefix": "x", "tier": "core"}]},
            "datasets[0].rules[0].prefix",
            "expected text that matches ^([^/].*/)?$, got 'x'",
            id="a prefix without its slash",
        ),
        pytest.param(
            {"rules": [{"prefix": "", "tier": "core"}]},
            "datasets[0].rules[0].prefix",
            "expected text that is not empty, got ''",
            id="a rule for everything",
        ),
        pytest.param(
            {"rules": [{"prefix": "x/", "tier": "pubic"}]},
            "datasets[0].rules[0].tier",
            "unknown tier 'pubic'; known: core, public. Did you mean 'public'?",
            id="a misspelled tier",
        ),
        pytest.param(
            {"rules": [{"prefix": "x/", "tag": {"pii": "true"}, "tier": "core"}]},
            "datasets[0].rules[0]",
            "a tag can only say what is public, and what lacks it is core; name the tag of what may leave, or leave "
            "`tag` out",
            id="a tag that is to keep data at home",
        ),
        pytest.param(
            {"rules": [{"tag": {}, "tier": "public"}]},
            "datasets[0].rules[0].tag",
            "expected at least 1 entry, got an empty mapping",
            id="a tag that everything has",
        ),
        pytest.param(
            {"rules": [{"tag": {"release": True}, "tier": "public"}]},
            "datasets[0].rules[0].tag.release",
            "expected text, got True; put it in quotes",
            id="a tag that YAML reads as no text",
        ),
        pytest.param(
            {"rules": [{"tier": "public"}]},
            "datasets[0].rules[0]",
            "expected a prefix below the dataset's own, or a tag",
            id="a rule for nothing",
        ),
    ],
)
def test_a_mistake_in_the_rules_is_told_with_its_place(
    directory: Path, write: Write, changed: dict[str, Any], path: str, problem: str
) -> None:
    write("datasets.yaml", ("datasets", 0), entry("digits", "digits/", "public") | changed)
    with pytest.raises(ConfigError) as raised:
        load(directory)
    assert (raised.value.path, raised.value.problem) == (path, problem)
