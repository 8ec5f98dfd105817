"""The tags of an object, as an S3 server tells them."""

from __future__ import annotations

from collections.abc import Mapping

from spillway.errors import RequestRefused, Unreachable
from spillway.stores.http_pool import Broken, Reply
from spillway.stores.s3_answers import parse_xml, refusal
from spillway.stores.s3_requests import S3Requests

_MOST_BYTES = 256 * 1024
"""More than ten tags of any letters have. A server that does not know the question may answer with the object."""
_SOME_ABSENT = frozenset({404, 501})
_TAG_SET = ["Tagging", "TagSet"]


def object_tags(requests: S3Requests, key: str) -> Mapping[str, str]:
    """The tags of the present version; none of an object without tags.

    Raises:
        RequestRefused: the server knows no tags, or gives an answer that is none.
    """
    reply = requests.send("GetObjectTagging", "GET", key, query=[("tagging", "")], expected=_SOME_ABSENT)
    body = _beginning(reply, requests.store)
    what = f"the tags of '{key}'"
    if reply.status in _SOME_ABSENT:
        answer = refusal("GetObjectTagging", reply.status, reply.headers, body)
        if answer.code == "NoSuchTagSet":
            return {}
        if reply.status == 501:
            raise RequestRefused(requests.store, what, f"it keeps none ({answer.seen})")
        requests.refuse(answer, key, "")
    try:
        return parsed_tags(body)
    except ValueError as problem:
        raise RequestRefused(requests.store, what, f"its answer is no set of tags: {problem}") from None


def _beginning(reply: Reply, store: str) -> bytes:
    """So much of the answer as one about tags has at most, and a byte more."""
    body = bytearray()
    try:
        for chunk in reply.chunks():
            body += chunk
            if len(body) > _MOST_BYTES:
                reply.close()
                break
    except Broken as problem:
        raise Unreachable(store, str(problem)) from problem
    return bytes(body[: _MOST_BYTES + 1])


def parsed_tags(body: bytes) -> Mapping[str, str]:
    """The tags of a ``Tagging`` document; raises ValueError where it is none, or is not whole."""
    path: list[str] = []
    pieces: list[str] = []
    tag: dict[str, str] = {}
    found: dict[str, str] = {}
    sets = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        path.append(name)
        pieces.clear()

    def end(name: str) -> None:
        nonlocal sets
        if path[:-1] == [*_TAG_SET, "Tag"]:
            tag[name] = "".join(pieces)
        elif path == [*_TAG_SET, "Tag"]:
            if tag.keys() != {"Key", "Value"} or tag["Key"] in found:
                raise ValueError(f"a tag without its key or value, or twice ({len(found)} before it)")
            found[tag["Key"]] = tag["Value"]
            tag.clear()
        elif path == _TAG_SET:
            sets += 1
        path.pop()

    if len(body) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    parse_xml(body, start, end, pieces.append)
    if sets != 1:
        raise ValueError("it has no TagSet")
    return found
