"""The tree in the docstring of ``errors`` is the tree of its classes."""

from __future__ import annotations

import pickle
import re

import pytest

from spillway import errors
from spillway.errors import Fenced, SpillwayError, SyncIncomplete, UnknownName, Unreachable
from spillway.errors.counts import counted


def test_the_tree_names_every_error_once_and_all_of_them_come_from_one_place() -> None:
    declared = {kind.__name__ for kind in SpillwayError.__subclasses__() if kind.__module__.startswith(errors.__name__)}
    tree = re.findall(r"[├└]── (\w+)", str(errors.__doc__))
    assert sorted(tree) == sorted(declared)
    assert sorted(errors.__all__) == sorted(["SpillwayError", *tree])


@pytest.mark.parametrize(
    "error",
    [
        Fenced("llm-7b", attempt=1, owner=2, where="s3://checkpoints"),
        Unreachable("s3://checkpoints", "the connection was reset"),
        SyncIncomplete("digits", "cloud", failed=2, refused=0, first="a: cut off"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_whole_after_it_has_travelled_to_another_process(error: SpillwayError) -> None:
    there = pickle.loads(pickle.dumps(error))
    assert (type(there), str(there), vars(there)) == (type(error), str(error), vars(error))
    assert there.retry_helps == error.retry_helps


@pytest.mark.parametrize(("failed", "refused", "helps"), [(2, 0, True), (0, 3, False), (1, 1, True)])
def test_a_sync_is_worth_a_retry_while_one_failure_may_pass(failed: int, refused: int, helps: bool) -> None:
    problem = SyncIncomplete("digits", "cloud", failed=failed, refused=refused, first="a//b: an empty segment")
    assert problem.retry_helps is helps
    lost = counted(failed, "object")
    assert str(problem) == (
        f"dataset 'digits' is not whole at cloud: {lost} failed and may arrive with the next sync, "
        f"refused as they are: {refused}; the first: a//b: an empty segment"
    )


def test_a_name_in_other_letters_is_close_to_the_one_that_is_meant() -> None:
    assert str(UnknownName("preset", "S2", ["s0", "s2"])) == "unknown preset 'S2'; known: s0, s2. Did you mean 's2'?"
    assert str(UnknownName("cluster", "CLOUD", ["Cloud"])).endswith(". Did you mean 'Cloud'?")
