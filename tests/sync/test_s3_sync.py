"""Syncs between two real S3 servers: what only they can show."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pytest

from spillway.errors import AccessDenied, Unreachable
from spillway.sandbox.objectstore import Identity
from spillway.stores.parts import MIB
from spillway.stores.s3 import S3Store
from spillway.sync.manifest import verified_datasets
from spillway.testing.s3_server import S3Server


def put_in_parts(server: S3Server, bucket: str, key: str, content: bytes, part_bytes: int) -> str:
    """An object as another tool uploads it: its etag tells the number of parts, and it has no sha256."""
    client = server.client()
    upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    target = {"Bucket": bucket, "Key": key, "UploadId": upload}
    parts = []
    for number, begin in enumerate(range(0, len(content), part_bytes), start=1):
        answer = client.upload_part(**target, PartNumber=number, Body=content[begin : begin + part_bytes])
        parts.append({"PartNumber": number, "ETag": answer["ETag"]})
    return client.complete_multipart_upload(**target, MultipartUpload={"Parts": parts})["ETag"].strip('"')


def test_etags_of_other_part_sizes_are_no_difference(
    s3_ends, s3_sites: Mapping[str, S3Server], s3_buckets: Mapping[str, str]
) -> None:
    server, bucket = s3_sites["onprem"], s3_buckets["onprem"]
    content = hashlib.shake_256(b"v1").digest(17 * MIB)
    etag = put_in_parts(server, bucket, "digits/big", content, 5 * MIB)
    assert etag.endswith("-4")
    first = s3_ends.sync()
    copy = s3_ends.cloud.store.head("digits/big")
    assert (first.objects_copied, copy.etag[-2:]) == (1, "-2")
    assert s3_ends.at_cloud() == {"big": content}

    second = s3_ends.sync()
    assert (second.objects_copied, s3_ends.home.calls["read"]) == (0, 0)

    other = hashlib.shake_256(b"v2").digest(17 * MIB)
    put_in_parts(server, bucket, "digits/big", other, 5 * MIB)
    assert s3_ends.sync().objects_copied == 1
    assert s3_ends.at_cloud() == {"big": other}


def test_a_lost_record_costs_no_second_copy_even_of_objects_whose_digest_the_source_does_not_know(
    s3_ends, s3_sites: Mapping[str, S3Server], s3_buckets: Mapping[str, str]
) -> None:
    s3_ends.fill({"a": b"one"})
    s3_sites["onprem"].client().put_object(Bucket=s3_buckets["onprem"], Key="digits/b", Body=b"two")
    assert s3_ends.home.store.head("digits/b").sha256 is None
    s3_ends.sync()
    s3_ends.cloud.store.delete([entry.key for entry in s3_ends.cloud.store.list(".spillway/")])
    assert s3_ends.sync().objects_copied == 0
    assert s3_ends.home.calls["read"] == 0
    assert verified_datasets(s3_ends.cloud.store) == {"digits"}


def test_keys_that_begin_other_keys_and_folder_marks_arrive_exactly(s3_ends) -> None:
    contents = {"servers": b"1", "servers/0": b"22", "servers/0/x": b"333", "empty/": b"", "a b+c%20 ": b"4"}
    s3_ends.fill(contents)
    assert s3_ends.sync().ok
    assert s3_ends.at_cloud() == contents
    assert s3_ends.sync().objects_copied == 0
    s3_ends.home.store.delete(["digits/servers"])
    s3_ends.sync(delete=True)
    assert s3_ends.at_cloud().keys() == contents.keys() - {"servers"}


def test_a_key_that_the_destination_cannot_hold_is_refused_by_name_and_the_rest_is_copied(s3_ends, local_ends) -> None:
    ends = type(s3_ends)(s3_ends.home.store, local_ends.cloud.store)
    ends.fill({"servers": b"1", "empty/": b"", "x/y": b"2"})
    report = ends.sync()
    fates = {outcome.key: outcome.fate.value for outcome in report.outcomes}
    assert fates == {"digits/empty/": "refused", "digits/servers": "copied", "digits/x/y": "copied"}
    assert "cannot hold the key 'digits/empty/'" in report.outcomes[0].reason
    assert not report.ok
    assert verified_datasets(ends.cloud.store) == frozenset()


def test_wrong_credentials_end_the_sync_at_once(
    s3_ends, s3_sites: Mapping[str, S3Server], s3_buckets: Mapping[str, str], local_ends
) -> None:
    s3_ends.fill({"a": b"1", "b": b"2"})
    nobody = Identity(name="x", access_key="AKNOBODY", secret_key="some-secret-0123456789", actions=())
    closed = s3_sites["onprem"].open(s3_buckets["onprem"], identity=nobody)
    with pytest.raises(AccessDenied, match="check the access key"):
        type(s3_ends)(closed, local_ends.cloud.store).sync()


def test_a_destination_that_is_killed_in_mid_copy_is_unreachable_and_the_next_sync_goes_on(
    s3_sites: Mapping[str, S3Server], own_s3_server: S3Server, local_ends
) -> None:
    bucket = own_s3_server.new_bucket()
    impatient = S3Store(name=f"s3://{bucket}@own", client=own_s3_server.client(attempts=1), bucket=bucket)
    ends = type(local_ends)(s3_sites["onprem"].store(), impatient)
    ends.fill({f"{n:03}": b"%d" % n for n in range(60)})

    def kill(method: str, key: str) -> None:
        if method == "put" and ends.cloud.calls["put"] == 30:
            own_s3_server.kill()

    ends.cloud.before = kill
    with pytest.raises(Unreachable, match=r"s3://.*@own is unreachable"):
        ends.sync()
    ends.cloud.before = lambda method, key: None
    own_s3_server.start()
    there = len(ends.at_cloud())
    assert 0 < there < 60
    assert verified_datasets(ends.cloud.store) == frozenset()
    report = ends.sync()
    assert (report.ok, report.objects_copied) == (True, 60 - there)
    assert ends.at_cloud() == {f"{n:03}": b"%d" % n for n in range(60)}
