"""Objects in an S3 bucket: AWS, or any server that speaks its protocol with conditional writes."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.errors import KeyRefused, Missing, PreconditionFailed, SpillwayError, Unreachable
from spillway.model import ObjectInfo
from spillway.stores import parts
from spillway.stores.base import OWN_PREFIX, OpenedObject, Upload
from spillway.stores.http_pool import Broken, Reply
from spillway.stores.parts import MIB, FileBody, PromisedBody
from spillway.stores.s3_answers import SHA256_FIELD, STAMP_FIELD, object_info, stored_metadata
from spillway.stores.s3_conditions import OF_BOTO, conditions
from spillway.stores.s3_deletes import DELETED_ALONE, delete_alone, delete_together
from spillway.stores.s3_endpoint import S3Endpoint
from spillway.stores.s3_keys import check_fields, fits_xml, is_folder_alone, is_unusual
from spillway.stores.s3_listing import list_objects
from spillway.stores.s3_requests import S3Requests

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3Endpoint", "S3Store", "open_store"]

_RESUMES = 3
_PAST_THE_END = frozenset({416})
_CHECKSUMS = {"x-amz-checksum-mode": "ENABLED"}


def open_store(
    *,
    name: str,
    bucket: str,
    endpoint_url: str | None,
    region: str,
    access_key: str,
    secret_key: str,
    session_token: str | None = None,
    ca_file: Path | None = None,
    credentials: str = "its Connection",
    away_seconds: float = 0.0,
) -> S3Store:
    """The bucket at the site called ``name``, asked nothing yet; ``credentials`` is for errors: where its keys are."""
    endpoint = S3Endpoint(
        url=endpoint_url,
        region=region,
        access_key=access_key,
        secret_key=secret_key,
        session_token=session_token,
        ca_file=ca_file,
        away_seconds=away_seconds,
    )
    return S3Store(name=f"s3://{bucket}@{name}", endpoint=endpoint, bucket=bucket, credentials=credentials)


class S3Store:
    """An ``ObjectStore``; safe to share between threads.

    The sha256 of an object is kept as its checksum or in its metadata. A body given in chunks that is larger than one
    request and comes without a sha256 is verified part by part, but ``head`` will not know its sha256.
    """

    def __init__(self, *, name: str, endpoint: S3Endpoint, bucket: str, credentials: str = "its Connection") -> None:
        self._name, self._bucket, self._endpoint, self._credentials = name, bucket, endpoint, credentials
        self._stamp, self._writes = uuid.uuid4().hex, count()
        # Known once a server has answered with the digest that it computed: it refuses other bytes on its own.
        self._checks_digests = False
        self._requests = S3Requests(endpoint, bucket, store=name, credentials=credentials)

    @property
    def name(self) -> str:
        return self._name

    # boto3 takes a fifth of a second to load, so only what needs it loads it.

    @cached_property
    def _client(self) -> S3Client:
        return self._endpoint.client(self._name)

    @cached_property
    def _typed_errors(self) -> Any:
        from spillway.stores.s3_client import typed_errors

        return partial(typed_errors, self._name, bucket=self._bucket, credentials=self._credentials)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return list_objects(self._requests, prefix)

    def head(self, key: str) -> ObjectInfo | None:
        return self._head(key)[0]

    def _head(self, key: str) -> tuple[ObjectInfo | None, Mapping[str, str]]:
        """The object as callers see it, and its metadata with the fields that this class adds."""
        try:
            reply = self._requests.send("HeadObject", "HEAD", key, headers=_CHECKSUMS)
        except Missing:
            self._requests.check_bucket()
            return None, {}
        size_bytes = int(reply.headers.get("content-length", "0"))
        found = object_info(key, reply.headers, size_bytes=size_bytes)
        if is_folder_alone(found):
            return None, {}
        return found, stored_metadata(reply.headers)

    def tags(self, key: str) -> Mapping[str, str]:
        from spillway.stores.s3_tags import object_tags

        return object_tags(self._requests, key)

    def read(
        self, key: str, *, start: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Iterator[bytes]:
        end = None if length is None else start + length
        if end is None or start < end:
            reply = self._get(key, start, end, if_match)
            yield from self._going_on(key, reply, start, end, if_match or _etag(reply))

    def open(self, key: str) -> OpenedObject:
        reply = self._requests.send("GetObject", "GET", key, headers=_CHECKSUMS)
        size_bytes = int(reply.headers.get("content-length", "0"))
        info = object_info(key, reply.headers, size_bytes=size_bytes)
        chunks = self._going_on(key, reply, 0, None, info.etag)
        # A small one is read at once, so that its connection serves the next request while it is written elsewhere.
        return OpenedObject(info, iter([*chunks]) if size_bytes <= parts.SINGLE_MAX_BYTES else chunks)

    def _get(self, key: str, start: int, end: int | None, etag: str | None) -> Reply:
        wanted: dict[str, str] = {}
        if start or end is not None:
            wanted["range"] = f"bytes={start}-{'' if end is None else end - 1}"
        if etag is not None:
            wanted["if-match"] = f'"{etag}"'
        condition = f"its etag is {etag}" if etag is not None else ""
        return self._requests.send("GetObject", "GET", key, headers=wanted, condition=condition, expected=_PAST_THE_END)

    def _going_on(self, key: str, reply: Reply, position: int, end: int | None, etag: str) -> Iterator[bytes]:
        """The body of the answer; where it breaks off, as it does now and then, the rest of the same version."""
        size = MIB if end is None else min(end - position, parts.PART_WISH_BYTES)
        for resumed in range(_RESUMES + 1):
            if reply.status == 416:
                reply.close()
                return
            try:
                for chunk in reply.chunks(size):
                    position += len(chunk)
                    yield chunk
                return
            except Broken as problem:
                if resumed == _RESUMES:
                    raise Unreachable(self._name, str(problem)) from problem
            if position == end:
                return
            reply = self._get(key, position, end, etag)

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
        check_fields(self._name, key, content_type, metadata or {})
        what = f"{self._name}/{key}"
        if isinstance(body, bytes) and size_bytes > parts.SINGLE_MAX_BYTES:
            sha256 = sha256 or hashlib.sha256(body).hexdigest()
        body = (body,) if isinstance(body, bytes) else body
        promised = PromisedBody(what, body, size_bytes=size_bytes, sha256=sha256)
        headers, condition = conditions(if_absent, if_match)
        content: bytes | FileBody
        if isinstance(body, FileBody) and sha256 and parts.SINGLE_MAX_BYTES < size_bytes <= parts.STREAMED_MAX_BYTES:
            content = body.held_against(None if self._checks_digests else sha256)
        elif size_bytes > parts.SINGLE_MAX_BYTES:
            return self._put_in_parts(promised, key, (headers, condition), content_type, metadata or {})
        else:
            content = b"".join(promised)
            sha256 = promised.verify()
        # A retry of a write whose answer was lost meets its own object; the stamp tells it from somebody else's.
        stamp = f"{self._stamp}-{next(self._writes)}" if headers else ""
        noted = {**(metadata or {}), SHA256_FIELD: sha256, **({STAMP_FIELD: stamp} if stamp else {})}
        headers |= {f"x-amz-meta-{name}": value for name, value in noted.items()}
        digest = headers["x-amz-checksum-sha256"] = base64.b64encode(bytes.fromhex(sha256)).decode()
        if content_type is not None:
            headers["content-type"] = content_type
        try:
            reply, _ = self._requests.read(
                "PutObject", "PUT", key, headers=headers, body=content, payload=sha256, condition=condition
            )
        except PreconditionFailed as problem:
            return self.own_write(key, stamp, condition, problem)
        self._checks_digests |= reply.headers.get("x-amz-checksum-sha256") == digest
        facts: dict[str, Any] = {"content_type": content_type, "metadata": dict(metadata or {})}
        return ObjectInfo(key=key, size_bytes=size_bytes, etag=_etag(reply), sha256=sha256, **facts)

    def _put_in_parts(
        self,
        body: PromisedBody,
        key: str,
        asked: tuple[dict[str, str], str],
        content_type: str | None,
        metadata: Mapping[str, str],
    ) -> ObjectInfo:
        from spillway.stores.s3_upload import PartsUpload

        headers, condition = asked
        upload = PartsUpload(self, self._client, self._requests, self._bucket, key)
        known = {SHA256_FIELD: body.sha256} if body.sha256 else {}
        try:
            with self._typed_errors(key=key, condition=condition):
                stored = upload.run(
                    body,
                    attributes={} if content_type is None else {"ContentType": content_type},
                    metadata={**metadata, **known},
                    conditions={OF_BOTO[name]: value for name, value in headers.items()},
                )
            return stored._replace(content_type=content_type, metadata=dict(metadata))
        except (PreconditionFailed, Missing) as problem:
            of_the_bucket = isinstance(problem, Missing) and problem.kind == "bucket"
            if problem.where != self._name or of_the_bucket:
                raise
            # Others may have joined the upload: a condition that failed at the first try was met by one of them.
            may_be_own = upload.answer_lost or not condition
            return self.own_write(key, upload.stamp if may_be_own else "", condition, problem)

    def own_write(self, key: str, stamp: str, condition: str, problem: SpillwayError) -> ObjectInfo:
        """What lies there, if it bears the stamp: the server did as asked and its answer was lost; else the error."""
        found, metadata = self._head(key)
        if found is not None and metadata.get(STAMP_FIELD) == stamp:
            return found
        if condition:
            raise PreconditionFailed(self._name, key, condition) from problem
        raise Unreachable(self._name, f"it no longer knows the upload of '{key}' that it began") from problem

    def _refuse_inexact(self, key: str, size_bytes: int) -> None:
        if is_unusual(key, size_bytes) and not self._keeps_unusual_keys:
            raise KeyRefused(self._name, key, "this server cleans up backslashes and empty, '.' and '..' segments")

    @cached_property
    def _keeps_unusual_keys(self) -> bool:
        """Found out by trying, once: such a server would silently overwrite another object."""
        prefix = f"{OWN_PREFIX}exact-keys/{uuid.uuid4().hex}"
        probe = f"{prefix}//pro\\be/"
        self._requests.read("PutObject", "PUT", probe, body=b"exact")
        stored = list(self.list(prefix))
        exact = [entry.key for entry in stored] == [probe] and b"".join(self.read(probe)) == b"exact"
        self.delete([entry.key for entry in stored])
        return exact

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        wanted, refused = list(keys), dict[str, str]()
        alone = wanted if len(wanted) <= DELETED_ALONE else [key for key in wanted if not fits_xml(key)]
        for key in alone:
            refused |= delete_alone(self._requests, key)
        if alone is not wanted:
            with self._typed_errors():
                refused |= delete_together(self._client, self._bucket, filter(fits_xml, wanted))
        return refused

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        from spillway.stores.s3_upload import list_uploads

        with self._typed_errors():
            yield from list_uploads(self._client, self._bucket, prefix)

    def abort(self, upload: Upload) -> None:
        from spillway.stores.s3_upload import forget_upload

        with self._typed_errors(key=upload.key):
            forget_upload(self, self._client, self._bucket, upload)


def _etag(reply: Reply) -> str:
    return reply.headers.get("etag", "").strip('"')
