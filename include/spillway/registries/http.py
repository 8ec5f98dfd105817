"""An OCI registry over its HTTP interface."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, urljoin, urlsplit

import urllib3

from spillway.errors import DigestMismatch, InvalidImage, Missing, PreconditionFailed, RequestRefused, Unreachable
from spillway.registries.base import Manifest
from spillway.registries.content import INDEX_MEDIA_TYPES, MANIFEST_MEDIA_TYPES
from spillway.registries.digest import digest_of, is_digest, label, verified
from spillway.registries.transport import Request, Transport, error_text, read_json

ACCEPTED_MANIFESTS = ", ".join(sorted(INDEX_MEDIA_TYPES | MANIFEST_MEDIA_TYPES))
MAX_MANIFEST_BYTES = 16 * 2**20
CHUNK_BYTES = 2**20
TAGS_PER_PAGE = 1000
REDIRECTS = (301, 302, 303, 307, 308)


class HttpRegistry:
    """A registry, or a part of one below ``prefix``, that speaks the OCI distribution protocol.

    May be used by many threads. ``ca_file`` is for a registry whose certificate no public authority signed.
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
    ) -> None:
        self._transport = Transport(name=name, url=url, username=username, password=password, ca_file=ca_file)
        self._prefix = prefix.strip("/")

    @property
    def name(self) -> str:
        return f"{self._transport.endpoint[:-1]}/{self._prefix})" if self._prefix else self._transport.endpoint

    def tags(self, repository: str) -> tuple[str, ...]:
        """All tags, every page of them; empty for a repository that does not exist."""
        found: list[str] = []
        seen_pages: set[str] = set()
        page: str | None = self._path(repository, f"tags/list?n={TAGS_PER_PAGE}")
        while page is not None:
            if page in seen_pages:
                raise Unreachable(self.name, f"its list of the tags of '{repository}' never ends")
            seen_pages.add(page)
            answer = self._send("GET", page, repository, accepted=(200, 404))
            document = read_json(answer, self.name)
            if answer.status == 404:
                return ()
            found.extend(document.get("tags") or ())
            page = _next_page(page, answer.headers.get("Link"))
        return tuple(dict.fromkeys(found))

    def resolve(self, repository: str, reference: str) -> str | None:
        """The digest that the reference points at, or None where the registry does not have it."""
        answer = self._send(
            "HEAD", self._path(repository, f"manifests/{quote(reference, safe=':')}"), repository, accepted=(200, 404)
        )
        answer.drain_conn()
        if answer.status == 404:
            return None
        digest = answer.headers.get("Docker-Content-Digest", reference)
        return digest if is_digest(digest) else self.manifest(repository, reference).digest

    def manifest(self, repository: str, reference: str) -> Manifest:
        """The manifest, byte for byte.

        Raises:
            Missing: the registry does not have it.
            DigestMismatch: the body is not what its digest promises.
        """
        path = self._path(repository, f"manifests/{quote(reference, safe=':')}")
        answer = self._send("GET", path, repository, accepted=(200, 404))
        what = label(repository, reference)
        if answer.status == 404:
            answer.drain_conn()
            raise Missing("image", what, self.name)
        body = bytearray()
        for chunk in self._body(answer):
            body += chunk
            if len(body) > MAX_MANIFEST_BYTES:
                raise InvalidImage(what, f"{self.name} sends a manifest of more than {MAX_MANIFEST_BYTES} bytes")
        promised = reference if is_digest(reference) else answer.headers.get("Docker-Content-Digest")
        digest = digest_of(bytes(body))
        if promised is not None and promised != digest:
            raise DigestMismatch(f"manifest {what} of {self.name}", expected=promised, seen=digest)
        media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        return Manifest(digest=digest, media_type=media_type, body=bytes(body))

    def has_blob(self, repository: str, digest: str) -> bool:
        """Whether the blob is in this repository; a registry that answers with its storage's address has it."""
        answer = self._send(
            "HEAD", self._path(repository, f"blobs/{digest}"), repository, accepted=(200, *REDIRECTS, 404)
        )
        answer.drain_conn()
        return answer.status != 404

    def read_blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """The blob's bytes in chunks; raises Missing, and DigestMismatch at the end."""
        answer = self._send("GET", self._path(repository, f"blobs/{digest}"), repository, accepted=(200, 404))
        if answer.status == 404:
            answer.drain_conn()
            raise Missing("blob", label(repository, digest), self.name)
        yield from verified(self._body(answer), digest, what=f"blob {label(repository, digest)} of {self.name}")

    def put_blob(self, repository: str, digest: str, chunks: Iterator[bytes], *, size_bytes: int) -> None:
        """Store the bytes under their digest; wrong bytes are noticed before the upload is complete."""
        what = f"blob {label(repository, digest)} for {self.name}"
        upload = self._send("POST", self._path(repository, "blobs/uploads/"), repository, accepted=(202,), push=True)
        upload.drain_conn()
        answer = self._transport.send(
            Request(
                method="PUT",
                url=self._finish_url(upload, digest),
                scope=self._scope(repository, push=True),
                headers={"Content-Type": "application/octet-stream", "Content-Length": str(size_bytes)},
                stream=verified(chunks, digest, what=what, size_bytes=size_bytes),
                accepted=(201, 400, 404),
            )
        )
        if answer.status == 404:
            raise Unreachable(self.name, f"it no longer knows an upload that it began ({error_text(answer)})")
        if answer.status == 400:
            problem = error_text(answer)
            if "DIGEST_INVALID" in problem or "SIZE_INVALID" in problem:
                raise DigestMismatch(what, expected=digest, seen=f"other bytes, says the registry ({problem})")
            raise RequestRefused(self.name, f"the upload of {label(repository, digest)}", problem)
        answer.drain_conn()

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        """Store the manifest under a tag or its digest.

        Raises:
            Missing: something that it references is not there.
            PreconditionFailed: the tag exists and the registry does not let tags be moved.
        """
        answer = self._transport.send(
            Request(
                method="PUT",
                url=self._path(repository, f"manifests/{quote(reference, safe=':')}"),
                scope=self._scope(repository, push=True),
                headers={"Content-Type": manifest.media_type},
                body=manifest.body,
                accepted=(200, 201, 400, 404, 409, 412),
            )
        )
        if answer.status in (200, 201):
            answer.drain_conn()
            stored = answer.headers.get("Docker-Content-Digest", manifest.digest)
            if stored != manifest.digest:
                what = f"manifest {label(repository, reference)} in {self.name}"
                raise DigestMismatch(what, expected=manifest.digest, seen=stored)
            return
        problem = error_text(answer)
        if answer.status in (409, 412) or "immutable" in problem.lower() or "already exist" in problem.lower():
            raise PreconditionFailed(self.name, label(repository, reference), f"the tag may be written ({problem})")
        if "BLOB_UNKNOWN" in problem or "MANIFEST_UNKNOWN" in problem:
            raise Missing("content", f"of {label(repository, reference)}", self.name, fix=problem)
        raise RequestRefused(self.name, f"the manifest {label(repository, reference)}", problem)

    def _send(
        self, method: str, url: str, repository: str, *, accepted: tuple[int, ...], push: bool = False
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": ACCEPTED_MANIFESTS} if "/manifests/" in url else {}
        scope = self._scope(repository, push=push)
        return self._transport.send(Request(method=method, url=url, scope=scope, headers=headers, accepted=accepted))

    def _body(self, answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        try:
            yield from answer.stream(CHUNK_BYTES, decode_content=False)
        except urllib3.exceptions.HTTPError as problem:
            raise Unreachable(self.name, f"the answer was cut off ({problem})") from problem
        finally:
            answer.close()
            answer.release_conn()

    def _finish_url(self, upload: urllib3.BaseHTTPResponse, digest: str) -> str:
        location = upload.headers.get("Location")
        if location is None:
            raise Unreachable(self.name, "it began an upload without saying where")
        return f"{location}{'&' if '?' in location else '?'}digest={quote(digest, safe='')}"

    def _full(self, repository: str) -> str:
        return f"{self._prefix}/{repository}" if self._prefix else repository

    def _path(self, repository: str, rest: str) -> str:
        return f"/v2/{quote(self._full(repository))}/{rest}"

    def _scope(self, repository: str, *, push: bool) -> str:
        return f"repository:{self._full(repository)}:{'pull,push' if push else 'pull'}"


def _next_page(page: str, link: str | None) -> str | None:
    """The path of the page that a Link header calls the next one."""
    if link is None or 'rel="next"' not in link.replace("rel=next", 'rel="next"'):
        return None
    target = urlsplit(urljoin(page, link.partition("<")[2].partition(">")[0]))
    return f"{target.path}?{target.query}"
