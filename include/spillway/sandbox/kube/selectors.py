"""Label and field selectors as predicates over objects."""

from __future__ import annotations

import re
from collections.abc import Callable

from spillway.sandbox.kube.resources import Object
from spillway.sandbox.kube.status import bad_request

Matcher = Callable[[Object], bool]

_TERM = re.compile(r"(?P<absent>!?)\s*(?P<name>[\w./-]+?)\s*(?:(?P<operator>==|=|!=)\s*(?P<value>[^=!\s]*))?")


def label_matcher(selector: str | None) -> Matcher:
    """``a=b,c!=d,e,!f``; everything matches an empty one. Raises ApiError 400, for sets such as ``a in (b)`` too."""
    terms = _terms(selector)

    def matches(obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(
            (labels.get(name) == value) == positive if value is not None else (name in labels) == positive
            for name, value, positive in terms
        )

    return matches


def field_matcher(selector: str | None) -> Matcher:
    """``spec.nodeName=n1,status.phase!=Failed``; an absent field is the empty string. Raises ApiError 400."""
    terms = _terms(selector)
    return lambda obj: all((_field(obj, name) == (value or "")) == positive for name, value, positive in terms)


def _terms(selector: str | None) -> list[tuple[str, str | None, bool]]:
    """Name, value (None where only the name is given) and whether that must hold or must not."""
    found = []
    for part in filter(None, (selector or "").split(",")):
        term = _TERM.fullmatch(part.strip())
        if term is None:
            raise bad_request(f'unable to parse requirement: "{part}" in "{selector}" is no selector')
        found.append((term["name"], term["value"], not term["absent"] and term["operator"] != "!="))
    return found


def _field(obj: object, path: str) -> str:
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return "" if obj is None else str(obj)
