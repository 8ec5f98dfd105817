"""Wait for a committed checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airflow.sdk import NEVER_EXPIRE, BaseSensorOperator, Context, PokeReturnValue  # type: ignore[attr-defined]

from spillway.checkpoints.layout import CommittedStep, Head
from spillway.checkpoints.progress import Progress, read_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import SpillwayError
from spillway.runs.services import Services
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services

SAID = "said"


class CheckpointSensor(BaseSensorOperator):
    """Done when the run's newest committed step, at whatever site, is ``step`` or a later one; gives that step.

    The newest is the one of the latest attempt: higher steps that a roll-back gave up count no more. Its log has a line
    for each poll that saw something new, with the progress of the attempt that owns the run. It waits while the site of
    the newest attempt does not answer: nobody knows then whether steps of older ones count.
    """

    template_fields: Sequence[str] = ("training_run", "step")

    def __init__(self, *, training_run: str, step: int | str = 1, mode: str = "reschedule", **kwargs: Any) -> None:
        super().__init__(mode=mode, **kwargs)
        self.training_run, self.step = training_run, step

    def poke(self, context: Context) -> PokeReturnValue:
        silent: list[str] = []
        with typed_failures():
            services = worker_services()
            heads = list(self._heads(services, silent))
        entries = [head.newest for head, _ in heads if head.newest]
        latest = max(entries, key=lambda entry: entry.age_order, default=None)
        newest = None if latest is None else latest.step
        told = [progress for head, progress in sorted(heads, key=lambda found: found[0].attempt) if progress]
        seen = [f"newest committed step of {self.training_run}: {newest}", *map(str, told[-1:])]
        done = latest is not None and latest.step >= int(self.step)
        if latest is not None and done and silent:
            with typed_failures():
                done = not self._given_up_perhaps(services, latest, silent)
            if not done:
                seen.append(f"whether it counts is not known while {', '.join(silent)} does not answer")
        self._say_once(context, "; ".join(seen))
        return PokeReturnValue(is_done=done, xcom_value=newest)

    def _given_up_perhaps(self, services: Services, latest: CommittedStep, silent: Sequence[str]) -> bool:
        """Whether a newer attempt than the step's may have committed at a site that does not answer."""
        owner = max(services.ledger.attempts(self.training_run), key=lambda attempt: attempt.number, default=None)
        if owner is None or owner.number <= latest.attempt:
            return False
        cluster = owner.candidate.cluster
        return cluster in services.configuration.clusters and services.store_site(owner.job, cluster) in silent

    def _heads(self, services: Services, silent: list[str]) -> Iterator[tuple[Head, Progress | None]]:
        """By site: who owns the run there, and how far its owner is if it trains there; the others are ``silent``."""
        for name in services.configuration.clusters:
            try:
                store = services.site(name).checkpoints
                head = CheckpointStore(store, self.training_run).head()
                if head is not None:
                    yield head, read_progress(store, self.training_run, head.attempt)
            except SpillwayError as problem:
                silent.append(name)
                self.log.warning("%s is left out: %s", name, problem)

    def _say_once(self, context: Context, text: str) -> None:
        """Say what the last poll, which was perhaps another process, has not said yet."""
        memory = context["task_state_store"]
        if memory.get(SAID) != text:
            self.log.info("%s", text)
            memory.set(SAID, text, retention=NEVER_EXPIRE)
