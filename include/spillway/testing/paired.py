"""Two programs that do the same work, measured in turns: ``NAME ours/peer RATIO goal <=X ok|short``.

What else the machine does hits both of a pair alike, so the ratio of a pair tells more than either time; a figure is
the median over the pairs. The interpreter's start counts: ours is a process, as the peer is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

ROUNDS = 3

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
"""Less than 1 tries the figures out with less work; such a line says so and is no figure."""

# A small process in between: a child's peak memory begins with that of the process it was forked from.
_METER = """
import json, os, sys, time
began = time.perf_counter()
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(child, 0)
seconds = time.perf_counter() - began
figures = [os.waitstatus_to_exitcode(status), seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024]
os.write(int(sys.argv[1]), json.dumps(figures).encode())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one run took; the memory is that of the largest process, with the meter's own 9 MiB as the least."""

    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A program and its whole environment; ``before`` prepares a run and is not measured."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None


def spillway_command(*words: str) -> tuple[str, ...]:
    """``python -m spillway`` as a person calls it."""
    return (sys.executable, "-m", "spillway", *words)


def measure(contender: Contender) -> Usage:
    """Run it once, to its end.

    Raises:
        AssertionError: it failed; with the end of what it said.
    """
    contender.before()
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as figures:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _METER, str(writer), *contender.argv],
                env=dict(contender.environment),
                pass_fds=[writer],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            os.close(writer)
        code, wall, cpu, rss = json.loads(figures.read() or b'["no exit code", 0, 0, 0]')
    assert code == 0, f"{contender.name} ended with {code}: {(done.stdout + done.stderr)[-2000:]}"
    contender.after()
    return Usage(wall_seconds=wall, cpu_seconds=cpu, peak_rss_bytes=rss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The runs of both, round by round."""

    name: str
    ours: Sequence[Usage]
    peer: Sequence[Usage]

    def wall_ratio(self) -> float:
        return median(a.wall_seconds / b.wall_seconds for a, b in zip(self.ours, self.peer, strict=True))

    def cpu_ratio(self) -> float:
        return median(a.cpu_seconds / b.cpu_seconds for a, b in zip(self.ours, self.peer, strict=True))

    def report(self, *, wall: float, cpu: float | None = None, rss_mib: float | None = None) -> None:
        """Print a line for each goal: ratios of wall and CPU seconds, and our peak memory in MiB."""
        walls = [[usage.wall_seconds for usage in side] for side in (self.ours, self.peer)]
        cpus = [[usage.cpu_seconds for usage in side] for side in (self.ours, self.peer)]
        line(f"{self.name}_wall ours/peer", self.wall_ratio(), wall, _seconds(walls))
        if cpu is not None:
            line(f"{self.name}_cpu ours/peer", self.cpu_ratio(), cpu, _seconds(cpus))
        if rss_mib is not None:
            ours, peer = (max(usage.peak_rss_bytes for usage in side) / 2**20 for side in (self.ours, self.peer))
            line(f"{self.name}_rss_mib ours", ours, rss_mib, f"peer {peer:.0f}")


def paired(name: str, ours: Contender, peer: Contender, *, rounds: int = ROUNDS) -> Pairs:
    """Measure both in each round, beginning with the other one each time."""
    found: dict[str, list[Usage]] = {"ours": [], "peer": []}
    sides = [("ours", ours), ("peer", peer)]
    for _ in range(rounds):
        for side, contender in sides:
            found[side].append(measure(contender))
        sides.reverse()
    return Pairs(name=name, ours=found["ours"], peer=found["peer"])


def scaled(count: int) -> int:
    """So much work, or the part of it that is asked for."""
    return max(1, int(count * SCALE))


def line(name: str, value: float, goal: float, detail: str) -> None:
    """Print one figure against its goal."""
    name += "" if SCALE == 1 else f" (of {SCALE:g})"
    print(f"\n{name} {value:.3f} goal <={goal:g} {'ok' if value <= goal else 'short'} ({detail})", flush=True)


def _seconds(sides: Sequence[Sequence[float]]) -> str:
    ours, peer = (" ".join(f"{seconds:.2f}" for seconds in side) for side in sides)
    return f"seconds ours {ours}; peer {peer}"
