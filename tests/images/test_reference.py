"""Names of images."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spillway.errors import InvalidImage
from spillway.images.reference import ImageReference

DIGEST = f"sha256:{'0f' * 32}"

PARSED = {
    "train:v1": ImageReference(repository="train", tag="v1"),
    f"train@{DIGEST}": ImageReference(repository="train", digest=DIGEST),
    f"train:v1@{DIGEST}": ImageReference(repository="train", tag="v1", digest=DIGEST),
    "team/sub-team/train:torch2.0.1-cuda11.8": ImageReference(
        repository="team/sub-team/train", tag="torch2.0.1-cuda11.8"
    ),
    "localhost/train:v1": ImageReference(registry="localhost", repository="train", tag="v1"),
    "127.0.0.1:5000/train:v1": ImageReference(registry="127.0.0.1:5000", repository="train", tag="v1"),
    "registry:5000/train:v1": ImageReference(registry="registry:5000", repository="train", tag="v1"),
    "[::1]:5000/train:v1": ImageReference(registry="[::1]:5000", repository="train", tag="v1"),
    f"images.example.org/a/b@{DIGEST}": ImageReference(registry="images.example.org", repository="a/b", digest=DIGEST),
}

REFUSED = {
    "": "expected a tag or a digest, such as 'train:v1'",
    "train": "expected a tag or a digest, such as 'train:v1'",
    "127.0.0.1:5000/train": "expected a tag or a digest",
    "Train:v1": "expected a repository of lower-case letters.*got 'Train'",
    "train:": "expected a tag.*got ''",
    "train:v 1": "expected a tag.*got 'v 1'",
    f"train:{'x' * 129}": "expected a tag of at most 128",
    "train@sha256:12": "expected a digest.*got 'sha256:12'",
    "../train:v1": r"expected a repository.*got '\.\./train'",
    ":v1": "expected a repository.*got ''",
    f"{'x' * 256}:v1": "expected a repository",
    "a//b:v1": "expected a repository",
}


@pytest.mark.parametrize("text", PARSED, ids=str)
def test_a_name_is_taken_apart(text: str) -> None:
    assert ImageReference.parse(text) == PARSED[text]


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_a_wrong_name_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(InvalidImage, match=REFUSED[text]):
        ImageReference.parse(text)


def test_the_digest_outranks_the_tag() -> None:
    assert ImageReference.parse(f"train:v1@{DIGEST}").reference == DIGEST
    assert ImageReference.parse("train:v1").reference == "v1"


NAMES = st.from_regex(r"[a-z0-9]{1,8}([_-][a-z0-9]{1,8}){0,2}(/[a-z0-9]{1,8}(\.[a-z]{1,4})?){0,2}", fullmatch=True)
TAGS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True)
REGISTRIES = st.sampled_from(["127.0.0.1:5000", "registry:80", "a.b.example"])


@given(repository=NAMES, tag=st.none() | TAGS, digest=st.none() | st.just(DIGEST), registry=st.none() | REGISTRIES)
def test_a_reference_survives_being_written_and_read(
    repository: str, tag: str | None, digest: str | None, registry: str | None
) -> None:
    assume(tag is not None or digest is not None)
    assume(not repository.startswith("localhost/"))
    reference = ImageReference(repository=repository, tag=tag, digest=digest, registry=registry)
    assert ImageReference.parse(str(reference)) == reference
