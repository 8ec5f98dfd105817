"""A YAML file as plain data, and its problems as one ``ConfigError`` with file and field path."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from spillway.errors import ConfigError

M = TypeVar("M", bound=BaseModel)

_UNUSABLE = re.compile("[\0\ud800-\udfff]")
"""What no argument, variable or JSON can hold: NUL, and surrogates without their other half."""


def read(path: Path, kind: type[M]) -> M:
    """The file, validated as ``kind``.

    Raises:
        ConfigError: there is no such file, it is not YAML, or a field is wrong; only the first problem is told.
    """
    data = mapping(path)
    try:
        return kind.model_validate(data)
    except ValidationError as problem:
        raise _first(path.name, problem) from problem


def mapping(path: Path) -> Mapping[str, Any]:
    """The file's fields as they are written; raises ConfigError where it is not there or no mapping in YAML."""
    data = _plain(path)
    if not isinstance(data, Mapping):
        raise ConfigError(path.name, "", f"expected a mapping at the top, got {_shown(data)}")
    return data


def _plain(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as problem:
        raise ConfigError(path.name, "", f"no such file in {path.parent}") from problem
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(path.name, "", f"cannot be read as UTF-8 text: {problem}") from problem
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(path.name, where, f"not valid YAML: {problem.problem or problem.context}") from problem
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise ConfigError(path.name, "", f"not valid YAML: {' '.join(str(problem).split())}") from problem


class _Loader(yaml.SafeLoader):
    """YAML's safe types, with text keys only and none of them twice; each text is one that a process can be given."""

    def construct_scalar(self, node: Any) -> Any:
        text = super().construct_scalar(node)
        if _UNUSABLE.search(text):
            raise yaml.MarkedYAMLError(
                problem=f"expected text without NUL and halves of characters, got {text!r}",
                problem_mark=node.start_mark,
            )
        return text

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(
                    problem=f"expected a text key, got {key!r}; put it in quotes", problem_mark=key_node.start_mark
                )
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key '{key}' is there twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _first(file: str, problem: ValidationError) -> ConfigError:
    error = problem.errors(include_url=False)[0]
    return ConfigError(file, field_path(error["loc"]), _told(error))


def field_path(location: tuple[int | str, ...]) -> str:
    """``clusters[2].pools[0].max_nodes`` for ``("clusters", 2, "pools", 0, "max_nodes")``."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":
            path += f".{part}" if path else part
    return path


_EXPECTED: Mapping[str, str] = {
    "int_type": "an integer",
    "string_type": "text",
    "bool_type": "true or false",
    "float_type": "a number",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "mapping_type": "a mapping",
    "recursion_loop": "data that does not contain itself",
    "invalid-json-value": "plain JSON data",
}
_LIMITS: Mapping[str, Callable[[Any], str]] = {
    "greater_than": lambda context: f"a number above {context['gt']:g}",
    "greater_than_equal": lambda context: f"a number of at least {context['ge']:g}",
    "less_than_equal": lambda context: f"a number of at most {context['le']:g}",
    "string_too_short": lambda _: "text that is not empty",
    "too_short": lambda context: f"at least {context['min_length']} entry",
    "string_pattern_mismatch": lambda context: f"text that matches {context['pattern']}",
}


def _told(error: Any) -> str:
    kind, seen = error["type"], error["input"]
    if kind == "missing":
        return "is missing"
    if kind in _EXPECTED:
        quote = "; put it in quotes" if kind == "string_type" and isinstance(seen, (bool, int, float)) else ""
        return f"expected {_EXPECTED[kind]}, got {_shown(seen)}{quote}"
    if kind in _LIMITS:
        return f"expected {_LIMITS[kind](error['ctx'])}, got {_shown(seen)}"
    return str(error["msg"])


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    return repr(value)
