"""What each priority prefers when on-premises is full, as the policy declares it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillway.config import load
from spillway.errors import ConfigError
from spillway.model import SECOND_CHOICES, Priority, SecondChoice

Write = Callable[..., Path]
KEY = ("placement", "second_choice")


def test_priorities_that_are_not_named_keep_their_second_choice(directory: Path, write: Write) -> None:
    write("policy.yaml", KEY, {"research": "high-performance"})
    expected = {**SECOND_CHOICES, Priority.RESEARCH: SecondChoice.HIGH_PERFORMANCE}
    assert load(directory).policy.second_choice == expected
    assert set(SECOND_CHOICES) == set(Priority)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"research": "spto"}, r"unknown second choice 'spto'; known: high-performance, spot. Did you mean 'spot'\?"),
        ({"reserch": "spot"}, r"unknown priority 'reserch'; known: .*Did you mean 'research'\?"),
    ],
    ids=["choice", "priority"],
)
def test_a_word_of_the_table_that_is_none_is_told_with_those_that_are(
    directory: Path, write: Write, table: dict[str, str], problem: str
) -> None:
    write("policy.yaml", KEY, table)
    with pytest.raises(ConfigError, match=problem):
        load(directory)
