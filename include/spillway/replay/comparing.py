"""What a replay is asked for: clusters, policies and jobs, read and checked before anything runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from statistics import NormalDist

import numpy as np

from spillway.config.clusters import ClustersFile
from spillway.config.document import read
from spillway.config.load import NOT_SAID
from spillway.config.policy import PolicyFile
from spillway.errors import ConfigError, UnknownName
from spillway.errors.counts import counted
from spillway.model import Cluster, JobRecord, PlacementPolicy, QuotaShare, SiteKind
from spillway.replay.bounds import Bounds, fluid_bound, placement_bound
from spillway.replay.engine import Policy, replay
from spillway.replay.report import Comparison, compared
from spillway.replay.world import Conditions, World, counted_price
from spillway.scaling.presets import PRESETS

WHOLE = {"all": QuotaShare(onprem=Decimal(1), cloud=Decimal(1))}
"""Every job of a replay is of one department that may use everything: a trace does not tell who may what."""
WEIGHTS = {"qos": Decimal("0.7"), "cost": Decimal("0.15"), "affinity": Decimal("0.15")}
STANDARD = Conditions()
LONGEST_SAID = timedelta(days=3650)
"""No estimate with an error is longer: one of a wide spread would be longer than any moment there is."""
NO_SPOT = "no run is interrupted, as nothing is said of when there is spot (--conditions)"
_NORMAL = NormalDist()

Following = Callable[[str], AbstractContextManager[Callable[[str], None]]]
"""Shows that something goes on while it does; gives what tells how far it is."""


def policy_of(word: str, *, quotas: bool = False) -> Policy:
    """The policy of a file, or of a preset where the word is the name of one and of no file.

    Budgets are left out of it, and without ``quotas`` also those and rights to clouds; a preset has none of them.
    Rights of single DAGs are everybody's: a trace does not tell who asked.

    Raises:
        ConfigError: the file is wrong, or of another version.
        UnknownName: the word is neither.
    """
    file = Path(word)
    if not file.exists():
        if word in PRESETS:
            return Policy(name=word, placement=PlacementPolicy(weights=WEIGHTS, quotas=WHOLE), scaling=PRESETS[word])
        raise UnknownName("preset or policy file", word, PRESETS)
    written = read(file, PolicyFile)
    scaling = NOT_SAID if written.scaling is None else written.scaling.rules(written.iteration.iteration())
    placement = written.placement.policy()
    if not quotas:
        placement = replace(placement, quotas=WHOLE, cloud_access=None)
    elif placement.cloud_access is not None:
        rights = {department: replace(access, dags=()) for department, access in placement.cloud_access.items()}
        placement = replace(placement, cloud_access=rights)
    return Policy(name=file.stem, placement=placement, scaling=scaling)


def policies_of(words: Iterable[str], *, quotas: bool = False) -> tuple[Policy, ...]:
    """The policy of each word, once; files whose name another one has are called by their whole word.

    Raises:
        ConfigError, UnknownName: as ``policy_of``.
    """
    found = {word: policy_of(word, quotas=quotas) for word in words}
    names = Counter(policy.name for policy in found.values())
    return tuple(policy if names[policy.name] == 1 else replace(policy, name=word) for word, policy in found.items())


def check_windows(policies: Iterable[Policy], clusters: Sequence[Cluster]) -> None:
    """Find out whether there are the pools that windows of policies are about.

    Raises:
        ConfigError: there is none of that name in a cloud.
    """
    bought = [f"{one.name}/{pool.name}" for one in clusters if one.kind is SiteKind.CLOUD for pool in one.pools]
    for policy in policies:
        window = policy.scaling.window
        if window is not None and window.place is not None and (named := "/".join(window.place)) not in bought:
            raise ConfigError(f"policy {policy.name}", "scaling.window.pool", str(UnknownName("pool", named, bought)))


def clusters_of(file: Path, local_gpus: int | None = None) -> tuple[Cluster, ...]:
    """The clusters of a file, with so many GPUs in the first pool on-premises where that is said; other pools stay.

    Raises:
        ConfigError: the file is wrong, a cluster has no GPUs, or so many do not come in whole nodes.
    """
    clusters = tuple(entry.cluster() for entry in read(file, ClustersFile).clusters)
    for at, cluster in enumerate(clusters):
        if not any(pool.max_gpus for pool in cluster.pools):
            raise ConfigError(
                str(file),
                f"clusters[{at}].pools",
                f"cluster '{cluster.name}' has no GPUs, so no job runs there; leave it out",
            )
    if local_gpus is None:
        return clusters
    onprem = [at for at, cluster in enumerate(clusters) if cluster.kind is SiteKind.ONPREM]
    if not onprem:
        raise ConfigError(str(file), "clusters", "has no on-premises cluster for --local-gpus; leave that out")
    at = onprem[0]
    home = clusters[at]
    (first, *_) = (pool for pool in home.pools if pool.gpus_per_node)
    if local_gpus % first.gpus_per_node or local_gpus < first.gpus_per_node:
        each = counted(first.gpus_per_node, "GPU")
        said = f"nodes of pool '{first.name}' have {each}, and {local_gpus} are no whole nodes"
        raise ConfigError(str(file), f"clusters[{at}].pools", said)
    sized = replace(first, max_nodes=local_gpus // first.gpus_per_node)
    pools = tuple(sized if pool is first else pool for pool in home.pools)
    return (*clusters[:at], replace(home, pools=pools), *clusters[at + 1 :])


def estimated(jobs: Iterable[JobRecord], sigma: float, seed: int) -> tuple[JobRecord, ...]:
    """The jobs, of which each that tells no estimate is thought to train as long as it did, times a seeded error.

    Args:
        sigma: of the logarithm of the error; 0 for none.
    """
    found = []
    for job in jobs:
        if job.duration_estimate is None and job.duration is not None:
            draw = int.from_bytes(blake2b(f"{seed}:{job.job}:estimate".encode(), digest_size=7).digest())
            error = math.exp(sigma * _NORMAL.inv_cdf((draw + 0.5) / (1 << 56))) if sigma else 1.0
            said = min(job.duration.total_seconds() * error, LONGEST_SAID.total_seconds())
            job = replace(job, duration_estimate=timedelta(seconds=said))
        found.append(job)
    return tuple(found)


def replayable(records: Sequence[JobRecord]) -> tuple[tuple[JobRecord, ...], tuple[str, ...]]:
    """The jobs that tell how long they held their GPUs, and how many do not, in words, if any."""
    whole = tuple(job for job in records if job.duration is not None)
    left = len(records) - len(whole)
    told = f"{counted(left, 'job', form=',')} left out for want of how long the GPUs were held"
    return whole, (told,) if left else ()


def comparison(
    trace: str,
    jobs: Sequence[JobRecord],
    clusters: Sequence[Cluster],
    policies: Sequence[Policy],
    *,
    conditions: Conditions = STANDARD,
    seed: int = 1,
    measured: tuple[float, float] | None = None,
    placement: bool = True,
    notes: Sequence[str] = (),
    following: Following,
) -> Comparison:
    """The jobs under each of the policies, beside the least that any could pay.

    Args:
        jobs: by submission, at least one, each with a duration.
        placement: whether the bound is worked out that takes long.
    Raises:
        ConfigError: a policy is about a pool that there is not.
    """
    check_windows(policies, clusters)
    results = []
    for number, policy in enumerate(policies, 1):
        with following(f"replaying {policy.name} ({number} of {len(policies)})") as show:
            results.append(
                replay(
                    trace,
                    jobs,
                    clusters,
                    policy,
                    conditions=conditions,
                    seed=seed,
                    measured=measured,
                    progress=lambda ended, show=show: show(f"{ended:,} of {len(jobs):,} jobs"),  # type: ignore[misc]
                )
            )
    with following("working out the bounds"):
        bounds = bounds_of(jobs, clusters, measured=measured, placement=placement)
    return compared(
        results,
        bounds,
        local_gpus=local_gpus_of(clusters),
        cloud_price_per_gpu_hour=cloud_price_of(clusters, jobs),
        notes=(
            *notes,
            *(() if conditions.spot else (NO_SPOT,)),
            "budgets and where data may be are not replayed, nor are people's orders and nodes that fail",
            *_without_quota(jobs, policies),
        ),
    )


def _without_quota(jobs: Sequence[JobRecord], policies: Sequence[Policy]) -> Iterator[str]:
    """What there is to know of departments."""
    free = [policy.name for policy in policies if policy.placement.quotas == WHOLE]
    if free:
        yield f"without quotas and rights to clouds: {', '.join(free)}"
    for policy in policies:
        quotas = policy.placement.quotas
        others = sum(job.department not in quotas for job in jobs) if policy.name not in free else 0
        if others:
            told = counted(others, "job", form=",")
            yield f"{policy.name}: {told} of departments without a quota, taken as of '{next(iter(quotas))}'"


def bounds_of(
    jobs: Sequence[JobRecord],
    clusters: Sequence[Cluster],
    *,
    measured: tuple[float, float] | None = None,
    placement: bool = True,
) -> Bounds:
    """The least cloud GPU-hours of the trace; ``placement``: the bound that takes up to a minute, too."""
    epoch = jobs[0].submitted_at
    starts = np.array([(job.submitted_at - epoch).total_seconds() for job in jobs])
    lasting = np.array([job.duration.total_seconds() if job.duration else 0.0 for job in jobs])
    gpus = np.array([job.gpus for job in jobs], dtype=np.int64)
    measured = measured or (0.0, float((starts + lasting).max()) + 1.0)
    fluid = fluid_bound(
        starts=starts, ends=starts + lasting, gpus=gpus, local_gpus=local_gpus_of(clusters), measured=measured
    )
    if not placement:
        return Bounds(fluid=fluid)
    least = placement_bound(
        starts=starts, ends=starts + lasting, gpus=gpus, local_gpus=local_gpus_of(clusters), measured=measured
    )
    return Bounds(fluid=fluid, placement=least)


def local_gpus_of(clusters: Sequence[Cluster]) -> int:
    return sum(pool.max_gpus for cluster in clusters if cluster.kind is SiteKind.ONPREM for pool in cluster.pools)


def cloud_price_of(clusters: Sequence[Cluster], jobs: Sequence[JobRecord]) -> Decimal:
    """That of a GPU-hour of the cheapest cloud pool; 0 where there is no cloud."""
    return min(map(counted_price, World(clusters, jobs[0].submitted_at).cloud), default=Decimal(0))
