"""What the trainer says of data and checkpoints that it cannot use."""

import pytest

from spillway.checkpoints.layout import manifest_key, part_key
from spillway.stores.base import read_all
from spillway.testing.training import PREFIX, RUN, Train, TrainingSite


@pytest.fixture
def trained(site: TrainingSite, train: Train) -> TrainingSite:
    """A site where attempt 1 committed its first ten steps."""
    assert train(site, SPILLWAY_STEPS="10").exit_code == 0
    return site


def test_a_checkpoint_of_another_run_is_refused(trained: TrainingSite, train: Train) -> None:
    foreign = manifest_key("another-run", 10, 1)
    refused = train(trained, attempt=2, SPILLWAY_RESUME_MANIFEST=foreign)
    assert (refused.exit_code, refused.steps) == (65, [])
    assert refused.stderr == (
        f"spillway-trainer: {foreign} holds a checkpoint of run 'another-run', expected run '{RUN}'; it was not used\n"
    )


def test_a_damaged_checkpoint_is_refused(trained: TrainingSite, train: Train) -> None:
    promised = trained.checkpoints.resume_point()
    weights = trained.checkpoints.manifests()[0].parts[0]
    trained.bucket.put(part_key(RUN, weights.sha256), b"0" * weights.size_bytes, size_bytes=weights.size_bytes)
    refused = train(trained, attempt=2, resume=promised)
    assert (refused.exit_code, refused.steps) == (65, [])
    assert "checkpoint of step 10 is not valid: part 'weights.npy': expected digest" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_checkpoint_that_was_never_committed_is_refused(trained: TrainingSite, train: Train) -> None:
    refused = train(trained, attempt=2, SPILLWAY_RESUME_MANIFEST=manifest_key(RUN, 20, 1))
    assert refused.exit_code == 65
    assert "is not committed" in refused.stderr


def test_a_step_that_contradicts_the_manifest_is_refused(trained: TrainingSite, train: Train) -> None:
    refused = train(trained, attempt=2, SPILLWAY_RESUMED_FROM_STEP="9")
    assert refused.exit_code == 1
    assert refused.stderr == (
        "spillway-trainer: environment: SPILLWAY_RESUMED_FROM_STEP: expected 10 as in the manifest, got 9\n"
    )


def test_a_checkpoint_with_other_numbers_is_refused(trained: TrainingSite, train: Train) -> None:
    cursor = trained.checkpoints.manifests()[0].data_cursor
    trained.checkpoints.fence(2)
    trained.checkpoints.commit(
        step=20,
        attempt=2,
        world_size=1,
        parts={"weights.npy": b"not an array", "velocity.npy": b""},
        data_cursor=cursor,
        metrics={},
        now=trained.checkpoints.manifests()[0].created_at,
    )
    refused = train(trained, attempt=3)
    assert refused.exit_code == 65
    assert "checkpoint of step 20 is not valid: weights.npy: " in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_missing_data_set_is_named(site: TrainingSite, train: Train) -> None:
    refused = train(site, SPILLWAY_DATASET_PREFIX="digts/")
    assert refused.exit_code == 65
    assert refused.stderr == (
        f"spillway-trainer: data set 'digts/' is not in {site.data.name}; sync it to this site before the launch\n"
    )


def test_a_missing_bucket_is_named(s3_site: TrainingSite, train: Train) -> None:
    refused = train(s3_site, SPILLWAY_DATASET_BUCKET="no-such-bucket")
    assert refused.exit_code == 65
    assert "bucket 'no-such-bucket' is not in" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_data_set_that_changed_since_the_checkpoint_is_refused(trained: TrainingSite, train: Train) -> None:
    trained.data.delete([PREFIX + "shard-003.csv"])
    refused = train(trained, attempt=2)
    assert (refused.exit_code, refused.steps) == (65, [])
    assert "the checkpoint of step 10 was trained with dataset_sha256" in refused.stderr


def test_another_seed_than_the_checkpoints_is_refused(trained: TrainingSite, train: Train) -> None:
    refused = train(trained, attempt=2, SPILLWAY_SEED="1")
    assert refused.exit_code == 65
    assert "was trained with seed 0, here it is 1" in refused.stderr


def test_a_broken_line_is_named(site: TrainingSite, train: Train) -> None:
    key = PREFIX + "shard-001.csv"
    lines = read_all(site.data, key).splitlines()
    lines[6] = b"1,2,3"
    body = b"\n".join(lines)
    site.data.put(key, body, size_bytes=len(body))
    refused = train(site)
    assert refused.exit_code == 65
    assert refused.stderr == "spillway-trainer: shard-001.csv: line 7: expected 65 numbers, got 3\n"


def test_an_unknown_program_is_named_with_the_known_ones(site: TrainingSite, train: Train) -> None:
    refused = train(site, program="digit")
    assert refused.exit_code == 1
    assert refused.stderr == (
        "spillway-trainer: unknown program 'digit'; known: digits, pytorch. Did you mean 'digits'?\n"
    )
