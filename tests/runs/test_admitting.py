"""Which objects of a dataset may leave for a site."""

from __future__ import annotations

import pytest

from spillway.model import Tier, TierRule
from spillway.runs.residency import admits, tag_rules
from spillway.testing.builders import cloud_cluster, dataset, onprem_cluster

PUBLIC, CORE = Tier.PUBLIC, Tier.CORE


@pytest.mark.parametrize("default", [PUBLIC, CORE])
@pytest.mark.parametrize(
    "rules", [(), (TierRule(prefix="d/open/", tier=PUBLIC),), (TierRule(prefix="d/x/", tier=CORE),)]
)
@pytest.mark.parametrize("key", ["d/a", "d/open/a", "d/x/a", "e/a", ""])
def test_an_object_may_leave_where_its_tier_may_be_stored_and_one_of_no_dataset_never(
    default: Tier, rules: tuple[TierRule, ...], key: str
) -> None:
    wanted = dataset(prefix="d/", tier=default, rules=rules)
    cloud = cloud_cluster()
    assert not cloud.may_hold(CORE)
    assert admits(wanted, cloud)(key) == (wanted.tier_of(key) is PUBLIC)
    assert admits(wanted, onprem_cluster())(key) == key.startswith("d/")


def test_what_tags_decide_of_is_listed_and_leaves_only_with_them_for_sites_without_core_data() -> None:
    cleared = TierRule(prefix="d/open/", tier=PUBLIC, tags={"release": "cleared"})
    wanted, cloud = dataset(prefix="d/", tier=CORE, rules=(cleared,)), cloud_cluster()
    assert [admits(wanted, cloud)(key) for key in ("d/open/a", "d/a", "e/a")] == [True, False, False]
    rules = tag_rules(wanted, cloud)
    assert rules is not None
    assert [rules.decide(key) for key in ("d/open/a", "d/a")] == [True, False]
    assert [rules.allow("d/open/a", tags) for tags in ({"release": "cleared"}, {"release": "no"}, {})] == [
        True,
        False,
        False,
    ]
    assert tag_rules(wanted, onprem_cluster()) is None
    assert tag_rules(dataset(prefix="d/", tier=CORE), cloud) is None
    nothing = cloud_cluster(residency=frozenset[Tier]())
    assert not admits(wanted, nothing)("d/open/a")
