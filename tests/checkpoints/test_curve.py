from typing import Any

from spillway.checkpoints.curve import loss_curve
from spillway.model import CheckpointManifest
from spillway.testing.builders import NOW


def manifest(step: int, attempt: int, metrics: dict[str, Any]) -> CheckpointManifest:
    return CheckpointManifest(
        run="llm-7b",
        step=step,
        attempt=attempt,
        world_size=1,
        parts=(),
        data_cursor={},
        metrics=metrics,
        created_at=NOW,
    )


def losses(*pairs: tuple[int, float]) -> dict[str, Any]:
    return {"loss": [list(pair) for pair in pairs]}


def test_the_manifests_together_give_every_step() -> None:
    manifests = [manifest(4, 1, losses((3, 0.3), (4, 0.2))), manifest(2, 1, losses((1, 0.9), (2, 0.5)))]
    assert loss_curve(manifests) == ((1, 0.9), (2, 0.5), (3, 0.3), (4, 0.2))


def test_a_step_that_was_computed_again_counts_as_the_later_attempt_saw_it() -> None:
    manifests = [
        manifest(2, 1, losses((1, 0.9), (2, 0.5))),
        manifest(4, 1, losses((3, 0.3), (4, 0.2))),
        manifest(3, 2, losses((3, 0.35))),
    ]
    assert loss_curve(manifests) == ((1, 0.9), (2, 0.5), (3, 0.35))


def test_a_run_without_losses_has_an_empty_curve() -> None:
    assert loss_curve([]) == ()
    assert loss_curve([manifest(2, 1, {})]) == ()
