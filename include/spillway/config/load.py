"""Reading the declared files of an installation, and a job file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spillway.config.document import read
from spillway.config.schema import ClustersFile, DatasetsFile, JobFile, PolicyFile
from spillway.errors import ConfigError, UnknownName
from spillway.model import Cluster, Dataset, JobSpec, PlacementPolicy, RunPolicy, Tier

CLUSTERS, DATASETS, POLICY = "clusters.yaml", "datasets.yaml", "policy.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What an installation declares; clusters and datasets are by name."""

    clusters: Mapping[str, Cluster]
    datasets: Mapping[str, Dataset]
    policy: PlacementPolicy
    runs: RunPolicy


def load(directory: Path) -> Configuration:
    """The configuration of ``clusters.yaml``, ``datasets.yaml`` and ``policy.yaml``.

    Raises:
        ConfigError: a file is missing or wrong, or names something that another one does not declare.
    """
    if not directory.is_dir():
        raise ConfigError(str(directory), "", "no such directory; SPILLWAY_CONFIG_DIR names the one with clusters.yaml")
    clusters = [entry.cluster() for entry in read(directory / CLUSTERS, ClustersFile).clusters]
    by_name = {cluster.name: cluster for cluster in clusters}
    datasets = [entry.dataset() for entry in read(directory / DATASETS, DatasetsFile).datasets]
    for index, dataset in enumerate(datasets):
        _check_home(dataset, by_name, f"datasets[{index}].home")
    policy = read(directory / POLICY, PolicyFile)
    return Configuration(
        clusters=by_name,
        datasets={dataset.name: dataset for dataset in datasets},
        policy=policy.placement.policy(),
        runs=policy.runs.policy(),
    )


def load_job(path: Path, datasets: Mapping[str, Dataset]) -> JobSpec:
    """The job that the file declares; its tier is its dataset's, and core where it has neither dataset nor tier.

    Raises:
        ConfigError: the file is missing or wrong, or its dataset is not declared.
    """
    declared = read(path, JobFile)
    if declared.dataset is None:
        return declared.job(declared.tier or Tier.CORE)
    if declared.dataset not in datasets:
        raise ConfigError(path.name, "dataset", str(UnknownName("dataset", declared.dataset, datasets)))
    tier = datasets[declared.dataset].tier
    if declared.tier not in {None, tier}:
        raise ConfigError(
            path.name,
            "tier",
            f"the dataset '{declared.dataset}' is of tier '{tier}' in {DATASETS}, got '{declared.tier}'; "
            "leave the key out",
        )
    return declared.job(tier)


def _check_home(dataset: Dataset, clusters: Mapping[str, Cluster], path: str) -> None:
    if dataset.home not in clusters:
        raise ConfigError(DATASETS, path, str(UnknownName("cluster", dataset.home, clusters)))
    if dataset.tier is Tier.CORE and Tier.CORE not in clusters[dataset.home].residency:
        raise ConfigError(
            DATASETS,
            path,
            f"the dataset '{dataset.name}' is of tier 'core', which the residency of cluster '{dataset.home}' "
            f"in {CLUSTERS} does not allow",
        )
