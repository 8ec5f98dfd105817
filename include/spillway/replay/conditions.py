"""A file of what the simulated world does beside the policies; see docs/replay.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from spillway.config import notation
from spillway.config.document import read
from spillway.config.schema import MOST, Duration, Entry, Lasting, PriorityWord
from spillway.errors import ConfigError, UnknownName
from spillway.model import Cluster
from spillway.replay.spot import Stretch, Zone, spot_apart
from spillway.replay.world import Conditions

_USUAL = Conditions()
Amount = Annotated[float, Field(strict=True, ge=0, le=MOST)]


class StretchEntry(Entry):
    mean: Lasting
    median: Lasting

    @model_validator(mode="after")
    def _makes_sense(self) -> StretchEntry:
        try:
            self.stretch()
        except ValueError as problem:
            raise notation.refused(str(problem)) from problem
        return self

    def stretch(self) -> Stretch:
        mean, median = (lasting.total_seconds() / 3600 for lasting in (self.mean, self.median))
        return Stretch(mean_hours=mean, median_hours=median)


class ZoneEntry(Entry):
    """For how long a zone has spot at a time, and for how long none."""

    up: StretchEntry
    down: StretchEntry

    def zone(self) -> Zone:
        return Zone(up=self.up.stretch(), down=self.down.stretch())


class MoveEntry(Entry):
    """What a move takes beside what goes over the line; see ``MoveFacts``."""

    flush: Duration | None = None
    grace: Duration | None = None
    restart: Duration | None = None


class ConditionsFile(Entry):
    """Every key may be left out: what is not said is as in ``Conditions``."""

    spot: dict[Annotated[tuple[str, str], BeforeValidator(notation.pool)], ZoneEntry] = Field(default_factory=dict)
    spot_ok: tuple[PriorityWord, ...] = ()
    checkpoint_every: Lasting = _USUAL.checkpoint_every
    dataset_gib: Amount = 0.0
    checkpoint_gib: Amount | None = None
    move: MoveEntry = MoveEntry()


def conditions_of(file: Path, clusters: tuple[Cluster, ...]) -> tuple[tuple[Cluster, ...], Conditions]:
    """The conditions of a file, and the clusters with the pools of spot that these are about.

    Raises:
        ConfigError: the file is wrong, or names a pool that sells no spot.
    """
    written = read(file, ConditionsFile)
    try:
        apart, zones = spot_apart(clusters, {place: entry.zone() for place, entry in written.spot.items()})
    except UnknownName as problem:
        raise ConfigError(file.name, "spot", str(problem)) from problem
    moving = {name: lasting for name, lasting in dict(written.move).items() if lasting is not None}
    return apart, replace(
        _USUAL,
        spot=zones,
        spot_ok=frozenset(written.spot_ok),
        checkpoint_every=written.checkpoint_every,
        dataset_gib=written.dataset_gib,
        checkpoint_gib=written.checkpoint_gib,
        move=replace(_USUAL.move, **moving),
    )
