"""Deletes of single keys, and of many by one request; what a server keeps is told by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from spillway.errors import RequestRefused
from spillway.stores.s3_answers import refusal
from spillway.stores.s3_requests import S3Requests

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

DELETED_ALONE = 3
"""Up to so many keys by a request each: one for all of them is boto3's, which takes a fifth of a second to load."""

_BATCH = 1000
_FORBIDDEN_OR_GONE = frozenset({403, 404})


def delete_alone(requests: S3Requests, key: str) -> Mapping[str, str]:
    """Delete one key; why it was not, by its name. One that is not there is deleted.

    Raises:
        AccessDenied, Missing: the server knows no such identity, or no such bucket.
    """
    try:
        reply, body = requests.read("DeleteObject", "DELETE", key, expected=_FORBIDDEN_OR_GONE)
    except RequestRefused as problem:
        return {key: problem.problem}
    if reply.status not in _FORBIDDEN_OR_GONE:
        return {}
    answer = refusal("DeleteObject", reply.status, reply.headers, body)
    if answer.code == "AccessDenied":
        return {key: f"{answer.code}: {answer.message}"}
    if reply.status == 403 or answer.code == "NoSuchBucket":
        requests.refuse(answer, key, "")
    return {}


def delete_together(client: S3Client, bucket: str, keys: Iterable[str]) -> Mapping[str, str]:
    """Delete keys that XML can name; why some of them were not, by their names."""
    waiting, refused = iter(keys), dict[str, str]()
    while batch := list(islice(waiting, _BATCH)):
        wanted = [{"Key": key} for key in batch]
        answer = client.delete_objects(Bucket=bucket, Delete={"Objects": wanted, "Quiet": True})  # type: ignore[typeddict-item]
        for error in answer.get("Errors", []):
            refused[error["Key"]] = f"{error.get('Code', '')}: {error.get('Message', '')}"
    return refused
