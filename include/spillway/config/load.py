"""Reading the declared files of an installation, and a job file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from spillway.errors import ConfigError, UnknownName
from spillway.model import (
    Cluster,
    Dataset,
    MirroredRepository,
    NoticeTarget,
    PlacementPolicy,
    Retention,
    RunPolicy,
    SampleRetention,
    SiteKind,
    StoreRef,
    Tier,
    TierRule,
)
from spillway.scaling.presets import DEFAULT
from spillway.scaling.rules import ScalingRules
from spillway.windows import Iteration

if TYPE_CHECKING:
    from spillway.config.money import BudgetsFile
    from spillway.config.policy import PolicyFile

# What reads and checks the files takes a tenth of a second to load, so only what needs it loads it.

CLUSTERS, DATASETS, IMAGES, POLICY = "clusters.yaml", "datasets.yaml", "images.yaml", "policy.yaml"
BUDGETS = "budgets.yaml"
SHADOW = "shadow.yaml"
"""The policy that decides beside the one in force and changes nothing, where there is one."""

NOT_SAID = replace(DEFAULT, forecast=None, waiting=None, returning=None)
"""How pools are scaled where ``policy.yaml`` has no block of it: by the queue alone; no job waits or goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What an installation declares; clusters, datasets and mirrored repositories are by name.

    ``retention`` is None where every checkpoint is kept.
    """

    clusters: Mapping[str, Cluster]
    datasets: Mapping[str, Dataset]
    policy: PlacementPolicy
    runs: RunPolicy
    repositories: Mapping[str, MirroredRepository] = field(default_factory=dict)
    retention: Retention | None = None
    notices: tuple[NoticeTarget, ...] = ()
    iteration: Iteration = field(default_factory=Iteration)
    scaling: ScalingRules = NOT_SAID
    keep_samples: SampleRetention = field(default_factory=SampleRetention)

    @property
    def image_home(self) -> str:
        """The site whose registry people push to, from which others are mirrored: the first on-premises one."""
        return next((c.name for c in self.clusters.values() if c.kind is SiteKind.ONPREM), next(iter(self.clusters)))


def load(directory: Path) -> Configuration:
    """The configuration of ``clusters.yaml``, ``datasets.yaml``, ``policy.yaml`` and, if there, the two others.

    Raises:
        ConfigError: a file is missing or wrong, or names something that another one does not declare.
    """
    from spillway.config.clusters import ClustersFile
    from spillway.config.datasets import DatasetsFile
    from spillway.config.document import read
    from spillway.config.policy import PolicyFile

    if not directory.is_dir():
        raise ConfigError(str(directory), "", "no such directory; SPILLWAY_CONFIG_DIR names the one with clusters.yaml")
    clusters = [entry.cluster() for entry in read(directory / CLUSTERS, ClustersFile).clusters]
    by_name = {cluster.name: cluster for cluster in clusters}
    for index, cluster in enumerate(clusters):
        _check_cache(cluster.object_store, clusters, f"clusters[{index}].object_store")
    datasets = with_neighbours([entry.dataset() for entry in read(directory / DATASETS, DatasetsFile).datasets])
    for index, dataset in enumerate(datasets):
        _check_home(dataset, by_name, f"datasets[{index}].home")
        _check_apart(dataset, datasets[:index], f"datasets[{index}].prefix")
        _check_remote(dataset, datasets, f"datasets[{index}].remote_read")
        _check_name(dataset, datasets, f"datasets[{index}].name")
    policy = read(directory / POLICY, PolicyFile)
    repositories = _repositories(directory / IMAGES, by_name)
    retention = policy.checkpoints.retention
    placement, scaling = _rules(policy, POLICY, by_name)
    money = _budgets(directory / BUDGETS, placement.quotas)
    return Configuration(
        clusters=by_name,
        datasets={dataset.name: dataset for dataset in datasets},
        policy=placement if money is None else replace(placement, budgets=money.limits(), time_zone=money.time_zone),
        runs=policy.runs.policy(),
        repositories={mirrored.repository: mirrored for mirrored in repositories},
        retention=None if retention is None else retention.retention(),
        notices=() if money is None else tuple(target for entry in money.notices for target in entry.targets()),
        iteration=policy.iteration.iteration(),
        scaling=scaling,
        keep_samples=policy.samples.retention(),
    )


def load_iteration(directory: Path) -> Iteration:
    """When the monthly iteration is; of all the files only ``policy.yaml`` is read.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    from spillway.config.document import read
    from spillway.config.policy import PolicyFile

    return read(directory / POLICY, PolicyFile).iteration.iteration()


def load_candidate(file: Path, clusters: Mapping[str, Cluster]) -> tuple[PlacementPolicy, ScalingRules]:
    """How another ``policy.yaml`` than the one in force places jobs and scales pools; budgets are not in such a file.

    Raises:
        ConfigError: the file is missing or wrong, or names something that is not declared.
    """
    from spillway.config.document import read
    from spillway.config.policy import PolicyFile

    return _rules(read(file, PolicyFile), file.name, clusters)


def _rules(policy: PolicyFile, file: str, clusters: Mapping[str, Cluster]) -> tuple[PlacementPolicy, ScalingRules]:
    """How jobs are placed and pools scaled by a policy file of that name."""
    placement = policy.placement.policy()
    _check_access(placement, file, clusters)
    scaling = NOT_SAID if policy.scaling is None else policy.scaling.rules(policy.iteration.iteration())
    _check_window(scaling, file, clusters)
    return replace(placement, waiting=scaling.waiting), scaling


def _check_access(policy: PlacementPolicy, file: str, clusters: Mapping[str, Cluster]) -> None:
    for department, access in (policy.cloud_access or {}).items():
        path = f"placement.cloud_access.{department}"
        if department not in policy.quotas:
            raise ConfigError(file, path, str(UnknownName("department", department, policy.quotas)))
        for name in sorted(access.clusters or ()):
            if name not in clusters:
                raise ConfigError(file, f"{path}.clusters", str(UnknownName("cluster", name, clusters)))


def _check_window(rules: ScalingRules, file: str, clusters: Mapping[str, Cluster]) -> None:
    """The pool of the window's nodes is one that is scaled."""
    if rules.window is None or rules.window.place is None:
        return
    scaled = [f"{c.name}/{pool.name}" for c in clusters.values() for pool in c.pools if pool.scaled_by is not None]
    named = "/".join(rules.window.place)
    if named not in scaled:
        problem = f"{UnknownName('pool', named, scaled)} (those that declare scaled_by in {CLUSTERS})"
        raise ConfigError(file, "scaling.window.pool", problem)


def _budgets(file: Path, departments: Collection[str]) -> BudgetsFile | None:
    """What ``budgets.yaml`` declares; None without that file, when nothing is limited and nobody told."""
    from spillway.config.document import read
    from spillway.config.money import BudgetsFile

    if not file.exists():
        return None
    declared = read(file, BudgetsFile)
    named = [(f"budgets[{index}].department", budget.department) for index, budget in enumerate(declared.budgets)]
    for index, target in enumerate(declared.notices):
        named += [(f"notices[{index}].departments[{position}]", d) for position, d in enumerate(target.departments)]
    for path, department in named:
        if department not in departments:
            unknown = UnknownName("department", department, departments)
            raise ConfigError(file.name, path, f"{unknown} ({POLICY} declares their quotas)")
    return declared


def _repositories(file: Path, clusters: Mapping[str, Cluster]) -> list[MirroredRepository]:
    """What ``images.yaml`` declares; an installation that mirrors the images of its jobs only needs none."""
    from spillway.config.document import read
    from spillway.config.schema import ImagesFile

    if not file.exists():
        return []
    declared = [entry.mirrored() for entry in read(file, ImagesFile).images]
    for index, mirrored in enumerate(declared):
        for position, site in enumerate(mirrored.sites):
            path = f"images[{index}].sites[{position}]"
            if site not in clusters:
                raise ConfigError(file.name, path, str(UnknownName("cluster", site, clusters)))
            if not clusters[site].may_hold(mirrored.tier):
                raise ConfigError(
                    file.name,
                    path,
                    f"the repository '{mirrored.repository}' is of tier '{mirrored.tier}', "
                    f"which the residency of cluster '{site}' in {CLUSTERS} does not allow",
                )
    return declared


def with_neighbours(datasets: Sequence[Dataset]) -> list[Dataset]:
    """The datasets, each with what others say of objects that it has too: the narrower prefix decides, whoever's."""

    def shared(one: Dataset) -> Iterator[TierRule]:
        for other in datasets:
            if other is not one:
                rules = (TierRule(prefix=other.prefix, tier=other.tier), *other.rules)
                yield from (rule for rule in rules if rule.prefix.startswith(one.prefix))

    return [replace(dataset, rules=(*dataset.rules, *shared(dataset))) for dataset in datasets]


def _check_cache(store: StoreRef, clusters: Sequence[Cluster], path: str) -> None:
    """A cache deletes what it has no room for, and is purged: nothing else may lie in its bucket, nor may whoever keeps
    core data there reach anything else.
    """
    for other in clusters:
        theirs = other.object_store
        same = store.cache_bucket in {theirs.dataset_bucket, theirs.checkpoint_bucket}
        if same and store.connection == theirs.connection:
            problem = f"the bucket '{store.cache_bucket}' has the datasets or the checkpoints of cluster '{other.name}'"
            fix = "name one that has nothing else, or leave the key out"
            raise ConfigError(CLUSTERS, f"{path}.cache_bucket", f"{problem}; {fix}")
    if (store.cache_bucket is None) != (store.cache_connection is None):
        absent, there = (
            ("cache_connection", "cache_bucket") if store.cache_bucket else ("cache_bucket", "cache_connection")
        )
        problem = f"expected it beside {there}: a bucket, and an identity for pods that reaches that bucket alone"
        raise ConfigError(CLUSTERS, f"{path}.{absent}", problem)


def _check_home(dataset: Dataset, clusters: Mapping[str, Cluster], path: str) -> None:
    if dataset.home not in clusters:
        raise ConfigError(DATASETS, path, str(UnknownName("cluster", dataset.home, clusters)))
    if not clusters[dataset.home].may_hold(dataset.strictest):
        raise ConfigError(
            DATASETS,
            path,
            f"the dataset '{dataset.name}' is of tier '{dataset.strictest}', "
            f"which the residency of cluster '{dataset.home}' in {CLUSTERS} does not allow",
        )


def _check_apart(dataset: Dataset, others: Sequence[Dataset], path: str) -> None:
    """A copy keeps its keys: below the prefix of another home's dataset it would overwrite that, and leave with it."""
    for other in others:
        overlap = dataset.prefix.startswith(other.prefix) or other.prefix.startswith(dataset.prefix)
        if overlap and other.home != dataset.home:
            raise ConfigError(
                DATASETS,
                path,
                f"the dataset '{dataset.name}' (home '{dataset.home}', prefix '{dataset.prefix}') and the dataset "
                f"'{other.name}' (home '{other.home}', prefix '{other.prefix}') overlap, so that a copy of one would "
                "become part of the other; move one below a prefix of its own, or give both the same home",
            )


def _check_name(dataset: Dataset, others: Sequence[Dataset], path: str) -> None:
    """A part of a dataset is recorded below a name of its own."""
    for other in others:
        if dataset.name == f"{other.name}@{Tier.PUBLIC}":
            problem = f"'{dataset.name}' is how the public part of the dataset '{other.name}' is called"
            raise ConfigError(DATASETS, path, f"{problem}; give it another name")


def _check_remote(dataset: Dataset, others: Sequence[Dataset], path: str) -> None:
    """Who may read a prefix reads all that is below it, whoever declares it."""
    if dataset.remote_read is None:
        if dataset.cache is not None:
            problem = f"the dataset '{dataset.name}' is read at no other site, so nothing of it can be kept there"
            raise ConfigError(DATASETS, path, f"{problem}; declare remote_read as well, or leave the cache out")
        return
    what = f"the dataset '{dataset.name}'"
    if dataset.strictest is not Tier.CORE:
        problem = f"{what} is public and is copied to other sites; leave this out, it is for core data"
        raise ConfigError(DATASETS, path, problem)
    for other in others:
        inside = other is not dataset and other.prefix.startswith(dataset.prefix)
        if inside and other.strictest is Tier.CORE and other.remote_read is None:
            problem = f"{what} holds the core dataset '{other.name}' (prefix '{other.prefix}'), which may not be read"
            raise ConfigError(DATASETS, path, f"{problem} from other sites; let that be read too, or move it out")
