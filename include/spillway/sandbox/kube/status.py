"""The failures that the API server answers with, as Kubernetes Status bodies."""

from __future__ import annotations

from typing import Any

from spillway.sandbox.kube.resources import Object, Resource


class ApiError(Exception):
    """A request that failed: HTTP code, machine-readable reason, message for a person."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def body(self) -> Object:
        told = {"message": self.message, "reason": self.reason, "details": self.details}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": self.code, **told}


def success(code: int, **details: Any) -> Object:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**body, "code": code, "details": details}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', **_about(resource, name))


def already_exists(resource: Resource, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', **_about(resource, name))


def conflict(resource: Resource, name: str, field: str, *, expected: str, seen: str) -> ApiError:
    message = (
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": expected {field} {expected}, it has {seen}; '
        "please apply your changes to the latest version and try again"
    )
    return ApiError(409, "Conflict", message, **_about(resource, name))


def invalid(resource: Resource, name: str, field: str, problem: str) -> ApiError:
    message = f'{resource.kind} "{name}" is invalid: {field}: {problem}'
    cause = {"reason": "FieldValueInvalid", "message": problem, "field": field}
    return ApiError(422, "Invalid", message, **_about(resource, name), causes=[cause])


def expired(revision: int, oldest: int) -> ApiError:
    return ApiError(410, "Expired", f"too old resource version: {revision} ({oldest})")


def _about(resource: Resource, name: str) -> Object:
    return {"name": name, "kind": resource.plural, "group": resource.group}
