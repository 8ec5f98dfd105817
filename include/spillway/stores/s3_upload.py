"""Upload of one large object in parts: verified before it becomes visible, and taken up again where it was cut off.

What is to be sent is cut into parts before the first byte. Each part travels with its CRC32, which the server holds
against what arrived; the whole is held against its sha256 before the upload is completed.

An upload of a ``RangedBody`` leaves a note in the store itself, under a name that follows from the key and from all
that was asked for (size, digest, content type, metadata). A later upload of the same finds it, asks the server which
parts it has, and sends only those whose MD5 is not there. A note of the same key with another name is of an older
version: its parts are removed.

Of several who upload the same at once one leaves the note, and the others join its upload: a server may take two
uploads that are completed in the same moment for the first one each (SeaweedFS does), one upload it completes once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from spillway.codec import from_json
from spillway.errors import AccessDenied, PreconditionFailed, SpillwayError, Unreachable
from spillway.model import ObjectInfo
from spillway.stores.base import OWN_PREFIX, ObjectStore, Upload, read_all
from spillway.stores.parts import PARTS_IN_FLIGHT, PromisedBody, RangedBody, part_bytes, split_in_parts
from spillway.stores.s3_answers import STAMP_FIELD
from spillway.stores.s3_requests import S3Requests
from spillway.threads import worker_threads

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

log = logging.getLogger(__name__)

ReadPart = Callable[[], bytes]

_NOTES = f"{OWN_PREFIX}uploads/"
_JOIN_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    number: int
    etag: str
    crc32: str
    content: bytes | None = None


class PartsUpload:
    """One upload; ``run`` once. ``stamp`` is then the mark of its object, whichever call began it.

    ``answer_lost`` says that it may have been completed by a request whose answer did not arrive.
    """

    def __init__(self, store: ObjectStore, client: S3Client, requests: S3Requests, bucket: str, key: str) -> None:
        self._store, self._client, self._requests = store, client, requests
        self._target: dict[str, Any] = {"Bucket": bucket, "Key": key}
        self._key = key
        self._there: Mapping[int, str] = {}
        self._note: str | None = None
        self.stamp = uuid.uuid4().hex
        self.answer_lost = False

    def run(
        self,
        body: PromisedBody,
        *,
        attributes: Mapping[str, Any],
        metadata: Mapping[str, str],
        conditions: Mapping[str, Any],
    ) -> ObjectInfo:
        """The stored object; a failure leaves no object, and of parts only those that a later try can use."""
        size = part_bytes(body.what, body.size_bytes)
        if isinstance(body.chunks, RangedBody):
            self._join([body.size_bytes, body.sha256, size, dict(attributes), dict(metadata)], attributes, metadata)
        else:
            self._begin(attributes, metadata)
        try:
            parts = self._send(body, size)
            sha256 = body.verify()
            stored = self._complete(parts, conditions)
        except BaseException as problem:
            if self._note is None or not _may_go_on(problem):
                self._abort(self._target["UploadId"])
                self._forget_note()
            raise
        self._forget_note()
        return ObjectInfo(key=self._key, size_bytes=body.size_bytes, etag=stored["ETag"].strip('"'), sha256=sha256)

    def _begin(self, attributes: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
        created = self._client.create_multipart_upload(
            **self._target, Metadata={**metadata, STAMP_FIELD: self.stamp}, ChecksumAlgorithm="CRC32", **attributes
        )
        self._target["UploadId"] = created["UploadId"]

    def _complete(self, parts: Any, conditions: Mapping[str, Any]) -> Any:
        try:
            return self._client.complete_multipart_upload(
                **self._target, MultipartUpload={"Parts": parts}, **conditions
            )
        except ClientError as answer:
            self.answer_lost = answer.response["ResponseMetadata"].get("RetryAttempts", 0) > 0
            raise

    def _join(self, asked: object, attributes: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
        """Take up the upload of the very same that was begun and not ended, or begin one and leave its note."""
        key = _notes_of(self._key) + hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
        for _ in range(_JOIN_TRIES):
            condition = self._take_up(key)
            if "UploadId" in self._target:
                self._note = key
                return
            self._begin(attributes, metadata)
            note = json.dumps({"upload": self._target["UploadId"], "stamp": self.stamp}).encode()
            try:
                self._store.put(key, note, size_bytes=len(note), content_type="application/json", **condition)
                self._note = key
                return
            except PreconditionFailed:  # somebody has begun the same since it was looked for
                self._abort(self._target.pop("UploadId"))
        self._begin(attributes, metadata)

    def _take_up(self, key: str) -> Mapping[str, Any]:
        """Go on with the upload that the note of this key names, if there is one; else the condition of a new note."""
        condition: Mapping[str, Any] = {"if_absent": True}
        for found in list(self._store.list(_notes_of(self._key))):
            noted = _read_note(self._store, found.key)
            if found.key != key:
                self._abort(noted.get("upload"))
                self._store.delete([found.key])
            elif "upload" in noted and (parts := self._parts_of(noted["upload"])) is not None:
                self._target["UploadId"], self.stamp, self._there = noted["upload"], noted["stamp"], parts
            else:
                condition = {"if_match": found.etag}
        return condition

    def _parts_of(self, upload: str) -> Mapping[int, str] | None:
        """The md5 (hex) by number of the parts that the server has; None where it does not know the upload."""
        pages = self._client.get_paginator("list_parts").paginate(**self._target, UploadId=upload)
        try:
            return {part["PartNumber"]: part["ETag"].strip('"') for page in pages for part in page.get("Parts", [])}
        except ClientError as answer:
            if not _is_unknown(answer):
                raise
            return None

    def _send(self, body: PromisedBody, size: int) -> Any:
        done: list[dict[str, Any]] = []
        pending: deque[Future[_Part]] = deque()

        def take() -> None:
            part = pending.popleft().result()
            if part.content is not None:
                body.see(part.content)
            done.append({"PartNumber": part.number, "ETag": f'"{part.etag}"', "ChecksumCRC32": part.crc32})

        with worker_threads(PARTS_IN_FLIGHT, "part") as pool:
            for number, piece in enumerate(_pieces(body, size), start=1):
                if len(pending) == PARTS_IN_FLIGHT:
                    take()
                pending.append(pool.submit(self._send_part, number, piece))
            while pending:
                take()
        return done

    def _send_part(self, number: int, piece: bytes | ReadPart) -> _Part:
        content = piece() if callable(piece) else piece
        crc32 = base64.b64encode(binascii.crc32(content).to_bytes(4)).decode()
        kept = content if callable(piece) else None
        if number in self._there and hashlib.md5(content, usedforsecurity=False).hexdigest() == self._there[number]:
            return _Part(number=number, etag=self._there[number], crc32=crc32, content=kept)
        query = [("partNumber", str(number)), ("uploadId", self._target["UploadId"])]
        reply, _ = self._requests.read(
            "UploadPart", "PUT", self._key, query=query, headers={"x-amz-checksum-crc32": crc32}, body=content
        )
        return _Part(number=number, etag=reply.headers.get("etag", "").strip('"'), crc32=crc32, content=kept)

    def _abort(self, upload: str | None) -> None:
        # The first failure is the one to report; parts that cannot be removed now are left to the bucket's clean-up.
        try:
            if upload is not None:
                self._client.abort_multipart_upload(**{**self._target, "UploadId": upload})
        except Exception as problem:
            if isinstance(problem, ClientError) and _is_unknown(problem):
                return
            log.warning("%s: the parts of a failed upload could not be removed: %s", self._key, problem)

    def _forget_note(self) -> None:
        if self._note is not None:
            try:
                self._store.delete([self._note])
            except SpillwayError as problem:
                log.warning("%s: the note of its upload could not be removed: %s", self._key, problem)


def list_uploads(client: S3Client, bucket: str, prefix: str) -> Iterator[Upload]:
    """The uploads that were begun and not ended, of keys that begin with ``prefix``."""
    pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
    for entry in (entry for page in pages for entry in page.get("Uploads", [])):
        yield Upload(entry["Key"], entry["UploadId"], entry["Initiated"])


def forget_upload(store: ObjectStore, client: S3Client, bucket: str, upload: Upload) -> None:
    """Remove the parts of an upload that nobody goes on with, and the note that would lead to it."""
    try:
        client.abort_multipart_upload(Bucket=bucket, Key=upload.key, UploadId=upload.id)
    except ClientError as answer:
        if not _is_unknown(answer):
            raise
    notes = [found.key for found in store.list(_notes_of(upload.key))]
    store.delete([note for note in notes if _read_note(store, note).get("upload") == upload.id])


def _notes_of(key: str) -> str:
    """The folder of the notes of uploads of the key."""
    return f"{_NOTES}{hashlib.sha256(key.encode()).hexdigest()}/"


def _read_note(store: ObjectStore, note: str) -> dict[str, str]:
    try:
        noted: dict[str, str] = from_json(read_all(store, note))
    except (ValueError, SpillwayError):
        return {}
    return noted


def _is_unknown(answer: ClientError) -> bool:
    """Whether the server says that it has no such upload."""
    return bool(answer.response["ResponseMetadata"]["HTTPStatusCode"] == 404)


def _may_go_on(problem: BaseException) -> bool:
    """Whether a later try of the same upload can succeed: a store went away or has other keys, the process is ended."""
    return isinstance(problem, (Unreachable, AccessDenied)) or not isinstance(problem, Exception)


def _pieces(body: PromisedBody, size: int) -> Iterator[bytes | ReadPart]:
    """The parts in order: their content, or what reads it."""
    if not isinstance(body.chunks, RangedBody):
        yield from split_in_parts(body, size)
        return
    for start in range(0, body.size_bytes, size):
        yield partial(body.chunks.part, start, min(size, body.size_bytes - start))
