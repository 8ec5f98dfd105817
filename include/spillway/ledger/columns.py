"""Column types that keep moments aware, money exact and values whole on every backend."""

from __future__ import annotations

import gzip
import json
import zlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, LargeBinary, Numeric, String, Text, TypeDecorator
from sqlalchemy.types import TypeEngine

from spillway import codec
from spillway.errors import ConfigError


class Moment(TypeDecorator[datetime]):
    """An aware datetime, stored in UTC and given back in UTC; a naive one is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"expected an aware moment, got {value!r}; give it its time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        # SQLite has no zones: what it stored was UTC already.
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Money(TypeDecorator[Decimal]):
    """A finite Decimal to its last digit: NUMERIC without a scale where the backend is exact, text on SQLite."""

    impl = Numeric()
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else Numeric())

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if not isinstance(value, Decimal) or not value.is_finite():
            raise ValueError(f"expected a finite Decimal, got {value!r}")
        return str(value) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value)


class Value(TypeDecorator[Any]):
    """A value of ``model`` as the plain JSON of ``codec``."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = JSON(none_as_null=True)
    cache_ok = True

    def __init__(self, kind: type[Any]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else codec.encode(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else codec.decode(self.kind, value)


class Packed(Value):
    """As ``Value``, compressed: a tenth of it, and nothing that SQL can look into.

    One that cannot be read, as it is damaged or of another release, comes back as the ConfigError that says why: the
    rows beside it can.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        plain = super().process_bind_param(value, dialect)
        return None if plain is None else gzip.compress(json.dumps(plain, separators=(",", ":")).encode(), mtime=0)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        try:
            return None if value is None else super().process_result_value(json.loads(gzip.decompress(value)), dialect)
        except ConfigError as problem:
            return problem
        except (OSError, EOFError, ValueError, zlib.error) as problem:
            return ConfigError("data", "", f"expected compressed JSON, got {problem}")


class Word(TypeDecorator[Any]):
    """A member of a StrEnum as its text, so that a new member needs no change of the schema."""

    impl = String(32)
    cache_ok = True

    def __init__(self, kind: type[Any]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self.kind(value)
