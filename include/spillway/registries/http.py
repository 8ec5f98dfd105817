"""An OCI registry over its HTTP interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from time import sleep
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from spillway.errors import DigestMismatch, InvalidImage, Missing, PreconditionFailed, RequestRefused, Unreachable
from spillway.registries.answers import error_text, read_json
from spillway.registries.base import Descriptor, Manifest
from spillway.registries.content import INDEX_MEDIA_TYPES, MANIFEST_MEDIA_TYPES, OCI_INDEX_MEDIA_TYPE
from spillway.registries.digest import digest_of, is_digest, label, verified
from spillway.registries.transport import Request, Transport, resume_patience
from spillway.registries.upload import Upload
from spillway.registries.wire import REDIRECTS, Answer
from spillway.stores.http_pool import Broken

ACCEPTED_MANIFESTS = ", ".join(sorted(INDEX_MEDIA_TYPES | MANIFEST_MEDIA_TYPES))
MAX_MANIFEST_BYTES = 16 * 2**20
TAGS_PER_PAGE = 1000
NO_REFERRERS = (400, 404, 405, 501)


class HttpRegistry:
    """A registry, or a part of one below ``prefix``, that speaks the OCI distribution protocol.

    May be used by many threads. ``ca_file`` is for a registry whose certificate no public authority signed,
    ``credentials`` for errors: where login and password are.
    """

    def __init__(
        self,
        *,
        name: str,
        url: str,
        username: str | None = None,
        password: str | None = None,
        prefix: str = "",
        ca_file: str | None = None,
        credentials: str = "its Connection",
    ) -> None:
        self._transport = Transport(
            name=name, url=url, username=username, password=password, ca_file=ca_file, credentials=credentials
        )
        self._prefix = prefix.strip("/")

    @property
    def name(self) -> str:
        return f"{self._transport.endpoint[:-1]}/{self._prefix})" if self._prefix else self._transport.endpoint

    def tags(self, repository: str) -> tuple[str, ...]:
        """All tags, every page of them; empty for a repository that does not exist."""
        found: list[str] = []
        for answer in self._pages(self._path(repository, f"tags/list?n={TAGS_PER_PAGE}"), repository, absent=(404,)):
            document = read_json(answer, self.name)
            if answer.status == 404:
                return ()
            found.extend(document.get("tags") or ())
        return tuple(dict.fromkeys(found))

    def resolve(self, repository: str, reference: str) -> str | None:
        """The digest that the reference points at, or None where the registry does not have it."""
        found = self.describe(repository, reference)
        return found.digest if found else None

    def describe(self, repository: str, reference: str) -> Descriptor | None:
        """What the reference points at, or None where the registry does not have it."""
        answer = self._send("HEAD", self._manifest_path(repository, reference), repository, accepted=(200, 404))
        answer.drain()
        if answer.status == 404:
            return None
        digest, size = answer.headers.get("docker-content-digest", reference), answer.headers.get("content-length", "")
        if is_digest(digest) and size.isdecimal():
            return Descriptor(digest=digest, size_bytes=int(size), media_type=_media_type(answer))
        manifest = self.manifest(repository, reference)
        return Descriptor(digest=manifest.digest, size_bytes=len(manifest.body), media_type=manifest.media_type)

    def manifest(self, repository: str, reference: str) -> Manifest:
        """The manifest, byte for byte.

        Raises:
            Missing: the registry does not have it.
            DigestMismatch: the body is not what its digest promises.
        """
        answer = self._send("GET", self._manifest_path(repository, reference), repository, accepted=(200, 404))
        what = label(repository, reference)
        if answer.status == 404:
            answer.drain()
            raise Missing("image", what, self.name)
        body = bytearray()
        for chunk in self._body(answer):
            body += chunk
            if len(body) > MAX_MANIFEST_BYTES:
                raise InvalidImage(what, f"{self.name} sends a manifest of more than {MAX_MANIFEST_BYTES} bytes")
        promised = reference if is_digest(reference) else answer.headers.get("docker-content-digest")
        digest = digest_of(bytes(body))
        if promised is not None and promised != digest:
            raise DigestMismatch(f"manifest {what} of {self.name}", expected=promised, seen=digest)
        return Manifest(digest=digest, media_type=_media_type(answer), body=bytes(body))

    def referrers(self, repository: str, digest: str) -> Manifest | None:
        """An index of what refers to the manifest, all pages of it; None where the registry keeps no such list."""
        found: list[Any] = []
        for answer in self._pages(self._path(repository, f"referrers/{digest}"), repository, absent=NO_REFERRERS):
            if answer.status != 200:
                answer.drain()
                return None
            found.extend(read_json(answer, self.name).get("manifests") or ())
        document = {"schemaVersion": 2, "mediaType": OCI_INDEX_MEDIA_TYPE, "manifests": found}
        body = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
        return Manifest(digest=digest_of(body), media_type=OCI_INDEX_MEDIA_TYPE, body=body)

    def has_blob(self, repository: str, digest: str) -> bool:
        """Whether the blob is in this repository; a registry that answers with its storage's address has it."""
        answer = self._send(
            "HEAD", self._path(repository, f"blobs/{digest}"), repository, accepted=(200, *REDIRECTS, 404)
        )
        answer.drain()
        return answer.status != 404

    def read_blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """The blob's bytes in chunks; raises Missing, and DigestMismatch at the end."""
        yield from verified(
            self._blob(repository, digest), digest, what=f"blob {label(repository, digest)} of {self.name}"
        )

    def _blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """The bytes as they are stored; an answer that is cut off is gone on with where it ended."""
        given, patience = 0, resume_patience()
        while True:
            try:
                for chunk in self._blob_from(repository, digest, given):
                    yield chunk
                    patience.answered()
                    given, patience = given + len(chunk), resume_patience()
                return
            except Unreachable as problem:
                pause = patience.after_away(problem.endpoint, problem.problem) if given else None
                if pause is None:
                    patience.give_up(problem)
                sleep(max(pause, problem.retry_after_seconds or 0.0))

    def _blob_from(self, repository: str, digest: str, begins: int) -> Iterator[bytes]:
        request = Request(
            method="GET",
            url=self._path(repository, f"blobs/{digest}"),
            scope=self._scope(repository, push=False),
            headers={"Range": f"bytes={begins}-"} if begins else {},
            accepted=(200, 206, 404),
        )
        answer = self._transport.send(request)
        if answer.status == 404:
            answer.drain()
            raise Missing("blob", label(repository, digest), self.name)
        skipped = 0 if answer.status == 206 else begins
        for chunk in self._body(answer):
            if skipped < len(chunk):
                yield chunk[skipped:]
            skipped = max(skipped - len(chunk), 0)

    def put_blob(
        self, repository: str, digest: str, chunks: Iterator[bytes], *, size_bytes: int, mount_from: str | None = None
    ) -> bool:
        """Store the bytes under their digest; wrong bytes are noticed before the upload is complete."""
        what = f"blob {label(repository, digest)} for {self.name}"
        scope = self._scope(repository, push=True)
        begin = self._path(repository, "blobs/uploads/")
        if mount_from is not None:
            begin += "?" + urlencode({"mount": digest, "from": self._full(mount_from)})
            scope += f" {self._scope(mount_from, push=False)}"
        answer = self._transport.send(Request(method="POST", url=begin, scope=scope, accepted=(201, 202)))
        answer.drain()
        if answer.status == 201:
            return False
        location = answer.headers.get("location")
        if location is None:
            raise Unreachable(self.name, "it began an upload without saying where")
        upload = Upload(self._transport, name=self.name, scope=scope, what=what, digest=digest, location=location)
        smallest = answer.headers.get("oci-chunk-min-length", "")
        upload.send(
            verified(chunks, digest, what=what, size_bytes=size_bytes),
            size_bytes=size_bytes,
            smallest_part_bytes=int(smallest) if smallest.isdecimal() else 0,
        )
        return True

    def try_push(self, repository: str) -> None:
        """Begin an upload and give it up: nothing is stored.

        Raises:
            AccessDenied: the credentials may not push there.
            Missing: the registry makes no repository by itself.
        """
        begin = self._path(repository, "blobs/uploads/")
        upload = self._send("POST", begin, repository, accepted=(202, 404), push=True)
        upload.drain()
        if upload.status == 404:
            raise Missing("repository", self._full(repository), self.name, fix="it makes none when it is pushed to")
        location = upload.headers.get("location")
        if location is not None:  # an upload that cannot be given up ends by itself
            given_up = (200, 202, 204, 400, 401, 403, 404, 405)
            self._send("DELETE", location, repository, accepted=given_up, push=True).drain()

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        """Store the manifest under a tag or its digest.

        Raises:
            Missing: something that it references is not there.
            PreconditionFailed: the tag exists and the registry does not let tags be moved.
        """
        answer = self._transport.send(
            Request(
                method="PUT",
                url=self._manifest_path(repository, reference),
                scope=self._scope(repository, push=True),
                headers={"Content-Type": manifest.media_type},
                body=manifest.body,
                accepted=(200, 201, 400, 404, 409, 412),
            )
        )
        if answer.status in (200, 201):
            answer.drain()
            stored = answer.headers.get("docker-content-digest") or self.resolve(repository, reference)
            if stored != manifest.digest:
                what = f"manifest {label(repository, reference)} in {self.name}"
                raise DigestMismatch(what, expected=manifest.digest, seen=stored or "nothing")
            return
        problem = error_text(answer)
        if answer.status in (409, 412) or "immutable" in problem.lower() or "already exist" in problem.lower():
            raise PreconditionFailed(self.name, label(repository, reference), f"the tag may be written ({problem})")
        if "BLOB_UNKNOWN" in problem or "MANIFEST_UNKNOWN" in problem:
            raise Missing("content", f"of {label(repository, reference)}", self.name, fix=problem)
        raise RequestRefused(self.name, f"the manifest {label(repository, reference)}", problem)

    def delete(self, repository: str, reference: str) -> None:
        """Remove a tag; by a digest, the manifest with every tag that it has. Nothing happens where it is gone already.

        Raises:
            RequestRefused: the registry deletes nothing, or no tag without its manifest.
        """
        accepted = (200, 202, 204, 404)
        path = self._manifest_path(repository, reference)
        request = Request(
            method="DELETE", url=path, scope=f"{self._scope(repository, push=True)},delete", accepted=accepted
        )
        self._transport.send(request).drain()

    def _pages(self, first: str, repository: str, *, absent: tuple[int, ...]) -> Iterator[Answer]:
        """The answers of a listing, page by page."""
        seen: set[str] = set()
        page: str | None = first
        while page is not None:
            if page in seen:
                raise Unreachable(self.name, f"its listing {first} never ends")
            seen.add(page)
            answer = self._send("GET", page, repository, accepted=(200, *absent))
            yield answer
            page = _next_page(page, answer.headers.get("link"))

    def _send(self, method: str, url: str, repository: str, *, accepted: tuple[int, ...], push: bool = False) -> Answer:
        headers = {"Accept": ACCEPTED_MANIFESTS} if "/manifests/" in url else {}
        scope = self._scope(repository, push=push)
        return self._transport.send(Request(method=method, url=url, scope=scope, headers=headers, accepted=accepted))

    def _body(self, answer: Answer) -> Iterator[bytes]:
        try:
            yield from answer.chunks()
        except Broken as problem:
            raise Unreachable(self.name, f"the answer was cut off ({problem})") from problem
        finally:
            answer.close()

    def _full(self, repository: str) -> str:
        return f"{self._prefix}/{repository}" if self._prefix else repository

    def _path(self, repository: str, rest: str) -> str:
        return f"/v2/{quote(self._full(repository))}/{rest}"

    def _manifest_path(self, repository: str, reference: str) -> str:
        return self._path(repository, f"manifests/{quote(reference, safe=':')}")

    def _scope(self, repository: str, *, push: bool) -> str:
        return f"repository:{self._full(repository)}:{'pull,push' if push else 'pull'}"


def _media_type(answer: Answer) -> str:
    return answer.headers.get("content-type", "").partition(";")[0].strip()


def _next_page(page: str, link: str | None) -> str | None:
    """The path of the page that a Link header calls the next one."""
    if link is None or 'rel="next"' not in link.replace("rel=next", 'rel="next"'):
        return None
    target = urlsplit(urljoin(page, link.partition("<")[2].partition(">")[0]))
    return f"{target.path}?{target.query}"
