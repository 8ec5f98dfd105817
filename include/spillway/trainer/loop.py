"""The training loop of the contract: step, report, commit when due, stop when asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from spillway.model import ExitCode
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

    Commits go on beside training. Everything that was trained is committed before it returns, unless a stop leaves no
    time for it; where that fails it raises. While the store is silent training goes on, and the newest step is
    committed as soon as the store answers. Of a gang the first pod commits, and the others only train.
    """
    contract = session.contract
    for step in range(contract.first_step, contract.total_steps + 1):
        if session.stop.requested:
            break
        session.report(step, program.step())
        last = step == contract.total_steps
        if session.commits and (last or session.commit_due(step)):
            session.commit(program.checkpoint(), last=last)
        if not last:
            session.stop.pause(contract.step_pause.total_seconds())
    session.settle()
    if session.commits and session.last_step not in (None, session.durable_step) and session.commit_fits():
        session.commit(program.checkpoint(), last=True)
    reached = session.durable_step if session.commits else session.last_step or contract.resumed_from_step
    if reached != contract.total_steps:
        say("preempted", step=session.last_step, durable_step=session.durable_step)
        return ExitCode.PREEMPTED
    say("finished", step=reached, **program.summary())
    return ExitCode.SUCCEEDED
