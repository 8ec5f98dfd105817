import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoints.layout import (
    CommittedStep,
    Head,
    decode_head,
    decode_manifest,
    encode_head,
    encode_manifest,
    head_key,
    manifest_key,
    parse_manifest_key,
    part_key,
    progress_key,
    same_content,
)
from spillway.errors import CorruptCheckpoint, ForeignCheckpoint
from spillway.model import CheckpointManifest, CheckpointPart

SHA = "ab" * 32
MANIFEST = CheckpointManifest(
    run="llm-7b",
    step=40,
    attempt=2,
    world_size=1,
    parts=(CheckpointPart(name="model/weights.npy", size_bytes=8, sha256=SHA),),
    data_cursor={"epoch": 1},
    metrics={"loss": [[40, 0.5]]},
    created_at=datetime(2026, 1, 5, 12, 0, tzinfo=UTC),
)
HEAD = Head(
    run="llm-7b",
    attempt=3,
    committed=(CommittedStep(step=60, attempt=1, sha256=SHA), CommittedStep(step=40, attempt=2, sha256=SHA)),
)


def test_the_keys_of_a_run_are_these() -> None:
    assert head_key("llm-7b") == "llm-7b/HEAD"
    assert manifest_key("llm-7b", 40, 2) == "llm-7b/manifests/000000000040-000002.json"
    assert part_key("llm-7b", SHA) == f"llm-7b/parts/ab/{SHA}"
    assert progress_key("llm-7b", 2) == "llm-7b/progress/000002.json"


def test_the_bytes_of_head_are_these() -> None:
    assert encode_head(HEAD).decode() == (
        '{"attempt":3,"committed":['
        f'{{"attempt":1,"sha256":"{SHA}","step":60}},{{"attempt":2,"sha256":"{SHA}","step":40}}],'
        '"format":1,"manifest":"llm-7b/manifests/000000000040-000002.json","step":40}'
    )
    assert encode_head(Head(run="llm-7b", attempt=1)).decode() == (
        '{"attempt":1,"committed":[],"format":1,"manifest":null,"step":null}'
    )


def test_the_bytes_of_a_manifest_are_these() -> None:
    assert encode_manifest(MANIFEST).decode() == (
        '{"attempt":2,"created_at":"2026-01-05T12:00:00+00:00","data_cursor":{"epoch":1},"format":1,'
        '"metrics":{"loss":[[40,0.5]]},'
        f'"parts":[{{"name":"model/weights.npy","sha256":"{SHA}","size_bytes":8}}],'
        '"run":"llm-7b","step":40,"world_size":1}'
    )


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode_manifest("llm-7b", 40, 2, encode_manifest(MANIFEST)) == MANIFEST


@given(
    attempt=st.integers(5, 9),
    order=st.sets(st.tuples(st.integers(1, 5), st.integers(1, 10**9)), max_size=6),
)
def test_head_is_read_as_it_was_written(attempt: int, order: set[tuple[int, int]]) -> None:
    committed = tuple(CommittedStep(step=step, attempt=owner, sha256=SHA) for owner, step in sorted(order))
    head = Head(run="run-1", attempt=attempt, committed=committed)
    assert decode_head("run-1", encode_head(head)) == head


def _head_with(**changes: Any) -> bytes:
    return json.dumps({**json.loads(encode_head(HEAD)), **changes}).encode()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        pytest.param(b"{", "it is not JSON", id="torn"),
        pytest.param(b"", "it is not JSON", id="empty"),
        pytest.param(b"[]", "expected a JSON object, got list", id="a list"),
        pytest.param(_head_with(format=2), "expected format 1, got 2", id="written by a newer release"),
        pytest.param(_head_with(owner="x"), "unknown key 'owner'", id="unknown key"),
        pytest.param(_head_with(attempt="3"), "expected int, got '3'", id="attempt as text"),
        pytest.param(_head_with(attempt=1), "its committed steps are not in order", id="step of a later attempt"),
        pytest.param(
            _head_with(committed=json.loads(encode_head(HEAD))["committed"][::-1]),
            "its committed steps are not in order",
            id="newest first",
        ),
        pytest.param(_head_with(step=60), "it names step 60", id="two truths"),
        pytest.param(_head_with(manifest="llm-7b/latest"), "expected a key such as", id="no manifest's key"),
    ],
)
def test_a_head_that_cannot_be_believed_is_corrupt(body: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpoint) as caught:
        decode_head("llm-7b", body)
    assert problem in str(caught.value)
    assert str(caught.value).startswith("run 'llm-7b': HEAD is not valid: ")


def test_a_head_of_another_run_is_foreign() -> None:
    with pytest.raises(ForeignCheckpoint) as caught:
        decode_head("run-1", encode_head(HEAD))
    assert (caught.value.run, caught.value.owner) == ("run-1", "llm-7b")


def test_a_manifest_of_another_run_is_foreign() -> None:
    with pytest.raises(ForeignCheckpoint) as caught:
        decode_manifest("run-1", 40, 2, encode_manifest(MANIFEST))
    assert (caught.value.run, caught.value.owner) == ("run-1", "llm-7b")


def test_a_manifest_key_of_another_run_is_foreign() -> None:
    with pytest.raises(ForeignCheckpoint):
        parse_manifest_key("run-1", manifest_key("llm-7b", 40, 2))
    assert parse_manifest_key("llm-7b", manifest_key("llm-7b", 40, 2)) == (40, 2)


def test_a_manifest_of_another_step_is_corrupt() -> None:
    with pytest.raises(CorruptCheckpoint, match="expected step 41 of attempt 2, its manifest is of step 40"):
        decode_manifest("llm-7b", 41, 2, encode_manifest(MANIFEST))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/weights", "../weights", "a/../../weights", "a//b", "a/", "a\0b", "\ud800", "x" * 256]
)
def test_a_part_that_would_leave_its_folder_or_can_be_no_file_is_refused(name: str) -> None:
    part = CheckpointPart(name=name, size_bytes=1, sha256=SHA)
    with pytest.raises(CorruptCheckpoint, match="is not a plain relative path"):
        encode_manifest(replace(MANIFEST, parts=(part,)))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"step": 0}, "step must be at least 1, it is 0", id="step"),
        pytest.param({"attempt": 0}, "attempt must be at least 1, it is 0", id="attempt"),
        pytest.param({"world_size": 0}, "world_size must be at least 1, it is 0", id="world size"),
        pytest.param({"parts": MANIFEST.parts * 2}, "two of its parts have the same name", id="one name twice"),
        pytest.param(
            {"parts": (replace(MANIFEST.parts[0], sha256="AB" * 32),)}, "part 'model/weights.npy' has", id="digest"
        ),
        pytest.param({"parts": (replace(MANIFEST.parts[0], size_bytes=-1),)}, "has size -1", id="size"),
    ],
)
def test_a_manifest_out_of_range_is_neither_written_nor_read(changes: dict[str, Any], problem: str) -> None:
    wrong = replace(MANIFEST, **changes)
    with pytest.raises(CorruptCheckpoint, match=problem):
        encode_manifest(wrong)
    written = json.loads(encode_manifest(MANIFEST)) | {
        name: [{"name": p.name, "size_bytes": p.size_bytes, "sha256": p.sha256} for p in value]
        if name == "parts"
        else value
        for name, value in changes.items()
    }
    with pytest.raises(CorruptCheckpoint, match=problem):
        decode_manifest("llm-7b", wrong.step, wrong.attempt, json.dumps(written).encode())


def test_the_moment_of_writing_is_no_part_of_the_content() -> None:
    later = replace(MANIFEST, created_at=datetime(2026, 1, 6, tzinfo=UTC))
    assert same_content(MANIFEST, later)
    assert not same_content(MANIFEST, replace(later, metrics={"loss": [[40, 0.6]]}))
