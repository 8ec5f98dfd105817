"""The boto3 client of an S3 endpoint, and the typed error for each of its failures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    SSLError,
)

from spillway.errors import AccessDenied, ConfigError, RequestRefused, Unreachable
from spillway.stores.patience import Patience
from spillway.stores.s3_answers import Refusal, raise_typed
from spillway.stores.s3_endpoint import FIX_CERTIFICATE, S3Endpoint

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONNECTIONS = 16
"""Open connections of one client; callers run fewer threads than that."""

_LOCK = Lock()


def s3_client(endpoint: S3Endpoint, store: str) -> S3Client:
    """A client with a bounded pool, bounded retries and bounded waits, safe to share between threads.

    Bodies carry a checksum, so they are not hashed a second time for the signature. ``store`` is how messages call it.
    """
    with _LOCK:
        client = _session().client(
            "s3",
            endpoint_url=endpoint.url,
            region_name=endpoint.region,
            aws_access_key_id=endpoint.access_key,
            aws_secret_access_key=endpoint.secret_key,
            aws_session_token=endpoint.session_token,
            verify=str(endpoint.ca_file) if endpoint.ca_file else None,
            config=_config(endpoint),
        )
    _be_patient(client, endpoint, store)
    return client


def _be_patient(client: S3Client, endpoint: S3Endpoint, store: str) -> None:
    """Let its requests wait for a server as long as those of ``S3Requests``; botocore's tries are for the rest."""

    def pause(
        response: tuple[Any, dict[str, Any]] | None,
        request_dict: dict[str, Any],
        caught_exception: Exception | None = None,
        **_: Any,
    ) -> Any:
        """The seconds until the next try, False for none; None leaves it to botocore."""
        fresh = Patience(endpoint.attempts, time.monotonic, away_seconds=endpoint.away_seconds)
        patience: Patience = request_dict["context"].setdefault("spillway", fresh)
        answer = None if response is None else _refusal(response[1])
        seen = str(caught_exception) if answer is None else answer.seen
        if answer is not None and answer.busy:
            seconds = patience.after_busy(store, seen, answer.retry_after_seconds)
        elif endpoint.away_seconds and (_broken(caught_exception) if answer is None else answer.away):
            seconds = patience.after_away(store, seen)
        else:
            if answer is not None and answer.status < 300:
                patience.answered()
            return None
        return False if seconds is None else seconds

    client.meta.events.register_first("needs-retry.s3", pause)


def _broken(problem: Exception | None) -> bool:
    return isinstance(problem, (ConnectionError, HTTPClientError)) and not isinstance(problem, SSLError)


def _config(endpoint: S3Endpoint) -> Config:
    return Config(
        signature_version="s3v4",
        s3={"addressing_style": "path" if endpoint.url else "auto", "payload_signing_enabled": False},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": endpoint.attempts},
        connect_timeout=endpoint.connect_seconds,
        read_timeout=endpoint.timeout_seconds,
    )


@cache
def _session() -> Session:
    # One for all clients: it holds the parsed description of the service, which takes a fifth of a second to read.
    return Session()


@contextmanager
def typed_errors(
    store: str, *, bucket: str, key: str = "", condition: str = "", credentials: str = "its Connection"
) -> Iterator[None]:
    """Let the body talk to the store; what goes wrong leaves as one of the errors of ``spillway.errors``.

    Args:
        credentials: where whoever reads the error finds the keys.
    """
    check_keys = f"check the access key and the secret key of {credentials}, and what its identity may do"
    try:
        yield
    except ClientError as answer:
        told = _refusal(answer.response, answer.operation_name)
        raise_typed(told, store, bucket=bucket, key=key, condition=condition, check_keys=check_keys)
    except (NoCredentialsError, PartialCredentialsError) as problem:
        raise AccessDenied(store, str(problem), fix=check_keys) from problem
    except ParamValidationError as problem:
        raise RequestRefused(store, key or bucket, " ".join(str(problem).split())) from problem
    except SSLError as problem:
        seen = " ".join(str(problem).split())
        if "CERTIFICATE_VERIFY_FAILED" not in seen:
            raise Unreachable(store, seen) from problem
        raise ConfigError(store, "", f"its certificate cannot be verified ({seen}); {FIX_CERTIFICATE}") from problem
    except BotoCoreError as problem:
        raise Unreachable(store, " ".join(str(problem).split())) from problem


def _refusal(response: Mapping[str, Any], operation: str = "") -> Refusal:
    error, facts = response.get("Error", {}), response.get("ResponseMetadata", {})
    return Refusal(
        operation=operation,
        status=facts.get("HTTPStatusCode", 0),
        code=error.get("Code", ""),
        message=error.get("Message", ""),
        headers=facts.get("HTTPHeaders", {}),
    )
