"""How people write durations, shares and prices in the files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar
from zoneinfo import available_timezones

from pydantic_core import PydanticCustomError

from spillway.errors import InvalidImage, UnknownName
from spillway.images.reference import ImageReference
from spillway.model import Billing
from spillway.windows import MOST_DAYS

E = TypeVar("E", bound=StrEnum)

LEAST_SILENCE = timedelta(minutes=2)
LONGEST = timedelta(days=3650)
"""A moment of today and a few of these are still dates."""

_SHORT = re.compile(r"(?:(?P<days>\d+)d)?(?:(?P<hours>\d+)h)?(?:(?P<minutes>\d+)m)?(?:(?P<seconds>\d+(?:\.\d+)?)s)?")
_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d) *- *([01]?\d|2[0-3]):([0-5]\d)")
_ISO_8601 = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def refused(problem: str) -> PydanticCustomError:
    """The error that pydantic turns into one with the path of the field."""
    return PydanticCustomError("notation", "{problem}", {"problem": problem})


def duration(written: Any) -> timedelta:
    """``30s``, ``10m``, ``1h30m``, ``2d`` or ISO 8601 (``PT30S``); a bare number has no unit and is refused."""
    found = isinstance(written, str) and (_SHORT.fullmatch(written) or _ISO_8601.fullmatch(written))
    parts = {unit: float(count) for unit, count in found.groupdict().items() if count} if found else {}
    if not parts:
        raise refused(f"expected a duration such as '30s', '10m', '2h' or 'PT30S', got {written!r}")
    try:
        length = timedelta(**parts)
    except OverflowError:
        length = timedelta.max
    if length > LONGEST:
        raise refused(f"expected a duration of at most {LONGEST.days}d, got {written!r}")
    return length


def lasting(written: Any) -> timedelta:
    """A duration above 0."""
    length = duration(written)
    if not length:
        raise refused(f"expected a duration above 0, got {written!r}")
    return length


def pool(written: Any) -> tuple[str, str]:
    """``cluster/pool``, by their names."""
    cluster, slash, name = written.partition("/") if isinstance(written, str) else ("", "", "")
    if not (cluster and slash and name):
        raise refused(f"expected a pool as cluster/pool, got {written!r}")
    return cluster, name


def silence(written: Any) -> timedelta:
    """A duration that a trainer may say nothing for: it speaks four times a minute."""
    length = duration(written)
    if length < LEAST_SILENCE:
        least = f"{LEAST_SILENCE.seconds // 60}m"
        raise refused(f"expected a duration of at least {least}, got {written!r}; `stall: null` switches it off")
    return length


def image(written: str) -> str:
    """An image with a tag, a digest or both."""
    try:
        ImageReference.parse(written)
    except InvalidImage as problem:
        raise refused(problem.problem) from problem
    return written


def repository(written: str) -> str:
    """The name of a repository in the home registry, without a tag."""
    if not ImageReference.is_repository(written):
        raise refused(
            "expected a repository of lower-case letters, digits, '.', '_', '-' and '/', without host and tag, "
            f"got {written!r}"
        )
    return written


def zone(written: Any) -> str:
    """The name of a time zone."""
    if not isinstance(written, str) or written not in available_timezones():
        close = get_close_matches(str(written), available_timezones(), n=1)
        hint = f". Did you mean '{close[0]}'?" if close else ""
        raise refused(f"expected a time zone such as 'Europe/Berlin' or 'UTC', got '{written}'{hint}")
    return written


def day(written: Any) -> datetime:
    """A day as ``2026-11-30``: its midnight in UTC."""
    try:
        found = written if isinstance(written, date) else date.fromisoformat(written)
    except (TypeError, ValueError) as problem:
        raise refused(f"expected a day such as 2026-11-30, got {written!r}") from problem
    return datetime(found.year, found.month, found.day, tzinfo=UTC)


def hours(written: Any) -> tuple[timedelta, timedelta]:
    """Hours of a day as ``22:00-06:00``: their beginning and end, after midnight."""
    found = isinstance(written, str) and _HOURS.fullmatch(written)
    parts = [int(part) for part in found.groups()] if found else []
    moments = [timedelta(hours=hour, minutes=minute) for hour, minute in zip(parts[::2], parts[1::2], strict=True)]
    if not moments or moments[0] == moments[1]:
        raise refused(f"expected hours of a day such as 22:00-06:00, got {written!r}")
    return moments[0], moments[1]


def last_days(written: Any) -> int | None:
    """How many last days of a month; ``ISO week`` is None."""
    if written == "ISO week":
        return None
    if type(written) is not int or not 1 <= written <= MOST_DAYS:
        raise refused(f"expected a number of days from 1 to {MOST_DAYS}, or 'ISO week', got {written!r}")
    return written


def share(written: Any) -> Decimal:
    """A part of a whole in [0, 1]: ``0.3`` or ``30%``."""
    percent = isinstance(written, str) and written.endswith("%")
    number = _number(written[:-1] if percent else written)
    part = number / 100 if number is not None and percent else number
    if part is None or not 0 <= part <= 1:
        raise refused(f"expected a share between 0 and 1, or 0% and 100%, got {written!r}")
    return part


def fraction(written: Any) -> Decimal:
    """A part of one GPU, ``0.5``, ``50%`` or ``1/2``, rounded down to thousandths; less than a whole one."""
    above, slash, below = written.partition("/") if isinstance(written, str) else ("", "", "")
    if slash and above.strip().isdecimal() and below.strip().isdecimal() and int(below):
        part = Decimal(int(above)) / int(below)
    else:
        part = share(written)
    thousandths = int(part * 1000)
    if not 0 < thousandths < 1000:
        raise refused(
            f"expected a part of one GPU, such as 0.5 or 1/2, got {written!r}; gpus_per_node is for whole ones"
        )
    return Decimal(thousandths).scaleb(-3).normalize()


def amount(written: Any) -> Decimal:
    """Money: a finite number of at least 0."""
    number = _number(written)
    if number is None or number < 0:
        raise refused(f"expected an amount of at least 0, got {written!r}")
    return number


def price(written: Any) -> Decimal:
    """Money above 0."""
    number = amount(written)
    if not number:
        raise refused(f"expected a price above 0, got {written!r}")
    return number


def prices(written: Any) -> Mapping[Billing, Decimal]:
    """Price of a GPU-hour by billing type.

    Each is an amount, or relative to the on-demand price: ``discount: 30%`` below it, ``of_on_demand: 0.3`` of it. Only
    an owned GPU may cost 0.
    """
    if not isinstance(written, Mapping) or not written:
        raise refused(f"expected at least one price by billing type ({', '.join(Billing)}), got {written!r}")
    base = written.get(Billing.ON_DEMAND)
    resolved = {}
    for key, value in written.items():
        billing = choice(Billing, "billing type")(key)
        with naming(key):
            resolved[billing] = _price(billing, value, base)
    return resolved


def choice(kind: type[E], noun: str) -> Callable[[Any], E]:
    """A reader of one of the words of ``kind``; an error tells the words and the close one."""

    def read(written: Any) -> E:
        if written not in tuple(kind):
            raise refused(str(UnknownName(noun, str(written), kind)))
        return kind(written)

    return read


@contextmanager
def naming(key: str) -> Iterator[None]:
    """Lets an error inside begin with the key it is about."""
    try:
        yield
    except PydanticCustomError as problem:
        raise refused(f"{key}: {problem.message()}") from problem


def _number(written: Any) -> Decimal | None:
    if isinstance(written, bool) or not isinstance(written, (int, float, str, Decimal)):
        return None
    try:
        number = Decimal(str(written))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _price(billing: Billing, written: Any, base: Any) -> Decimal:
    price = _relative(billing, written, base) if isinstance(written, Mapping) else amount(written)
    if price == 0 and billing is not Billing.OWNED:
        raise refused(f"expected a price above 0 (only 'owned' may be 0), got {written!r}")
    return price


def _relative(billing: Billing, written: Mapping[str, Any], base: Any) -> Decimal:
    if billing not in {Billing.RESERVED, Billing.SPOT} or set(written) not in ({"discount"}, {"of_on_demand"}):
        raise refused(
            "expected an amount, or for 'reserved' and 'spot' also 'discount: 30%' or 'of_on_demand: 0.3', "
            f"got {dict(written)!r}"
        )
    if base is None or isinstance(base, Mapping):
        raise refused("is relative to the on-demand price, which must be given as an amount beside it")
    part = share(written["of_on_demand"]) if "of_on_demand" in written else 1 - share(written["discount"])
    return amount(base) * part
