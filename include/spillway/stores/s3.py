"""Objects in an S3 bucket: AWS, or any server that speaks its protocol with conditional writes."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from botocore.response import StreamingBody

from spillway.errors import IncompleteListing, KeyRefused, Missing, PreconditionFailed, SpillwayError, Unreachable
from spillway.model import ObjectInfo
from spillway.stores.s3_client import s3_client, typed_errors
from spillway.stores.s3_upload import SHA256_FIELD, Upload

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3Store", "open_store", "s3_client"]

_CHUNK_BYTES = 1024**2
_DELETE_BATCH = 1000
_RESUMES = 3
_STAMP = "spillway-write"
"""The metadata field that tells one conditional write from another."""

_HEX_SHA256 = re.compile(r"[0-9a-f]{64}")


def open_store(
    *,
    name: str,
    bucket: str,
    endpoint_url: str | None,
    region: str,
    access_key: str,
    secret_key: str,
    ca_file: Path | None = None,
) -> S3Store:
    """The bucket at the site or endpoint called ``name``; nothing is asked of the server yet."""
    client = s3_client(
        endpoint_url=endpoint_url, region=region, access_key=access_key, secret_key=secret_key, ca_file=ca_file
    )
    return S3Store(name=f"s3://{bucket}@{name}", client=client, bucket=bucket)


class S3Store:
    """An ``ObjectStore``; safe to share between threads.

    The sha256 of an object is kept as its checksum or in its metadata. A body given in chunks that is larger than one
    request and comes without a sha256 is verified part by part, but ``head`` will not know its sha256.
    """

    def __init__(self, *, name: str, client: S3Client, bucket: str) -> None:
        self._name, self._client, self._bucket = name, client, bucket

    @property
    def name(self) -> str:
        return self._name

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        seen: set[str] = set()
        tokens: set[str] = set()
        following: dict[str, Any] = {}
        while True:
            with typed_errors(self._name, bucket=self._bucket):
                page = self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, **following)
            entries = page.get("Contents", [])
            self._check_page(prefix, page, [entry["Key"] for entry in entries], seen)
            for entry in entries:
                yield ObjectInfo(
                    key=entry["Key"],
                    size_bytes=entry["Size"],
                    etag=entry["ETag"].strip('"'),
                    modified_at=entry["LastModified"].astimezone(UTC),
                )
            if not page["IsTruncated"]:
                return
            token = page.get("NextContinuationToken", "")
            if not token or token in tokens:
                raise self._incomplete(prefix, "it says that more follows, but not from where")
            tokens.add(token)
            following = {"ContinuationToken": token}

    def _check_page(self, prefix: str, page: Mapping[str, Any], keys: Sequence[str], seen: set[str]) -> None:
        if page.get("KeyCount", len(keys)) != len(keys):
            raise self._incomplete(prefix, f"a page announces {page['KeyCount']} objects and holds {len(keys)}")
        for key in keys:
            if key in seen or not key.startswith(prefix):
                raise self._incomplete(prefix, f"'{key}' came twice or was not asked for")
            seen.add(key)

    def _incomplete(self, prefix: str, problem: str) -> IncompleteListing:
        return IncompleteListing(f"{self._name}: the listing of '{prefix}' cannot be trusted: {problem}; run it again")

    def head(self, key: str) -> ObjectInfo | None:
        return self._head(key)[0]

    def _head(self, key: str) -> tuple[ObjectInfo | None, Mapping[str, str]]:
        """The object as callers see it, and its metadata with the fields that this class adds."""
        try:
            with typed_errors(self._name, bucket=self._bucket, key=key):
                answer = self._client.head_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
        except Missing:
            self._check_bucket()
            return None, {}
        metadata = answer["Metadata"]
        found = ObjectInfo(
            key=key,
            size_bytes=answer["ContentLength"],
            etag=answer["ETag"].strip('"'),
            modified_at=answer["LastModified"].astimezone(UTC),
            sha256=_stored_sha256(answer),
            content_type=answer.get("ContentType"),
            metadata={name: value for name, value in metadata.items() if name not in (SHA256_FIELD, _STAMP)},
        )
        return found, metadata

    def _check_bucket(self) -> None:
        # The answer to HEAD has no body, so a missing bucket looks like a missing object.
        try:
            with typed_errors(self._name, bucket=self._bucket):
                self._client.head_bucket(Bucket=self._bucket)
        except Missing as problem:
            fix = "create it, or correct the bucket's name"
            raise Missing("bucket", self._bucket, self._name, fix=fix) from problem

    def read(
        self, key: str, *, start: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Iterator[bytes]:
        position, end = start, None if length is None else start + length
        resumed = 0
        while end is None or position < end:
            body, if_match = self._open(key, position, end, if_match)
            if body is None:
                return
            try:
                for chunk in self._chunks(key, body):
                    position += len(chunk)
                    yield chunk
            except Unreachable:
                # A long body breaks off now and then; the rest of the same version is as good.
                resumed += 1
                if resumed > _RESUMES:
                    raise
            else:
                return

    def _open(self, key: str, start: int, end: int | None, etag: str | None) -> tuple[StreamingBody | None, str | None]:
        """The body from ``start`` and the etag of its version; no body where the object ends before."""
        wanted: dict[str, Any] = {}
        if start or end is not None:
            wanted["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        if etag is not None:
            wanted["IfMatch"] = f'"{etag}"'
        condition = f"its etag is {etag}" if etag is not None else ""
        with typed_errors(self._name, bucket=self._bucket, key=key, condition=condition):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=key, **wanted)
            except ClientError as problem:
                if problem.response["ResponseMetadata"]["HTTPStatusCode"] == 416:
                    return None, etag
                raise
        return answer["Body"], answer["ETag"].strip('"')

    def _chunks(self, key: str, body: StreamingBody) -> Iterator[bytes]:
        with body:
            chunks = body.iter_chunks(_CHUNK_BYTES)
            while True:
                with typed_errors(self._name, bucket=self._bucket, key=key):
                    chunk = next(chunks, b"")
                if not chunk:
                    return
                yield chunk

    def put(
        self,
        key: str,
        body: bytes | Iterable[bytes],
        *,
        size_bytes: int,
        sha256: str | None = None,
        if_absent: bool = False,
        if_match: str | None = None,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        self._refuse_inexact(key, size_bytes)
        conditions, condition = _conditions(if_absent, if_match)
        # A retry of a write whose answer was lost meets its own object; the stamp tells it from somebody else's.
        stamp = {_STAMP: uuid.uuid4().hex} if conditions else {}
        attributes = {} if content_type is None else {"ContentType": content_type}
        upload = Upload(
            client=self._client,
            bucket=self._bucket,
            key=key,
            attributes=attributes,
            metadata={**(metadata or {}), **stamp},
            conditions=conditions,
        )
        try:
            with typed_errors(self._name, bucket=self._bucket, key=key, condition=condition):
                etag, sha256 = upload.run(body, what=f"{self._name}/{key}", size_bytes=size_bytes, sha256=sha256)
        except (PreconditionFailed, Missing) as problem:
            of_the_body = problem.where != self._name
            of_the_bucket = isinstance(problem, Missing) and problem.kind == "bucket"
            if not conditions or of_the_body or of_the_bucket:
                raise
            return self._own_write(key, stamp, condition, problem)
        facts: dict[str, Any] = {"content_type": content_type, "metadata": dict(metadata or {})}
        return ObjectInfo(key=key, size_bytes=size_bytes, etag=etag, sha256=sha256, **facts)

    def _own_write(self, key: str, stamp: Mapping[str, str], condition: str, problem: SpillwayError) -> ObjectInfo:
        found, metadata = self._head(key)
        if found is None or metadata.get(_STAMP) != stamp[_STAMP]:
            raise PreconditionFailed(self._name, key, condition) from problem
        return found

    def _refuse_inexact(self, key: str, size_bytes: int) -> None:
        if _is_unusual(key, size_bytes) and not self._keeps_unusual_keys:
            raise KeyRefused(self._name, key, "this server cleans up empty, '.' and '..' segments of a key")

    @cached_property
    def _keeps_unusual_keys(self) -> bool:
        """Found out by trying, once: such a server would silently overwrite another object."""
        prefix = f".spillway/exact-keys/{uuid.uuid4().hex}"
        probe = f"{prefix}//probe/"
        with typed_errors(self._name, bucket=self._bucket, key=probe):
            self._client.put_object(Bucket=self._bucket, Key=probe, Body=b"exact")
        stored = list(self.list(prefix))
        exact = [entry.key for entry in stored] == [probe] and b"".join(self.read(probe)) == b"exact"
        self.delete([entry.key for entry in stored])
        return exact

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        refused: dict[str, str] = {}
        waiting = list(keys)
        for begin in range(0, len(waiting), _DELETE_BATCH):
            batch = waiting[begin : begin + _DELETE_BATCH]
            with typed_errors(self._name, bucket=self._bucket):
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
                )
            for error in answer.get("Errors", []):
                refused[error["Key"]] = f"{error.get('Code', '')}: {error.get('Message', '')}"
        return refused


def _is_unusual(key: str, size_bytes: int) -> bool:
    """Whether a server that keeps objects in a file tree may clean the key up; ``folder/`` without content is usual."""
    *folders, last = key.split("/")
    names = folders if folders and not last and size_bytes == 0 else [*folders, last]
    return any(name in ("", ".", "..") for name in names)


def _conditions(if_absent: bool, if_match: str | None) -> tuple[dict[str, Any], str]:
    """The request's condition, and how a message calls it."""
    if if_absent and if_match is not None:
        raise ValueError("if_absent and if_match exclude each other")
    if if_absent:
        return {"IfNoneMatch": "*"}, "the object is absent"
    if if_match is not None:
        return {"IfMatch": f'"{if_match}"'}, f"its etag is {if_match}"
    return {}, ""


def _stored_sha256(answer: Mapping[str, Any]) -> str | None:
    """The sha256 of the whole object: as the server computed it, or as its writer noted it."""
    checksum = answer.get("ChecksumSHA256", "")
    if checksum and "-" not in checksum and answer.get("ChecksumType") != "COMPOSITE":
        return base64.b64decode(checksum).hex()
    noted = answer["Metadata"].get(SHA256_FIELD, "")
    return noted if _HEX_SHA256.fullmatch(noted) else None
