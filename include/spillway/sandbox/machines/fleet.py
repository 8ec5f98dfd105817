"""What the provider of a site's machines remembers, in one file: those that there are, and how it is to misbehave.

A machine that was ordered boots by itself, whether anybody looks or not: it is on from its ``boots_at``. No name is
given twice.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spillway.codec import decode, encode, from_json
from spillway.errors import ConfigError, SandboxError
from spillway.sandbox.settings import NodeSettings, SiteSettings, write_private

BOOT = timedelta(seconds=15)


class QuotaExceeded(Exception):
    """More machines than the provider has for this customer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine; ``ordered_at`` and ``boots_at`` are aware UTC. One without GPUs was broken when it came."""

    name: str
    port: int
    gpus: int
    ordered_at: datetime
    boots_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How the provider is to behave. ``quota`` None: as many as the site can have."""

    boot: timedelta = BOOT
    quota: int | None = None
    without_gpus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """``wanted`` is what was asked for last, ``last`` the number of the newest name.

    ``leaving`` are machines that are off, and whose nodes are still to be taken out of Kubernetes.
    """

    wanted: int
    last: int
    machines: tuple[Machine, ...]
    leaving: tuple[Machine, ...] = ()
    faults: Faults = Faults()


def first_fleet(site: SiteSettings, now: datetime) -> Fleet:
    """The machines that a site starts with."""
    machines = tuple(
        Machine(name=node.name, port=node.port, gpus=node.gpus, ordered_at=now, boots_at=now) for node in site.nodes
    )
    return Fleet(wanted=len(machines), last=len(machines), machines=machines)


def resized(fleet: Fleet, site: SiteSettings, nodes: int, terminate: Collection[str], now: datetime) -> Fleet:
    """The fleet without those machines, and grown to so many; none is ever chosen to go.

    Raises:
        QuotaExceeded: there may not be so many.
    """
    most = min(site.most_nodes, site.most_nodes if fleet.faults.quota is None else fleet.faults.quota)
    staying = tuple(machine for machine in fleet.machines if machine.name not in terminate)
    gone = tuple(machine for machine in fleet.machines if machine.name in terminate)
    if nodes > max(most, len(staying)):
        raise QuotaExceeded(f"{nodes} machines of '{site.name}' were asked for, the quota is {most}")
    taken = {machine.port for machine in (*fleet.machines, *fleet.leaving)}
    free = [port for port in site.machine_ports if port not in taken]
    ordered = tuple(
        Machine(
            name=f"{site.name}-{fleet.last + number}",
            port=free[number - 1],
            gpus=0 if fleet.faults.without_gpus else site.nodes[0].gpus,
            ordered_at=now,
            boots_at=now + fleet.faults.boot,
        )
        for number in range(1, nodes - len(staying) + 1)
    )
    return replace(
        fleet,
        wanted=max(nodes, len(staying)),
        last=fleet.last + len(ordered),
        machines=staying + ordered,
        leaving=fleet.leaving + gone,
    )


def fleet_file(state: Path, site: SiteSettings) -> Path:
    """Where the fleet of a site is remembered."""
    return state / site.name / "machines.json"


def read_fleet(file: Path) -> Fleet:
    """What is remembered; raises SandboxError where somebody has damaged the file, OSError where there is none."""
    try:
        return decode(Fleet, from_json(file.read_text()))
    except (ValueError, ConfigError) as problem:
        raise SandboxError(
            f"{file}: expected the machines of a site, got {problem}; remove it, and its first ones begin anew"
        ) from problem


def change_fleet(file: Path, change: Callable[[Fleet], Fleet]) -> Fleet:
    """Change what is remembered, one process after the other; gives what it is now."""
    with file.with_name("machines.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fleet = change(read_fleet(file))
        write_private(file, json.dumps(encode(fleet)))
    return fleet


def begin_fleet(file: Path, site: SiteSettings) -> None:
    """Remember the first machines, where nothing is remembered yet."""
    if not file.exists():
        write_private(file, json.dumps(encode(first_fleet(site, datetime.now(UTC)))))


def nodes_now(state: Path, site: SiteSettings) -> Sequence[NodeSettings]:
    """The nodes of a site whose machines are on."""
    file, now = fleet_file(state, site), datetime.now(UTC)
    if site.machines_port is None or not file.exists():
        return site.nodes
    first = site.nodes[0]
    return [
        replace(first, name=machine.name, gpus=machine.gpus, port=machine.port)
        for machine in read_fleet(file).machines
        if machine.boots_at <= now
    ]
