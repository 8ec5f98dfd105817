"""Where an S3 server is, and who asks it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spillway.errors import ConfigError
from spillway.stores.http_pool import Origin
from spillway.stores.patience import TRIES

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

FIX_CERTIFICATE = "give the file of the authority that signed it, or renew it where it has expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Endpoint:
    """Where an S3 server is and who asks it.

    Args:
        url: None for AWS itself.
        session_token: of temporary credentials.
        ca_file: the certificate authority of an endpoint that the system does not know.
        attempts: tries of one request that fails, in all, with growing pauses between them; a server that is busy or
            away is asked for longer, unless this is 1.
        away_seconds: how long one that is away is waited for.
        timeout_seconds: silence of the endpoint after which a try counts as failed.
    """

    url: str | None
    region: str
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    attempts: int = TRIES
    away_seconds: float = 0.0
    timeout_seconds: float = 60

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise ConfigError("connection", self.url or "aws", "the access key or the secret key is empty")
        try:
            Origin.of(self.url or "https://aws")
        except ValueError as problem:
            raise ConfigError("connection", str(self.url), f"not an endpoint URL: {problem}") from problem

    @property
    def connect_seconds(self) -> float:
        return min(10.0, self.timeout_seconds)

    def client(self, store: str = "") -> S3Client:
        """A boto3 client, safe to share between threads; ``store`` is how messages call what it is for."""
        from spillway.stores.s3_client import s3_client

        return s3_client(self, store or str(self.url or "aws"))

    def bucket_url(self, bucket: str) -> str:
        """Where the bucket's keys begin: below the endpoint, or on AWS at a host of its own where it can."""
        if self.url is not None:
            return f"{self.url.rstrip('/')}/{bucket}"
        from botocore.utils import check_dns_name

        aws = urlsplit(self.client().meta.endpoint_url)
        # The certificate of AWS is for one label below the region's host.
        if check_dns_name(bucket) and "." not in bucket:
            return f"{aws.scheme}://{bucket}.{aws.netloc}"
        return f"{aws.scheme}://{aws.netloc}/{bucket}"
