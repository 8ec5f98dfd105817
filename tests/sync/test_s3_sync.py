"""Syncs between two real S3 servers: what only they can show."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping

import pytest

from spillway.errors import AccessDenied, Unreachable
from spillway.sandbox.objectstore import Identity
from spillway.stores.parts import MIB
from spillway.stores.s3 import S3Store
from spillway.sync.manifest import verified_copies
from spillway.sync.workers import SMALL_THREADS
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


def test_of_two_syncs_that_send_a_large_object_at_once_the_second_says_that_the_other_has_copied_it(s3_ends) -> None:
    s3_ends.fill({"big": hashlib.shake_256(b"big").digest(17 * MIB)})
    other = type(s3_ends)(s3_ends.home.store, s3_ends.cloud.store)

    def overtake(method: str, key: str) -> None:
        if method == "read":
            s3_ends.home.before = lambda method, key: None
            assert other.sync().ok

    s3_ends.home.before = overtake
    report = s3_ends.sync()
    assert (report.ok, other.fates(), s3_ends.fates()) == (True, {"big": "copied"}, {"big": "unchanged"})
    assert s3_ends.outcomes[0].reason == "another sync has copied it meanwhile"
    assert list(s3_ends.cloud.store.uploads()) == []


@pytest.mark.parametrize("end", ["onprem", "cloud"])
def test_a_digest_that_was_noted_of_older_bytes_does_not_pass_for_that_of_newer_ones(
    s3_ends, s3_sites: Mapping[str, S3Server], s3_buckets: Mapping[str, str], end: str
) -> None:
    s3_ends.fill({"a": b"one"})
    assert s3_ends.sync().ok
    client, target = s3_sites[end].client(), {"Bucket": s3_buckets[end], "Key": "digits/a"}
    # What a mounted bucket does when a file is edited: other bytes, the metadata of before.
    client.put_object(**target, Body=b"ONE", Metadata=client.head_object(**target)["Metadata"])
    report = s3_ends.sync()
    if end == "cloud":
        assert (report.objects_copied, s3_ends.at_cloud()) == (1, {"a": b"one"})
    else:
        assert not report.ok
        assert "digits/a: expected digest" in report.failures[0]


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
    assert verified_copies(s3_ends.cloud.store).keys() == {"digits"}


def test_keys_that_begin_other_keys_and_folder_marks_arrive_exactly(s3_ends) -> None:
    contents = {"servers": b"1", "servers/0": b"22", "servers/0/x": b"333", "empty/": b"", "a b+c%20 ": b"4"}
    s3_ends.fill(contents)
    assert s3_ends.sync().ok
    assert s3_ends.at_cloud() == contents
    assert s3_ends.sync().objects_copied == 0
    s3_ends.home.store.delete(["digits/servers"])
    s3_ends.sync(delete=True)
    assert s3_ends.at_cloud().keys() == contents.keys() - {"servers"}


def test_a_key_that_begins_keys_which_are_there_already_arrives_and_is_replaced(s3_ends) -> None:
    s3_ends.fill({"servers/0": b"1"})
    assert s3_ends.sync().ok
    for content in (b"first", b"other"):
        s3_ends.fill({"servers": content})
        assert s3_ends.sync().objects_copied == 1
        assert s3_ends.at_cloud() == {"servers/0": b"1", "servers": content}


def test_the_mark_of_a_folder_whose_contents_are_there_already_arrives(s3_ends) -> None:
    s3_ends.fill({"e/x": b"1"})
    assert s3_ends.sync().ok
    assert s3_ends.cloud.store.head("digits/e/") is None
    s3_ends.fill({"e/": b""})
    assert s3_ends.sync().objects_copied == 1
    assert s3_ends.at_cloud() == {"e/": b"", "e/x": b"1"}
    assert s3_ends.sync().objects_copied == 0


def test_a_key_that_the_destination_cannot_hold_is_refused_by_name_and_the_rest_is_copied(s3_ends, local_ends) -> None:
    ends = type(s3_ends)(s3_ends.home.store, local_ends.cloud.store)
    ends.fill({"servers": b"1", "empty/": b"", "x/y": b"2"})
    report = ends.sync()
    assert ends.fates() == {"empty/": "refused", "servers": "copied", "x/y": "copied"}
    assert "cannot hold the key 'digits/empty/'" in ends.outcomes[0].reason
    assert not report.ok
    assert verified_copies(ends.cloud.store) == {}


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
    objects, bucket = 4 * SMALL_THREADS, own_s3_server.new_bucket()
    impatient = S3Store(name=f"s3://{bucket}@own", endpoint=own_s3_server.endpoint(attempts=1), bucket=bucket)
    ends = type(local_ends)(s3_sites["onprem"].store(), impatient)
    ends.fill({f"{n:03}": b"%d" % n for n in range(objects)})
    first = threading.Lock()

    def kill(method: str, key: str) -> None:
        if method == "put" and ends.cloud.calls["put"] > 2 * SMALL_THREADS and first.acquire(blocking=False):
            own_s3_server.kill()

    ends.cloud.before = kill
    with pytest.raises(Unreachable, match=r"s3://.*@own is unreachable"):
        ends.sync()
    ends.cloud.before = lambda method, key: None
    own_s3_server.start()
    there = len(ends.at_cloud())
    assert 0 < there < objects
    assert verified_copies(ends.cloud.store) == {}
    report = ends.sync()
    assert (report.ok, report.objects_copied) == (True, objects - there)
    assert ends.at_cloud() == {f"{n:03}": b"%d" % n for n in range(objects)}
