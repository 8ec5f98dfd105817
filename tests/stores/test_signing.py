"""Signatures equal those of botocore's unchanged signer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from spillway.stores.s3_requests import UNSIGNED
from spillway.stores.signing import Signer

VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
PARTS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/?#%&=+[]"), max_size=10)


@given(
    method=st.sampled_from(["GET", "PUT", "HEAD"]),
    path=PARTS,
    query=st.lists(st.tuples(PARTS, PARTS), max_size=3),
    fields=st.dictionaries(st.sampled_from(["x-amz-meta-a", "if-match", "range"]), VALUES),
    token=st.sampled_from([None, "a session token"]),
    day=st.integers(0, 1000),
)
def test_a_signature_is_that_of_the_unchanged_signer(
    method: str, path: str, query: list[tuple[str, str]], fields: dict[str, str], token: str | None, day: int
) -> None:
    escaped = "&".join(f"{name}={value}" for name, value in query)
    target = f"/bucket/{path}" + (f"?{escaped}" if escaped else "")
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(days=day)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: moment)
        signer = Signer("AK", "secret", token, "eu-central-1", clock=moment.timestamp)
        ours = signer.sign(method, target, {"host": "127.0.0.1:9000", **fields}, payload=UNSIGNED)
        request = AWSRequest(method=method, url=f"http://127.0.0.1:9000{target}", headers=fields)
        request.context.update(payload_signing_enabled=False, client_config=Unsigned)
        S3SigV4Auth(Credentials("AK", "secret", token), "s3", "eu-central-1").add_auth(request)
    assert ours["authorization"] == request.headers["Authorization"]


class Unsigned:
    """How the unchanged signer is told to leave bodies out."""

    s3 = {"payload_signing_enabled": False}  # noqa: RUF012
