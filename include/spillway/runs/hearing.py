"""What is heard of a trainer while its pod runs: its progress object, and its words in the log."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from spillway.checkpoints.progress import Progress, said, step_told
from spillway.model import StallRule
from spillway.stalls import Silence, Stall, judge_stall


@dataclass(slots=True)
class Hearing:
    """The memory between looks. ``progress`` is the newest that was heard of, in the object or the log; None before."""

    progress: Progress | None = None
    _object: Progress | None = None
    _silence: Silence = field(default_factory=Silence)

    def note_object(self, found: Progress | None) -> bool:
        """Take note of what the progress object holds now; gives whether that is news."""
        if found is None or found == self._object:
            return False
        known, self._object = self.progress, found
        newer = known is not None and known.step > found.step
        self.progress = dataclasses.replace(found, step=known.step, loss=known.loss) if newer and known else found
        return True

    def note_lines(self, lines: Sequence[str]) -> bool:
        """Take note of new lines of the log; gives whether the trainer has said anything."""
        words = [word for line in lines if (word := said(line)) is not None]
        for told in filter(None, map(step_told, words)):
            known = self.progress or told
            if told.step >= known.step:
                self.progress = dataclasses.replace(known, step=told.step, loss=told.loss)
        return bool(words)

    def lose(self) -> None:
        """Nothing can be heard now: a silence begins anew when something can be again."""
        self._silence = Silence()

    def stall(self, rule: StallRule | None, now: datetime, *, heard: bool | None) -> Stall | None:
        """The stall that there is by now.

        Before its first step a trainer may load for as long as it likes.

        Args:
            heard: whether there was a sign of life since the last look; None where not all could be asked.
        """
        self._silence = self._silence.at(now, heard=heard if self.progress else None)
        if self.progress is None:
            return None
        step, step_seconds = self.progress.step, self.progress.step_seconds
        return judge_stall(self._silence, rule, now=now, last_step=step, step_seconds=step_seconds)
