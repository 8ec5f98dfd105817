"""Plain JSON data for the values of ``model``, for XCom, the ledger and files.

``encode`` gives dictionaries, lists, strings, numbers, booleans and None; ``decode`` rebuilds the value from the class
that is asked for. Decimals and fractions travel as strings, moments as ISO 8601 in UTC, durations as seconds, mappings
whose keys are tuples as lists of pairs. Unknown keys are refused, so a value written by a newer release is not silently
half-read; so are moments without a zone, either way. A class whose keys were others in older releases says how those
are read (``from_older``); which of several classes a value is of is told by its keys.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar, Union

from spillway.errors import ConfigError

T = TypeVar("T")

_PLAIN = frozenset({str, int, float, bool, type(None)})
"""What most of a value is made of, and is plain data already."""


def from_json(body: bytes | str) -> Any:
    """Plain data from JSON that somebody else may have written.

    Raises:
        ValueError: it is none, or nested so deeply that nothing of ours can have written it.
    """
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def encode(value: Any) -> Any:
    """Plain JSON data for ``value``."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if (names := _field_names(kind)) is not None:
        return {name: encode(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (Decimal, Fraction)):
        return str(value)
    if isinstance(value, datetime):
        return _aware(value).astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        if any(isinstance(key, tuple) for key in value):
            return [[encode(key), encode(item)] for key, item in value.items()]
        return {encode(key): encode(item) for key, item in value.items()}
    if isinstance(value, (frozenset, set)):
        return sorted(encode(item) for item in value)
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return value


def decode(kind: type[T], data: Any, path: str = "") -> T:
    """The ``kind`` that ``data`` describes.

    Raises:
        ConfigError: a key is unknown or missing, or a value has another shape; the path of the field is named.
    """
    value: T = _decode(kind, data, path or kind.__name__)
    return value


def _decode(kind: Any, data: Any, path: str) -> Any:
    if type(data) is kind and kind in _PLAIN:
        return data
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return data
    if origin in (Union, types.UnionType):
        if data is None and type(None) in arguments:
            return None
        return _decode(_option([option for option in arguments if option is not type(None)], data), data, path)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_decode(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(_list(data, path)))
        items = _list(data, path)
        if len(items) != len(arguments):
            raise ConfigError("data", path, f"expected {len(arguments)} items, got {len(items)}")
        return tuple(_decode(kind_, item, path) for kind_, item in zip(arguments, items, strict=True))
    if origin is frozenset:
        return frozenset(_decode(arguments[0], item, path) for item in _list(data, path))
    if origin in (Mapping, dict):
        if typing.get_origin(arguments[0]) is tuple and isinstance(data, list):
            pair = types.GenericAlias(tuple, (arguments[0], Any))
            pairs = [_decode(pair, item, f"{path}[{i}]") for i, item in enumerate(data)]
            return {key: _decode(arguments[1], item, f"{path}.{key}") for key, item in pairs}
        if not isinstance(data, Mapping):
            raise ConfigError("data", path, f"expected a mapping, got {data!r}")
        return {_decode(arguments[0], k, path): _decode(arguments[1], v, f"{path}.{k}") for k, v in data.items()}
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, data, path)
    return _scalar(kind, data, path)


def _option(options: list[Any], data: Any) -> Any:
    """The first of the classes that knows all keys of the data."""
    for option in options if isinstance(data, Mapping) else ():
        names = _field_names(option) if isinstance(option, type) else None
        if names is not None and set(data) <= set(names):
            return option
    return options[0]


def _list(data: Any, path: str) -> list[Any]:
    if not isinstance(data, (list, tuple)):
        raise ConfigError("data", path, f"expected a list, got {data!r}")
    return list(data)


def _dataclass(kind: Any, data: Any, path: str) -> Any:
    if not isinstance(data, Mapping):
        raise ConfigError("data", path, f"expected a mapping, got {data!r}")
    if (from_older := getattr(kind, "from_older", None)) is not None:
        data = from_older(data)
    hints = _hints(kind)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise ConfigError("data", path, f"unknown key '{unknown[0]}'; known: {', '.join(sorted(hints))}")
    try:
        return kind(**{key: _decode(hints[key], item, f"{path}.{key}") for key, item in data.items()})
    except TypeError as problem:
        raise ConfigError("data", path, str(problem)) from problem


@cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"expected an aware moment, got {moment!r}; give it its time zone")
    return moment


def _scalar(kind: Any, data: Any, path: str) -> Any:
    try:
        if kind is datetime:
            return _aware(datetime.fromisoformat(data)).astimezone(UTC)
        if kind is timedelta:
            return timedelta(seconds=float(data))
        if kind is Decimal:
            return Decimal(str(data))
        if kind is Fraction:
            return Fraction(data)
        if issubclass(kind, Enum):
            return kind(data)
    except (ValueError, TypeError, ArithmeticError) as problem:
        raise ConfigError("data", path, f"expected {kind.__name__}, got {data!r}") from problem
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise ConfigError("data", path, f"expected {kind.__name__}, got {data!r}")
    return data
