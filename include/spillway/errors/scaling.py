"""Why node pools are not scaled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from spillway.errors.root import SpillwayError


class ScalerBusy(SpillwayError):
    """Another one scales just now; nothing was changed."""

    retry_helps = True

    def __init__(self, holder: str, began_at: datetime, until: datetime) -> None:
        began, over = (moment.isoformat(timespec="seconds") for moment in (began_at, until))
        super().__init__(
            f"{holder} scales the node pools since {began}, expected nobody to; nothing was changed, and its turn is "
            f"over by {over} at the latest"
        )
        self.holder, self.began_at, self.until = holder, began_at, until


class TurnLost(SpillwayError):
    """A turn to scale was over before its work was done, and another one has scaled since."""

    retry_helps = True

    def __init__(self, holder: str) -> None:
        super().__init__(
            f"the turn of {holder} was over before its work was done, and another one has scaled since; expected each "
            "step within its time; what is left of its plan is dropped, the next look makes a new one"
        )
        self.holder = holder


class PlanChanged(SpillwayError):
    """Nothing of an approved plan holds any more; nothing was ordered."""

    retry_helps = False

    def __init__(self, place: str, differences: Sequence[str]) -> None:
        super().__init__(
            f"the plan for {place} has changed since it was shown, and nothing of what was approved is left: "
            f"{'; '.join(differences)}; nothing was ordered, ask for a new plan"
        )
        self.place, self.differences = place, tuple(differences)
