"""Whether, and after how long, runs may be asked to give way, as the policy declares it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from spillway.config import load
from spillway.errors import ConfigError

Write = Callable[..., Path]
KEY = ("placement", "preempt_after")


def test_nobody_gives_way_unless_the_policy_says_after_how_long(directory: Path, write: Write) -> None:
    assert load(directory).policy.preempt_after is None
    write("policy.yaml", KEY, "15m")
    assert load(directory).policy.preempt_after == timedelta(minutes=15)


@pytest.mark.parametrize("written", [15, "-1m", "soon", True])
def test_what_is_no_duration_is_refused_by_its_path(directory: Path, write: Write, written: object) -> None:
    write("policy.yaml", KEY, written)
    with pytest.raises(ConfigError, match=r"policy\.yaml: placement\.preempt_after: "):
        load(directory)
