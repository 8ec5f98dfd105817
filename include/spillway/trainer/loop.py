"""The training loop of the contract: step, report, commit when due, stop when asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from spillway.trainer.contract import ExitCode
from spillway.trainer.progress import say
from spillway.trainer.session import Checkpoint, Session


class Program(Protocol):
    """What is trained: a framework's model, optimizer and data order, restored from the session when it was made."""

    def step(self) -> float:
        """Compute the next step; gives its loss."""

    def checkpoint(self) -> Checkpoint:
        """All that the next step depends on."""

    def summary(self) -> Mapping[str, float]:
        """What has been learned, once training is done."""


def train(session: Session, program: Program) -> ExitCode:
    """Train from the session's first step to its last, or until the stop signal.

    Everything that was trained is committed before it returns; where that fails it raises.
    """
    contract = session.contract
    for step in range(contract.first_step, contract.total_steps + 1):
        if session.stop.requested:
            break
        session.report(step, program.step())
        last = step == contract.total_steps
        if last or step % contract.checkpoint_every == 0:
            session.commit(program.checkpoint(), last=last)
        if not last:
            session.stop.pause(contract.step_pause.total_seconds())
    if session.last_step is not None and session.last_step != session.durable_step:
        session.commit(program.checkpoint(), last=True)
    if session.durable_step != contract.total_steps:
        say("preempted", step=session.last_step, durable_step=session.durable_step)
        return ExitCode.PREEMPTED
    say("finished", step=session.durable_step, **program.summary())
    return ExitCode.SUCCEEDED
