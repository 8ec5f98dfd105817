"""The PyTorch program, where PyTorch is installed."""

from dataclasses import replace

import pytest

from spillway.testing.training import TrainingSite
from spillway.trainer.__main__ import main

pytest.importorskip("torch")


def run(site: TrainingSite, attempt: int, **changes: str) -> int:
    site.checkpoints.fence(attempt)
    return main(["pytorch"], site.environment(attempt=attempt, **changes))


def test_an_interrupted_run_has_the_losses_of_an_undisturbed_one_to_the_bit(site: TrainingSite) -> None:
    undisturbed = replace(site, run="undisturbed")
    assert run(site, 1, SPILLWAY_STEPS="13") == 0
    assert run(site, 2) == 0
    assert run(undisturbed, 1) == 0
    assert [step for step, _ in site.losses()] == list(range(1, 31))
    assert site.losses() == undisturbed.losses()


def test_it_learns(site: TrainingSite) -> None:
    assert run(site, 1, SPILLWAY_STEPS="150", SPILLWAY_CHECKPOINT_EVERY="150") == 0
    losses = dict(site.losses())
    assert losses[150] < losses[1] / 4


def test_a_checkpoint_that_pytorch_cannot_load_is_refused(
    site: TrainingSite, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(site, 1, SPILLWAY_STEPS="10") == 0
    manifest = site.checkpoints.manifests()[0]
    site.checkpoints.fence(2)
    site.checkpoints.commit(
        step=20,
        attempt=2,
        world_size=1,
        parts={"model.pt": b"no model", "optimizer.pt": b""},
        data_cursor=manifest.data_cursor,
        metrics={},
        now=manifest.created_at,
    )
    assert run(site, 3) == 65
    reason = "checkpoint of step 20 is not valid: PyTorch cannot load it (UnpicklingError)"
    assert capsys.readouterr().err == f"spillway-trainer: run 'digits-1': {reason}\n"
