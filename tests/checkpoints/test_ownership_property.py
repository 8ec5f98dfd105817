"""Any order of fences, commits, crashes and zombies: what readers see is one history, and never a lost step."""

import itertools
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spillway.checkpoints.layout import CommittedStep
from spillway.checkpoints.replicate import replicate
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import CheckpointConflict, Fenced, Missing, Unreachable
from spillway.stores.local import LocalStore
from spillway.testing.checkpoints import WatchedStore, commit_step

RUN = "llm-7b"
ATTEMPTS = st.integers(1, 4)
STEPS = st.integers(1, 6)


class Ownership(RuleBasedStateMachine):
    """A model beside the store: the owner, and the committed steps in the order in which their commits returned."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        for site in ("onprem", "cloud"):
            (Path(self._folder.name) / site).mkdir()
        self.store = WatchedStore(LocalStore(Path(self._folder.name) / "onprem"))
        self.copy = CheckpointStore(LocalStore(Path(self._folder.name) / "cloud"), RUN)
        self.owner: int | None = None
        self.acknowledged: list[tuple[int, int]] = []
        self.before: tuple[CommittedStep, ...] = ()

    def teardown(self) -> None:
        self._folder.cleanup()

    @property
    def checkpoints(self) -> CheckpointStore:
        return CheckpointStore(self.store, RUN)

    @rule(attempt=ATTEMPTS)
    def fence(self, attempt: int) -> None:
        try:
            self.checkpoints.fence(attempt)
        except Fenced:
            assert self.owner is not None and self.owner > attempt
        else:
            assert self.owner is None or self.owner <= attempt
            self.owner = attempt

    @rule(attempt=ATTEMPTS, step=STEPS, content=st.sampled_from([b"one", b"other"]))
    def commit(self, attempt: int, step: int, content: bytes) -> None:
        try:
            commit_step(self.checkpoints, step, attempt=attempt, parts={"weights.npy": content})
        except (Fenced, Missing):
            assert self.owner != attempt
        except CheckpointConflict:
            assert self.owner == attempt
        else:
            assert self.owner == attempt
            self._acknowledge(step, attempt)

    @rule(attempt=ATTEMPTS, step=STEPS, write=st.integers(0, 3), fenced_by=st.none() | ATTEMPTS)
    def commit_that_is_cut_off(self, attempt: int, step: int, write: int, fenced_by: int | None) -> None:
        """The process dies at one of its writes, or somebody fences it there and it goes on as a zombie."""
        count = itertools.count()

        def cut(key: str) -> None:
            if next(count) != write:
                return
            if fenced_by is None:
                raise Unreachable(self.store.name, "the process died")
            self.store.before = lambda key: None
            self.fence(fenced_by)

        self.store.before = cut
        try:
            commit_step(self.checkpoints, step, attempt=attempt)
        except (Fenced, Missing, CheckpointConflict, Unreachable):
            pass
        else:
            assert self.owner == attempt
            self._acknowledge(step, attempt)
        finally:
            self.store.before = lambda key: None

    @rule()
    def copy_to_the_other_site(self) -> None:
        replicate(self.checkpoints, self.copy)
        head, copied = self.checkpoints.head(), self.copy.head()
        if head is not None and head.committed:
            assert copied == head

    def _acknowledge(self, step: int, attempt: int) -> None:
        if (step, attempt) not in self.acknowledged:
            self.acknowledged.append((step, attempt))

    @invariant()
    def head_is_what_was_acknowledged(self) -> None:
        head = self.checkpoints.head()
        assert (None if head is None else head.attempt) == self.owner
        committed = () if head is None else head.committed
        assert [(entry.step, entry.attempt) for entry in committed] == self.acknowledged
        assert committed[: len(self.before)] == self.before
        self.before = committed

    @invariant()
    def the_newest_step_is_whole(self) -> None:
        point = self.checkpoints.resume_point()
        assert point.rejected == ()
        assert point.step == (self.acknowledged[-1][0] if self.acknowledged else None)


TestOwnership = Ownership.TestCase
TestOwnership.settings = settings(max_examples=40, stateful_step_count=15)
