"""The tags of objects: what a real server tells, and what is no answer about tags."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from spillway.errors import AccessDenied, RequestRefused, Unreachable
from spillway.sandbox.objectstore import Identity
from spillway.stores.s3 import S3Store
from spillway.stores.s3_tags import parsed_tags
from spillway.testing.faulty_proxy import FaultyProxy, xml_error
from spillway.testing.s3_server import S3Server
from spillway.testing.scripted_http import Answer, ScriptedServer

TAGS = {"release": "cleared", "b c": '&<"+/ü', "empty": ""}
HEADER = "release=cleared&b%20c=%26%3C%22%2B%2F%C3%BC&empty="


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.mark.parametrize("key", ["x", "b/ d ", "e+f %20&<>'\"", "ümläut/日本", "q?x=1#y"])
def test_tags_are_told_as_they_were_given_with_the_object_or_after_it(
    direct: S3Store, s3_server: S3Server, bucket: str, key: str
) -> None:
    client = s3_server.client()
    client.put_object(Bucket=bucket, Key=key, Body=b"1", Tagging=HEADER)
    assert direct.tags(key) == TAGS
    before = direct.head(key)
    client.put_object_tagging(Bucket=bucket, Key=key, Tagging={"TagSet": [{"Key": "release", "Value": "no"}]})
    assert (direct.tags(key), direct.head(key)) == ({"release": "no"}, before), "nothing else tells of the change"
    client.put_object(Bucket=bucket, Key=key, Body=b"2")
    assert direct.tags(key) == {}, "another version has its own"


def test_an_identity_that_may_not_read_an_object_may_not_read_its_tags(
    direct: S3Store, s3_server: S3Server, bucket: str
) -> None:
    direct.put("x", b"1", size_bytes=1)
    nobody = Identity(name="x", access_key="AKNOBODY", secret_key="some-secret-0123456789", actions=())
    with pytest.raises(AccessDenied):
        s3_server.open(bucket, identity=nobody).tags("x")


def test_an_object_of_a_server_that_says_so_by_an_error_has_no_tags(
    store: S3Store, direct: S3Store, proxy: FaultyProxy
) -> None:
    direct.put("x", b"1", size_bytes=1)
    proxy.spoil("GET", lambda answer: xml_error(404, "NoSuchTagSet"))
    assert store.tags("x") == {}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(status=501, body=b"<Error><Code>NotImplemented</Code></Error>"), "it keeps none"),
        (Answer(body=b"the bytes of the object"), "its answer is no set of tags"),
        (Answer(body=b"<Tagging/>"), "it has no TagSet"),
        (Answer(body=b"<Tagging><TagSet>" + b" " * 300_000 + b"</TagSet></Tagging>"), "more than 262144 bytes"),
    ],
    ids=["knows none", "gives the object", "gives no set", "gives far too much"],
)
def test_a_server_that_knows_no_tags_refuses_them_whatever_it_answers(
    scripted: ScriptedServer, s3_server: S3Server, answer: Answer, said: str
) -> None:
    scripted.script = lambda call: answer
    store = S3Store(name="s3://b@odd", endpoint=s3_server.endpoint(url=scripted.url), bucket="b")
    with pytest.raises(RequestRefused, match=f"the tags of 'x': .*{said}"):
        store.tags("x")
    assert len(scripted.calls) == 1, "asking again would not help"


def test_an_answer_that_is_cut_off_is_no_answer(store: S3Store, direct: S3Store, proxy: FaultyProxy) -> None:
    direct.put("x", b"1", size_bytes=1)
    proxy.spoil("GET", lambda answer: replace(answer, sent=len(answer.body) - 20))
    with pytest.raises((Unreachable, RequestRefused)):
        store.tags("x")


@pytest.mark.parametrize(
    "tag",
    [
        b"<Key>release</Key>",
        b"<Value>cleared</Value>",
        b"<Key>a</Key><Value>1</Value><Other/>",
        b"<Key>a</Key><Value>1</Value></Tag><Tag><Key>a</Key><Value>2</Value>",
    ],
)
def test_a_tag_that_is_not_whole_or_comes_twice_is_no_answer(tag: bytes) -> None:
    with pytest.raises(ValueError, match="a tag without its key or value, or twice"):
        parsed_tags(b"<Tagging><TagSet><Tag>" + tag + b"</Tag></TagSet></Tagging>")


def test_keys_and_values_elsewhere_in_an_answer_are_no_tags() -> None:
    body = b"<Tagging><TagSet></TagSet><Tag><Key>release</Key><Value>cleared</Value></Tag></Tagging>"
    assert parsed_tags(body) == {}
