"""The boto3 client of an S3 endpoint, and the typed error for each of its failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)

from spillway.errors import (
    AccessDenied,
    ConfigError,
    Missing,
    PreconditionFailed,
    RequestRefused,
    StoreFull,
    Unreachable,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONNECTIONS = 16
"""Open connections of one client; callers run fewer threads than that."""

_LOCK = Lock()
_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_BUSY = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "RequestTimeout", "InternalError"}
_FIX_CLOCK = "synchronise this machine's clock and the store's: requests are signed with the time"
_FIX_CREDENTIALS = "check the access key and the secret key of its Connection, and what its identity may do"


def s3_client(
    *,
    endpoint_url: str | None,
    region: str,
    access_key: str,
    secret_key: str,
    ca_file: Path | None = None,
    attempts: int = 4,
    timeout_seconds: float = 60,
) -> S3Client:
    """A client with a bounded pool, bounded retries and bounded waits, safe to share between threads.

    Args:
        endpoint_url: None for AWS itself.
        ca_file: the certificate authority of an endpoint that the system does not know.
        attempts: tries of one request in all, with growing pauses between them.
        timeout_seconds: silence of the endpoint after which a try counts as failed.

    Bodies carry a checksum, so they are not hashed a second time for the signature.
    """
    if not access_key or not secret_key:
        raise ConfigError("connection", str(endpoint_url or "aws"), "the access key or the secret key is empty")
    try:
        with _LOCK:
            return _session().client(
                "s3",
                endpoint_url=endpoint_url,
                region_name=region,
                aws_access_key_id=access_key,
                aws_secret_access_key=secret_key,
                verify=str(ca_file) if ca_file else None,
                config=_config(endpoint_url, attempts, timeout_seconds),
            )
    except ValueError as problem:
        raise ConfigError("connection", str(endpoint_url), f"not an endpoint URL: {problem}") from problem


def _config(endpoint_url: str | None, attempts: int, timeout_seconds: float) -> Config:
    return Config(
        signature_version="s3v4",
        s3={"addressing_style": "path" if endpoint_url else "auto", "payload_signing_enabled": False},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=min(10.0, timeout_seconds),
        read_timeout=timeout_seconds,
    )


@cache
def _session() -> Session:
    # One for all clients: it holds the parsed description of the service, which takes a fifth of a second to read.
    return Session()


@contextmanager
def typed_errors(store: str, *, bucket: str, key: str = "", condition: str = "") -> Iterator[None]:
    """Let the body talk to the store; what goes wrong leaves as one of the errors of ``spillway.errors``."""
    try:
        yield
    except ClientError as answer:
        _raise_for(answer, store, bucket=bucket, key=key, condition=condition)
    except (NoCredentialsError, PartialCredentialsError) as problem:
        raise AccessDenied(store, str(problem), fix=_FIX_CREDENTIALS) from problem
    except ParamValidationError as problem:
        raise RequestRefused(store, key or bucket, " ".join(str(problem).split())) from problem
    except BotoCoreError as problem:
        raise Unreachable(store, " ".join(str(problem).split())) from problem


def _raise_for(answer: ClientError, store: str, *, bucket: str, key: str, condition: str) -> NoReturn:
    error, facts = answer.response.get("Error", {}), answer.response.get("ResponseMetadata", {})
    code, status = error.get("Code", ""), facts.get("HTTPStatusCode", 0)
    seen = f"{answer.operation_name}: {code} {error.get('Message', '')}".strip()
    if code == "NoSuchBucket":
        raise Missing("bucket", bucket, store, fix="create it, or correct the bucket's name") from answer
    if code in _DENIED or status in (401, 403):
        raise AccessDenied(
            store, seen, fix=_FIX_CLOCK if code == "RequestTimeTooSkewed" else _FIX_CREDENTIALS
        ) from answer
    if condition and status in (409, 412):
        raise PreconditionFailed(store, key, condition) from answer
    if status == 507:
        raise StoreFull(store, seen) from answer
    if status == 429 or status >= 500 or code in _BUSY:
        wait = facts.get("HTTPHeaders", {}).get("retry-after", "")
        pause = float(wait) if wait.isdigit() else None
        raise Unreachable(store, f"{seen} (HTTP {status})", retry_after_seconds=pause) from answer
    if status == 404:
        raise Missing("object", key, store) from answer
    raise RequestRefused(store, key or bucket, f"{seen} (HTTP {status})") from answer
