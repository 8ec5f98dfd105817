"""Clients of AWS from a Connection's fields, and the typed error for each of their failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from spillway.connections import ConnectionSpec, require_type
from spillway.errors import AccessDenied, Missing, PoolRefused, Unreachable

_DENIED = frozenset({
    "AccessDenied", "AccessDeniedException", "AuthFailure", "ExpiredToken", "ExpiredTokenException",
    "InvalidClientTokenId", "InvalidSignatureException", "MissingAuthenticationToken", "SignatureDoesNotMatch",
    "UnauthorizedOperation", "UnrecognizedClientException",
})  # fmt: skip
_PASSES = frozenset({
    "RequestLimitExceeded", "RequestThrottled", "ResourceContention", "ResourceInUseException",
    "ScalingActivityInProgress", "Throttling", "ThrottlingException", "TooManyRequestsException",
})  # fmt: skip
"""What another try finds over."""
_ABSENT = frozenset({"ResourceNotFoundException", "NotFoundException"})


class AwsClients:
    """One client a service, made on first use; without keys in the Connection those of this process's own identity."""

    def __init__(self, connection: ConnectionSpec) -> None:
        require_type(connection, "aws")
        self.connection = connection
        self._made: dict[str, Any] = {}

    def __getitem__(self, service: str) -> Any:
        if service not in self._made:
            self._made[service] = _client(self.connection, service)
        return self._made[service]


_LOCK = Lock()


@cache
def _session() -> Any:
    # One for all clients: it holds the parsed descriptions of the services, of which that of EC2 is large.
    from boto3.session import Session

    return Session()


def _client(connection: ConnectionSpec, service: str) -> Any:
    from botocore.config import Config

    extra = connection.extra
    with _LOCK:
        return _session().client(
            service,
            endpoint_url=extra.get("endpoint_url"),
            region_name=extra.get("region_name"),
            aws_access_key_id=connection.login or None,
            aws_secret_access_key=connection.password or None,
            aws_session_token=extra.get("aws_session_token"),
            verify=extra.get("verify"),
            config=Config(retries={"mode": "standard", "total_max_attempts": 4}, connect_timeout=5, read_timeout=20),
        )


@contextmanager
def typed_answers(pool: str, asked: str, connection: ConnectionSpec) -> Iterator[None]:
    """Let the body talk to AWS about a pool; what goes wrong leaves as one of the errors of ``spillway.errors``.

    Args:
        asked: what for, as it completes "the pool does not get".
    """
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

    credentials = f"Connection '{connection.conn_id}'"
    try:
        yield
    except ClientError as answer:
        code, said = answer.response["Error"].get("Code", ""), _said(answer)
        status = answer.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in _DENIED:
            fix = f"check the keys of {credentials}, and that its identity has the rights of docs/clusters.md"
            raise AccessDenied("AWS", said, fix=fix) from answer
        if code in _PASSES or status == 429 or status >= 500:
            raise Unreachable("AWS", said) from answer
        if code in _ABSENT:
            raise Missing(
                "node group", pool, "AWS", fix=f"it says {said}; correct scaled_by in clusters.yaml"
            ) from answer
        raise PoolRefused(pool, asked, said, fix="see what it asks for; until then the pool stays as it is") from answer
    except (NoCredentialsError, PartialCredentialsError) as problem:
        raise AccessDenied("AWS", str(problem), fix=f"give {credentials} a login and a password") from problem
    except BotoCoreError as problem:
        raise Unreachable("AWS", " ".join(str(problem).split())) from problem


def _said(answer: Any) -> str:
    error = answer.response["Error"]
    return f"{answer.operation_name}: {error.get('Code', '')}: {error.get('Message', '')}"
