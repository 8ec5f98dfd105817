"""What most public traces do not tell: a priority, a department and a GPU type for each job, by a seeded rule."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import accumulate
from types import MappingProxyType
from typing import TypeVar

from spillway.model import Priority
from spillway.model.demand import JobRecord

Value = TypeVar("Value")
PRIORITY_SHARES: Mapping[Priority, float] = MappingProxyType({
    Priority.PRODUCTION_CORE: 0.05,
    Priority.PRODUCTION_REGULAR: 0.15,
    Priority.CUSTOMER_SERVICE: 0.10,
    Priority.RESEARCH: 0.45,
    Priority.EXPLORATION: 0.25,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The part of the jobs that gets each value, of 1 in all; what has no shares stays as the trace tells it."""

    priorities: Mapping[Priority, float] = field(default_factory=lambda: PRIORITY_SHARES)
    departments: Mapping[str, float] = field(default_factory=dict)
    gpu_types: Mapping[str, float] = field(default_factory=dict)


def assigned(jobs: Iterable[JobRecord], shares: Shares, *, seed: int) -> tuple[JobRecord, ...]:
    """The jobs, each with what its trace did not tell.

    What a job gets depends on its name and the seed alone: it is the same in every part of a trace.
    """
    priorities, departments = _drawn(shares.priorities), _drawn(shares.departments)
    gpu_types = _drawn(shares.gpu_types)
    found = []
    for job in jobs:
        draws = blake2b(f"{seed}:{job.job}".encode(), digest_size=12).digest()
        first, second, third = (int.from_bytes(draws[at : at + 4]) / (1 << 32) for at in (0, 4, 8))
        found.append(
            replace(
                job,
                priority=job.priority or priorities(first),
                department=job.department or departments(second),
                gpu_type=job.gpu_type or gpu_types(third),
            )
        )
    return tuple(found)


def _drawn(shares: Mapping[Value, float]) -> Callable[[float], Value | None]:
    """What a number in [0, 1) draws from the shares; None where there are none."""
    values, bounds = list(shares), list(accumulate(shares.values()))
    return lambda draw: values[min(bisect(bounds, draw * bounds[-1]), len(values) - 1)] if values else None
