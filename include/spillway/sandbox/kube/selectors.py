"""Label and field selectors as predicates over objects."""

from __future__ import annotations

import re
from collections.abc import Callable

from spillway.sandbox.kube.resources import Object
from spillway.sandbox.kube.status import bad_request

Matcher = Callable[[Object], bool]

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_SET = re.compile(rf"({_NAME})\s+(in|notin)\s*\(([^)]*)\)")
_EQUAL = re.compile(rf"({_NAME})\s*(==|=|!=)\s*([-A-Za-z0-9_.]*)")
_EXISTS = re.compile(rf"(!?)\s*({_NAME})")


def label_matcher(selector: str | None) -> Matcher:
    """``a=b,c!=d,e in (f,g),h notin (i),j,!k``; everything matches an empty one. Raises ApiError 400."""
    terms = [_label_term(part.strip()) for part in re.split(r",(?![^(]*\))", selector or "") if part.strip()]
    return lambda obj: all(term(obj["metadata"].get("labels") or {}) for term in terms)


def _label_term(text: str) -> Callable[[dict[str, str]], bool]:
    if match := _SET.fullmatch(text):
        name, wanted, values = match[1], match[2] == "in", {value.strip() for value in match[3].split(",")}
        return lambda labels: (labels.get(name) in values) == wanted
    if match := _EQUAL.fullmatch(text):
        name, equal, value = match[1], match[2] != "!=", match[3]
        return lambda labels: (labels.get(name) == value) == equal
    if match := _EXISTS.fullmatch(text):
        name, present = match[2], not match[1]
        return lambda labels: (name in labels) == present
    raise bad_request(f'unable to parse requirement: "{text}" is no label selector')


def field_matcher(selector: str | None) -> Matcher:
    """``spec.nodeName=n1,status.phase!=Failed``; an absent field is the empty string. Raises ApiError 400."""
    terms: list[tuple[list[str], bool, str]] = []
    for part in filter(None, (selector or "").split(",")):
        match = re.fullmatch(r"([A-Za-z.]+)(==|=|!=)(.*)", part)
        if match is None:
            raise bad_request(f'invalid field selector: "{part}"; can\'t understand it')
        terms.append((match[1].split("."), match[2] != "!=", match[3]))
    return lambda obj: all((_field(obj, path) == value) == equal for path, equal, value in terms)


def _field(obj: object, path: list[str]) -> str:
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return "" if obj is None else str(obj)
