import numpy as np
import pytest

from spillway.errors import BadData
from spillway.sandbox.sample_data import digits_shards
from spillway.trainer.digits import BATCH, Digits, _loss_and_gradient, read_samples

SAMPLES = read_samples(digits_shards(3))


def test_the_samples_do_not_depend_on_how_they_are_cut_into_objects() -> None:
    whole = read_samples(digits_shards(1))
    assert np.array_equal(whole.pixels, SAMPLES.pixels)
    assert np.array_equal(whole.digits, SAMPLES.digits)
    assert whole.sha256 != SAMPLES.sha256


def test_no_held_out_sample_is_learned_from() -> None:
    assert sorted([*SAMPLES.training, *SAMPLES.held_out]) == list(range(1797))
    assert len(SAMPLES.held_out) == 360


def test_an_epoch_visits_each_training_sample_once_in_an_order_of_its_own() -> None:
    program = Digits(SAMPLES, seed=0)
    batches = -(-len(SAMPLES.training) // BATCH)
    first = np.concatenate([program._next_rows() for _ in range(batches)])
    second = np.concatenate([program._next_rows() for _ in range(batches)])
    assert np.array_equal(np.sort(first), SAMPLES.training)
    assert np.array_equal(np.sort(second), SAMPLES.training)
    assert not np.array_equal(first, second)


def test_the_cursor_names_the_batch_that_comes_next() -> None:
    program = Digits(SAMPLES, seed=0)
    batches = -(-len(SAMPLES.training) // BATCH)
    for _ in range(batches + 2):
        program.step()
    assert program.checkpoint().data_cursor == {
        "seed": 0,
        "epoch": 1,
        "batch": 2,
        "dataset_sha256": SAMPLES.sha256,
    }


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    random = np.random.default_rng(1)
    weights = random.standard_normal(4810) / 8
    pixels, digits = SAMPLES.pixels[:20], SAMPLES.digits[:20]
    _, gradient = _loss_and_gradient(weights, pixels, digits)
    for index in random.integers(0, len(weights), 40):
        nudge = np.zeros(len(weights))
        nudge[index] = 1e-6
        higher, _ = _loss_and_gradient(weights + nudge, pixels, digits)
        lower, _ = _loss_and_gradient(weights - nudge, pixels, digits)
        assert gradient[index] == pytest.approx((higher - lower) / 2e-6, abs=1e-7)


GOOD_LINE = b",".join([b"3"] * 65)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param(b"1,2", "b.csv: line 2: expected 65 numbers, got 2", id="too short"),
        pytest.param(GOOD_LINE + b",3", "b.csv: line 2: expected 65 numbers, got 66", id="too long"),
        pytest.param(b"x" + GOOD_LINE[1:], "b.csv: line 2: expected integers", id="no number"),
        pytest.param(b"17" + GOOD_LINE[1:], "b.csv: line 2: expected pixels from 0 to 16", id="too bright"),
        pytest.param(GOOD_LINE[:-1] + b"12", "b.csv: line 2: expected pixels from 0 to 16", id="no digit"),
    ],
)
def test_a_line_that_is_no_sample_is_named(line: bytes, problem: str) -> None:
    with pytest.raises(BadData) as caught:
        read_samples({"a.csv": GOOD_LINE, "b.csv": b"\n".join([GOOD_LINE, line])})
    assert str(caught.value).startswith(problem)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(BadData, match="expected at least 10 samples, got 1"):
        read_samples({"a.csv": GOOD_LINE + b"\n"})
