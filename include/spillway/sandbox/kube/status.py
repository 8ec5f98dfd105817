"""The failures that the API server answers with, as Kubernetes Status bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spillway.sandbox.kube.resources import Object, Resource


class ApiError(Exception):
    """A request that failed: HTTP code, machine-readable reason, message for a person."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def body(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def success(code: int, **details: Any) -> Object:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}
    return {**body, "details": details} if details else body


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def not_found(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" not found'
    return ApiError(404, "NotFound", message, name=name, kind=resource.plural, group=resource.group)


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, name=name, kind=resource.plural, group=resource.group)


def modified(resource: Resource, name: str) -> ApiError:
    message = (
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return ApiError(409, "Conflict", message, name=name, kind=resource.plural, group=resource.group)


def precondition(resource: Resource, name: str, field: str, expected: str, seen: str) -> ApiError:
    message = f"Precondition failed: {field} in precondition: {expected}, {field} in object meta: {seen}"
    return ApiError(409, "Conflict", message, name=name, kind=resource.plural, group=resource.group)


def invalid(resource: Resource, name: str, causes: Sequence[tuple[str, str]]) -> ApiError:
    """``causes`` are (field path, problem)."""
    text = ", ".join(f"{field}: {problem}" for field, problem in causes)
    return ApiError(
        422,
        "Invalid",
        f'{resource.kind} "{name}" is invalid: {text}',
        name=name,
        kind=resource.kind,
        group=resource.group,
        causes=[{"reason": "FieldValueInvalid", "message": problem, "field": field} for field, problem in causes],
    )


def expired(revision: int, oldest: int) -> ApiError:
    return ApiError(410, "Expired", f"too old resource version: {revision} ({oldest})")
