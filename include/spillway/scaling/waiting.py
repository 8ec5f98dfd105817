"""How long a job waits for on-premises before it buys: in proportion to what it costs, and within its deadline.

Long jobs hold most of the GPU-hours and lose least by a wait, so that they are the ones that wait for what is paid for
already; the many short ones are sent to the cloud at once. Source: Luo et al., Starburst: A Cost-aware Scheduler for
Hybrid Cloud, USENIX ATC 2024, 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from spillway.model import Ending, JobSpec, PendingJob, Schedule, WaitRules
from spillway.scaling.packing import FreeNodes

_HOUR = Decimal(timedelta(hours=1) // timedelta(microseconds=1))


def hold_until(job: JobSpec, since: datetime, rules: WaitRules, schedule: Schedule | None = None) -> datetime:
    """Until when the job buys nothing.

    A job that does not say how long it trains waits as everybody does. One with a deadline begins so early that it is
    done by then, with two starts.

    Args:
        since: when it was asked for.
    """
    wait = patience(job.gpus, job.expected_duration, rules)
    if schedule is None:
        return since + wait
    return min(since + wait, schedule.deadline - schedule.work_left - 2 * schedule.restart)


def patience(gpus: Decimal | int, expected: timedelta | None, rules: WaitRules) -> timedelta:
    """How long a job without a deadline buys nothing that is thought to train so long on so many GPUs."""
    if (
        expected is None
        or gpus < rules.from_gpus
        or gpus * _gpu_hours(gpus, expected) < rules.from_gpus * rules.from_gpu_hours
    ):
        return rules.everybody
    return max(rules.everybody, min(rules.longest, expected * float(rules.share)))


def beyond(
    queue: Sequence[PendingJob], endings: Sequence[Ending], now: datetime, within: timedelta
) -> Sequence[PendingJob]:
    """The jobs that on-premises will have no room for so soon, by what the runs there say of their end.

    A pod fits where one of as many GPUs or more ends; those that came first have the first choice. A run that is past
    its end says nothing any more.

    Args:
        endings: soonest first.
    """
    blocks: dict[tuple[str, str], FreeNodes] = {}
    for ending in endings:
        if ending.at > now + within:
            break
        if ending.at >= now:
            if ending.place not in blocks:
                blocks[ending.place] = FreeNodes(())
            blocks[ending.place].add(ending.gpus_per_node, ending.nodes)
    if not blocks:
        return queue
    return [job for job in sorted(queue, key=_turn) if not _has_room(job, blocks)]


def _has_room(job: PendingJob, blocks: Mapping[tuple[str, str], FreeNodes]) -> bool:
    for place in sorted(job.places & blocks.keys()):
        if blocks[place].fits(job.gpus_per_node, job.nodes):
            blocks[place].take(job.gpus_per_node, job.nodes)
            return True
    return False


def _turn(job: PendingJob) -> tuple[int, datetime, str]:
    return job.priority.level, job.since, job.run


def _gpu_hours(gpus: Decimal | int, lasting: timedelta) -> Decimal:
    return gpus * (lasting // timedelta(microseconds=1)) / _HOUR
