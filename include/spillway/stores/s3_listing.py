"""The listing of a bucket, page by page, each held against what it says of itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from operator import itemgetter
from urllib.parse import unquote_plus

from spillway.errors import IncompleteListing
from spillway.model import ObjectInfo
from spillway.stores.s3_answers import parse_xml
from spillway.stores.s3_requests import S3Requests
from spillway.threads import worker_threads

_LISTED_AT_ONCE = 1000
_FIELDS = {
    "Key": "([^<&]*)",
    "Size": r"(\d+)",
    "ETag": '(?:&quot;|&#34;|")?([^<&"]*)(?:&quot;|&#34;|")?',
    "LastModified": "([^<&]*)",
}
"""What is read of an entry, with the pattern of its plain text."""


def list_objects(requests: S3Requests, prefix: str) -> Iterator[ObjectInfo]:
    """Every object whose key begins with ``prefix``, in the server's order; a page is asked for while one is read.

    Raises:
        IncompleteListing: what the pages say contradicts itself, so that an object may be missing.
    """
    tokens: set[str] = set()
    before: set[str] = set()
    asked = [("encoding-type", "url"), ("list-type", "2"), ("max-keys", str(_LISTED_AT_ONCE)), ("prefix", prefix)]

    def ask(query: Sequence[tuple[str, str]]) -> bytes:
        return requests.read("ListObjectsV2", "GET", query=query)[1]

    with worker_threads(1, "list") as ahead:
        body = ask(asked)
        while True:
            try:
                page = listing_page(body)
                before = _checked(page, prefix, before)
                if page.more and (not page.token or page.token in tokens):
                    raise ValueError("it says that more follows, but not from where")
            except ValueError as problem:
                raise IncompleteListing(
                    f"{requests.store}: the listing of '{prefix}' cannot be trusted: {problem}; run it again, "
                    "and check that its address leads to an S3 store where that does not help"
                ) from problem
            if not page.more:
                yield from page.entries
                return
            tokens.add(page.token)
            following = ahead.submit(ask, [("continuation-token", page.token), *asked])
            yield from page.entries
            body = following.result()


def _checked(page: Page, prefix: str, before: set[str]) -> set[str]:
    """The keys of a page that is whole, of what was asked, and not the one before again; else ValueError."""
    keys = {entry.key for entry in page.entries}
    if page.announced not in (None, len(page.entries)):
        raise ValueError(f"a page announces {page.announced} objects and holds {len(page.entries)}")
    odd = {key for key in keys if not key.startswith(prefix)} | (keys & before)
    if odd or len(keys) != len(page.entries):
        raise ValueError(f"'{min(odd, default='a key')}' came twice or was not asked for")
    return keys


@dataclass(slots=True)
class Page:
    """A page of a listing, in the server's order; ``announced`` is the number of entries that it says it has."""

    entries: list[ObjectInfo]
    announced: int | None
    more: bool
    token: str


def listing_page(body: bytes) -> Page:
    """Read an answer to ListObjectsV2; the elements may come in any order, the keys escaped where it says so.

    Raises:
        ValueError: it is no listing, or not a whole one.
    """
    return _plain_page(body) or _page(body)


def _plain_page(body: bytes) -> Page | None:
    """The page by a pattern, in a sixth of a parser's time; None where that has to look itself.

    The fields of every entry have to come in the order of the first one, with nothing escaped but the quotes around an
    etag; what is around the entries is parsed.
    """
    begin, end = body.find(b"<Contents>"), body.rfind(b"</Contents>") + len(b"</Contents>")
    if begin < 0 or b"<!" in body:
        return None
    first = body[begin : body.find(b"</Contents>", begin)]
    order = sorted(_FIELDS, key=lambda field: first.find(f"<{field}>".encode()))
    try:
        found = _pattern(tuple(order)).findall(body[begin:end].decode())
        if not (len(found) == body.count(b"<Contents>") == body.count(b"</Contents>")):
            return None
        return _page(body[:begin] + body[end:], map(itemgetter(*map(order.index, _FIELDS)), found))
    except ValueError:
        return None


@cache
def _pattern(order: tuple[str, ...]) -> re.Pattern[str]:
    gap = "[^<]*(?:<(?!/Contents>)[^<]*)*?"
    fields = gap.join(f"<{field}>{_FIELDS[field]}</{field}>" for field in order)
    return re.compile(f"<Contents>{gap}{fields}{gap}</Contents>")


def _page(body: bytes, found: Iterable[tuple[str, ...]] | None = None) -> Page:
    """The page; ``found`` are its entries, in the order of ``_FIELDS``, where they were cut out of the body."""
    reader = _PageReader()
    parse_xml(body, reader.start, reader.end, reader.text)
    facts = reader.facts
    if not reader.root.endswith("ListBucketResult") or "IsTruncated" not in facts:
        raise ValueError(f"expected a ListBucketResult that says whether it is whole, got '{reader.root}'")
    try:
        entries = [tuple(entry[field] for field in _FIELDS) for entry in reader.entries] if found is None else found
    except KeyError as missing:
        raise ValueError(f"an entry has no {missing}") from None
    count = facts.get("KeyCount", "")
    return Page(
        entries=_listed(entries, escaped=facts.get("EncodingType") == "url"),
        announced=int(count) if count else None,
        more=facts["IsTruncated"] == "true",
        token=facts.get("NextContinuationToken", ""),
    )


def _listed(entries: Iterable[tuple[str, ...]], *, escaped: bool) -> list[ObjectInfo]:
    moment = cache(lambda text: datetime.fromisoformat(text).astimezone(UTC))
    return [
        ObjectInfo(
            unquote_plus(key) if escaped and ("%" in key or "+" in key) else key,
            int(size),
            etag.strip('"'),
            moment(modified),
        )
        for key, size, etag, modified in entries
    ]


class _PageReader:
    def __init__(self) -> None:
        self._depth = 0
        self._pieces: list[str] = []
        self._entry: dict[str, str] = {}
        self.entries: list[dict[str, str]] = []
        self.facts: dict[str, str] = {}
        self.root = ""

    def start(self, name: str, _: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1:
            self.root = name
        self._pieces.clear()

    def text(self, piece: str) -> None:
        self._pieces.append(piece)

    def end(self, name: str) -> None:
        self._depth -= 1
        if self._depth == 2 and name in _FIELDS:
            self._entry[name] = "".join(self._pieces)
        elif self._depth == 1:
            if name == "Contents":
                self.entries.append(self._entry)
            else:
                self.facts[name] = "".join(self._pieces)
            self._entry = {}
