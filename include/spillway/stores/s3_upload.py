"""Upload of one object: verified before it becomes visible, in parts where it is large."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.stores.parts import MIB, PromisedBody, part_bytes, split_in_parts

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

log = logging.getLogger(__name__)

SINGLE_MAX_BYTES = 16 * MIB
"""Objects up to this size travel in one request."""

PARTS_IN_FLIGHT = 4
SHA256_FIELD = "sha256"
"""The metadata field that holds the sha256 (hex) of the whole object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Where the bytes go and what is asked of the write: ``attributes`` of the object, ``conditions`` of its commit."""

    client: S3Client
    bucket: str
    key: str
    attributes: Mapping[str, Any]
    metadata: Mapping[str, str]
    conditions: Mapping[str, Any]

    def run(self, body: bytes | Iterable[bytes], *, what: str, size_bytes: int, sha256: str | None) -> tuple[str, str]:
        """The etag and the sha256 of the stored object; a failure leaves neither an object nor parts of one."""
        if isinstance(body, bytes):
            sha256 = sha256 or hashlib.sha256(body).hexdigest()
            body = (body,)
        promised = PromisedBody(what, body, size_bytes=size_bytes, sha256=sha256)
        if size_bytes <= SINGLE_MAX_BYTES:
            return self._in_one_request(promised)
        return self._in_parts(promised, part_bytes(what, size_bytes), sha256)

    def _in_one_request(self, body: PromisedBody) -> tuple[str, str]:
        content = b"".join(body)
        sha256 = body.verify()
        answer = self.client.put_object(
            Bucket=self.bucket,
            Key=self.key,
            Body=content,
            ChecksumSHA256=base64.b64encode(bytes.fromhex(sha256)).decode(),
            Metadata={**self.metadata, SHA256_FIELD: sha256},
            **self.attributes,
            **self.conditions,
        )
        return answer["ETag"].strip('"'), sha256

    def _in_parts(self, body: PromisedBody, size: int, sha256: str | None) -> tuple[str, str]:
        target: dict[str, Any] = {"Bucket": self.bucket, "Key": self.key}
        known = {SHA256_FIELD: sha256} if sha256 else {}
        created = self.client.create_multipart_upload(
            **target, Metadata={**self.metadata, **known}, ChecksumAlgorithm="SHA256", **self.attributes
        )
        target["UploadId"] = created["UploadId"]
        try:
            parts = self._send(target, split_in_parts(body, size))
            seen = body.verify()
            stored = self.client.complete_multipart_upload(
                **target, MultipartUpload={"Parts": parts}, **self.conditions
            )
        except BaseException:
            self._abort(target)
            raise
        return stored["ETag"].strip('"'), seen

    def _send(self, target: Mapping[str, Any], parts: Iterable[bytes]) -> Any:
        done: list[dict[str, Any]] = []
        pending: deque[Future[dict[str, Any]]] = deque()
        with ThreadPoolExecutor(PARTS_IN_FLIGHT, thread_name_prefix="part") as pool:
            try:
                for number, part in enumerate(parts, start=1):
                    if len(pending) == PARTS_IN_FLIGHT:
                        done.append(pending.popleft().result())
                    pending.append(pool.submit(self._send_part, target, number, part))
                done.extend(future.result() for future in pending)
            except BaseException:
                for future in pending:
                    future.cancel()
                raise
        return done

    def _send_part(self, target: Mapping[str, Any], number: int, part: bytes) -> dict[str, Any]:
        checksum = base64.b64encode(hashlib.sha256(part).digest()).decode()
        answer = self.client.upload_part(**target, PartNumber=number, Body=part, ChecksumSHA256=checksum)
        return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": checksum}

    def _abort(self, target: Mapping[str, Any]) -> None:
        # The first failure is the one to report; parts that cannot be removed now are left to the bucket's clean-up.
        try:
            self.client.abort_multipart_upload(**target)
        except Exception as problem:
            log.warning("%s: the parts of a failed upload could not be removed: %s", self.key, problem)
