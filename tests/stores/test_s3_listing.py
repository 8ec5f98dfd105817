"""A page of a listing means the same to the pattern that reads most of them and to the parser that reads the others."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spillway.model import ObjectInfo
from spillway.stores import s3_listing
from spillway.stores.s3_listing import listing_page

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY, SIZE, ETAG, DATE = (
    "<Key>{0}</Key>",
    "<Size>{1}</Size>",
    "<ETag>&quot;{2}&quot;</ETag>",
    "<LastModified>2026-01-02T03:04:05Z</LastModified>",
)
AWS = KEY + DATE + ETAG + SIZE + "<StorageClass>STANDARD</StorageClass>"
TOLD = [("d/a", 1, "aa"), ("d/b", 20, "bb-2"), ("d/c", 0, "cc")]
ENTRIES = [ObjectInfo(key=key, size_bytes=size, etag=etag, modified_at=MOMENT) for key, size, etag in TOLD]


def body(*forms: str, facts: str = "", truncated: str = "<IsTruncated>false</IsTruncated>") -> bytes:
    """An answer with an entry of each form, over and over for what ``TOLD`` has."""
    shaped = [forms[number % len(forms)].format(*told) for number, told in enumerate(TOLD)]
    entries = "".join(f"<Contents>{entry}</Contents>" for entry in shaped)
    return f"<?xml version='1.0'?><ListBucketResult>{truncated}{entries}{facts}</ListBucketResult>".encode()


@pytest.mark.parametrize(
    ("page", "by_pattern"),
    [
        pytest.param(body(AWS), True, id="as AWS writes it"),
        pytest.param(body(KEY + ETAG.replace("&quot;", "&#34;") + SIZE + DATE), True, id="another order and escape"),
        pytest.param(body(AWS.replace("&quot;", '"')), True, id="bare quotes"),
        pytest.param(body(AWS, "<Owner><ID>x</ID></Owner>" + AWS), True, id="some with more"),
        pytest.param(body("\n  " + AWS.replace("><", ">\n  <") + "\n"), True, id="indented"),
        pytest.param(body(AWS, KEY + ETAG + SIZE + DATE), False, id="orders that differ"),
        pytest.param(body(AWS.replace("<Key>", "<Key >")), False, id="blanks in a tag"),
        pytest.param(body(AWS.replace("d/", "d&#47;").replace("{0}", "&#100;{0}")), False, id="a key that is escaped"),
        pytest.param(body(AWS.replace("<Key>{0}</Key>", "<Key><![CDATA[{0}]]></Key>")), False, id="unparsed text"),
        pytest.param(body(AWS, "<!-- <Contents> -->" + AWS), False, id="a comment"),
    ],
)
def test_what_a_page_says_does_not_depend_on_how_it_is_read(
    page: bytes, by_pattern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = listing_page(page)
    assert [entry.key.lstrip("d") for entry in found.entries] == ["/a", "/b", "/c"]
    assert [entry._replace(key=known.key) for entry, known in zip(found.entries, ENTRIES, strict=True)] == ENTRIES
    assert (s3_listing._plain_page(page) is not None) == by_pattern
    monkeypatch.setattr(s3_listing, "_plain_page", lambda body: None)
    assert listing_page(page) == found


@pytest.mark.parametrize("lost", [KEY, SIZE, ETAG, DATE])
def test_an_entry_that_lacks_a_field_is_an_error_also_where_its_neighbour_has_two(lost: str) -> None:
    for other in (AWS, AWS + lost):
        with pytest.raises(ValueError, match="an entry has no"):
            listing_page(body(AWS, AWS.replace(lost, ""), other))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(body(AWS)[:-9], id="cut off behind the entries"),
        pytest.param(body(AWS)[:300], id="cut off in an entry"),
        pytest.param(body(AWS, truncated=""), id="whole or not"),
        pytest.param(b"<html><Contents></Contents></html>", id="something else"),
    ],
)
def test_what_is_no_whole_listing_is_an_error(page: bytes) -> None:
    with pytest.raises(ValueError, match=r"no|expected"):
        listing_page(page)


def test_the_facts_of_a_page_count_wherever_they_stand() -> None:
    facts = "<KeyCount>3</KeyCount><NextContinuationToken>t</NextContinuationToken><EncodingType>url</EncodingType>"
    more = "<IsTruncated>true</IsTruncated>"
    for page in (body(AWS.replace("{0}", "{0}+%C3%BC"), facts=facts, truncated=more), body(AWS, facts=facts + more)):
        found = listing_page(page)
        assert (found.announced, found.more, found.token) == (3, True, "t")
    assert listing_page(body(AWS.replace("{0}", "{0}+%C3%BC"), facts=facts)).entries[0].key == "d/a ü"
