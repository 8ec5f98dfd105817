"""Budgets as they are declared, and every mistake in them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.config import load
from spillway.errors import ConfigError
from spillway.model import Budget, NoticeTarget

EVERY = {"department": "research", "limit": 100}
MARCH = {"department": "research", "limit": "7.50", "month": "2026-03"}


@pytest.fixture
def declare(directory: Path) -> Callable[[Any], Path]:
    """Write ``budgets.yaml``; gives the directory."""

    def write(content: Any) -> Path:
        (directory / "budgets.yaml").write_text(yaml.safe_dump(content))
        return directory

    return write


def test_budgets_are_limits_by_department_and_month_in_one_zone(declare: Callable[[Any], Path]) -> None:
    policy = load(declare({"time_zone": "Asia/Tokyo", "budgets": [EVERY, MARCH]})).policy
    assert policy.time_zone == "Asia/Tokyo"
    assert policy.budgets == (
        Budget(department="research", limit=Decimal(100)),
        Budget(department="research", limit=Decimal("7.50"), month="2026-03"),
    )


def test_targets_of_notices_are_mail_or_a_connection_of_apprise(declare: Callable[[Any], Path]) -> None:
    mail = {"name": "platform", "email": ["ops@example.org", "cfo@example.org", "ops@example.org"]}
    chat = {"name": "on-call", "apprise": "chat", "departments": ["research"]}
    assert load(declare({"notices": [mail, chat]})).notices == (
        NoticeTarget(name="platform/ops@example.org", email="ops@example.org"),
        NoticeTarget(name="platform/cfo@example.org", email="cfo@example.org"),
        NoticeTarget(name="on-call", apprise="chat", departments=("research",)),
    )


def test_without_the_file_nothing_is_limited(directory: Path) -> None:
    assert load(directory).policy.budgets == ()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            {"budgets": [MARCH, EVERY, MARCH]},
            "'research' has two budgets for 2026-03 ([0] and [2]); keep one, or give one of them another `month`",
        ),
        ({"budgets": [EVERY, EVERY]}, "'research' has two budgets for every month ([0] and [1])"),
        (
            {"budgets": [EVERY | {"department": "reserch"}]},
            "budgets.yaml: budgets[0].department: unknown department 'reserch'; known: research. "
            "Did you mean 'research'? (policy.yaml declares their quotas)",
        ),
        ({"budgets": [EVERY | {"limit": -1}]}, "budgets[0].limit: expected an amount of at least 0, got -1"),
        ({"budgets": [EVERY | {"limit": ".nan"}]}, "budgets[0].limit: expected an amount of at least 0, got '.nan'"),
        ({"budgets": [EVERY | {"month": "2026-13"}]}, "[0].month: expected a month such as '2026-03', got '2026-13'"),
        ({"budgets": [EVERY | {"months": "2026-03"}]}, "unknown key 'months'; known: department, limit, month"),
        (
            {"notices": [{"name": "ops"}]},
            "notices[0]: expected either `email` with addresses or `apprise` with a Connection",
        ),
        ({"notices": [{"name": "ops", "email": ["ops at example"]}]}, "notices[0].email[0]"),
        (
            {"notices": [{"name": "ops", "apprise": "chat", "departments": ["sales"]}]},
            "notices[0].departments[0]: unknown department 'sales'; known: research",
        ),
        ({"notices": [{"name": "ops", "apprise": "a"}] * 2}, "'ops' is declared twice"),
        ({"time_zone": "Berlin"}, "time_zone: expected a time zone such as 'Europe/Berlin' or 'UTC', got 'Berlin'"),
        ({"time_zone": "Europe/Berln"}, "got 'Europe/Berln'. Did you mean 'Europe/Berlin'?"),
    ],
    ids=[
        "two for one month", "two for every month", "unknown department", "negative", "not a number", "no month",
        "a typo", "no way to tell", "no address",
        "unknown department of a target", "two targets of one name", "no zone", "nearly a zone",
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_its_cure(
    declare: Callable[[Any], Path], content: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as mistake:
        load(declare(content))
    assert told in str(mistake.value)
