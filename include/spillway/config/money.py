"""What ``budgets.yaml`` may hold: limits of departments, and the zone whose months count."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from spillway.config import notation
from spillway.config.schema import Amount, Entry, Label, Text, Unique
from spillway.model import Budget, NoticeTarget
from spillway.months import named_month


def _month(written: Any) -> str:
    if not isinstance(written, str) or named_month(written, "UTC") is None:
        raise notation.refused(f"expected a month such as '2026-03', got {str(written)!r}")
    return written


class BudgetEntry(Entry):
    department: Text
    limit: Amount
    month: Annotated[str, BeforeValidator(_month)] | None = None


def _one_a_month(entries: tuple[BudgetEntry, ...]) -> tuple[BudgetEntry, ...]:
    named = [(entry.department, entry.month) for entry in entries]
    for index, (department, month) in enumerate(named):
        if (first := named.index((department, month))) < index:
            raise notation.refused(
                f"'{department}' has two budgets for {month or 'every month'} ([{first}] and [{index}]); "
                "keep one, or give one of them another `month`"
            )
    return entries


Address = Annotated[str, Field(strict=True, pattern=r"^[^@\s,;<>\"]+@[^@\s,;<>\"]+$")]


class TargetEntry(Entry):
    name: Label
    email: tuple[Address, ...] = ()
    connection: Text = "smtp_default"
    apprise: Text | None = None
    departments: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _one_way(self) -> TargetEntry:
        if bool(self.email) == bool(self.apprise):
            raise notation.refused("expected either `email` with addresses or `apprise` with a Connection")
        return self

    def targets(self) -> tuple[NoticeTarget, ...]:
        """Each address is one, ``name/address``: a mail server may take a message for one and refuse it for another."""
        fields = dict(self)
        addresses = fields.pop("email")
        if not addresses:
            return (NoticeTarget(**fields),)
        each = dict.fromkeys(addresses)
        return tuple(NoticeTarget(**fields | {"name": f"{self.name}/{address}"}, email=address) for address in each)


class BudgetsFile(Entry):
    time_zone: Annotated[str, BeforeValidator(notation.zone)] = "UTC"
    budgets: Annotated[tuple[BudgetEntry, ...], AfterValidator(_one_a_month)] = ()
    notices: Annotated[tuple[TargetEntry, ...], Unique] = ()

    def limits(self) -> tuple[Budget, ...]:
        return tuple(Budget(**dict(entry)) for entry in self.budgets)
