"""Reading job files: the job that one declares, and what each says of its image, whatever else is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spillway.config.directories import require_jobs
from spillway.config.load import DATASETS
from spillway.errors import ConfigError, InvalidImage, UnknownName
from spillway.images.reference import ImageReference
from spillway.model import Dataset, DatasetUse, ImageUse, JobSpec, Tier

# What reads and checks the files takes a tenth of a second to load, so only what needs it loads it.


def load_image_uses(directory: Path, datasets: Mapping[str, Dataset]) -> tuple[ImageUse, ...]:
    """Which image each job file of the directory uses and for data of which tier.

    A file counts with what it says of these two, whatever else is wrong with it: one with a mistake must neither hide a
    core image nor keep the images of all other jobs at home. A tier that it does not say clearly is core.

    Raises:
        ConfigError: there is no such directory, or a file in it cannot be read at all, so that nobody knows its image.
    """
    require_jobs(directory)
    uses = (_image_use(path, datasets) for path in sorted(directory.glob("*.yaml")))
    return tuple(use for use in uses if use is not None)


def _image_use(path: Path, datasets: Mapping[str, Dataset]) -> ImageUse | None:
    """None where the file names no image that there could be."""
    from spillway.config.document import mapping

    written = mapping(path)
    image, own = written.get("image"), written.get("image_tier")
    try:
        ImageReference.parse(str(image))
    except InvalidImage:
        return None
    entries = _entries(written)
    if own is not None or entries == []:
        said = next((tier for tier in Tier if tier == (own or written.get("tier"))), None)
    else:
        said = _tier_of_data(entries, datasets)
    return ImageUse(
        job=str(written.get("name", path.stem)),
        image=str(image),
        tier=said or Tier.CORE,
        dataset=_only_whole(entries),
        unclear_in=path.name if said is None else None,
        mistake=_mistake(path, entries, datasets) if said is None and (own is not None or entries != []) else None,
    )


def _mistake(path: Path, entries: Sequence[Mapping[str, Any]] | None, datasets: Mapping[str, Dataset]) -> str | None:
    """Which dataset nobody declares; where they all are, why there is no job of the file."""
    for entry in entries or ():
        if (name := str(entry.get("name"))) not in datasets:
            return str(UnknownName("dataset", name, datasets))
    try:
        load_job(path, datasets)
    except ConfigError as problem:
        return str(problem).removeprefix(f"{path.name}: ")
    return None


def _entries(written: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """What the file says that its job reads, unchecked; None where that is no list of datasets."""
    if written.get("datasets") is None:
        return [] if written.get("dataset") is None else [{"name": written["dataset"], "part": written.get("part")}]
    listed = written["datasets"]
    if not isinstance(listed, list) or written.get("dataset") is not None:
        return None
    return [entry if isinstance(entry, Mapping) else {"name": entry} for entry in listed]


def _only_whole(entries: Sequence[Mapping[str, Any]] | None) -> str | None:
    """The name of the only dataset of a job that reads all of it."""
    names = [str(entry.get("name")) for entry in entries or () if entry.get("part") != Tier.PUBLIC]
    return names[0] if entries is not None and len(entries) == len(names) == 1 else None


def _tier_of_data(entries: Sequence[Mapping[str, Any]] | None, datasets: Mapping[str, Dataset]) -> Tier | None:
    """The strictest tier of what a file reads, as far as it says that clearly; None where it does not."""
    found = set()
    for entry in entries or ():
        known, part = datasets.get(str(entry.get("name"))), entry.get("part")
        if known is None or part not in (None, Tier.PUBLIC.value) or (part and Tier.PUBLIC not in known.tiers):
            return None
        found.add(DatasetUse(name=known.name, part=Tier.PUBLIC if part else None).tier_of(known))
    return None if not found else Tier.CORE if Tier.CORE in found else Tier.PUBLIC


def load_job(path: Path, datasets: Mapping[str, Dataset]) -> JobSpec:
    """The job that the file declares; its tier is the strictest of its data, core where it has neither data nor tier.

    Raises:
        ConfigError: the file is missing or wrong, or a dataset is not declared.
    """
    from spillway.config.document import read
    from spillway.config.job import JobFile

    declared = read(path, JobFile)
    if not declared.uses:
        return declared.job(declared.tier or Tier.CORE)
    for index, use in enumerate(declared.uses):
        entry = f"datasets[{index}]" if declared.datasets else ""
        if use.name not in datasets:
            raise ConfigError(path.name, entry or "dataset", str(UnknownName("dataset", use.name, datasets)))
        if use.part is not None and use.part not in datasets[use.name].tiers:
            problem = f"the dataset '{use.name}' has no {use.part} part: no rule in {DATASETS} makes an object public"
            raise ConfigError(
                path.name, f"{entry}.part" if entry else "part", f"{problem}; add one there, or leave this out"
            )
    strictest = _strictest(declared.uses, datasets)
    tier = strictest.tier_of(datasets[strictest.name])
    if declared.tier not in {None, tier}:
        what = "the dataset" if strictest.part is None else f"the {strictest.part} part of the dataset"
        problem = f"{what} '{strictest.name}' is of tier '{tier}' in {DATASETS}, got '{declared.tier}'"
        raise ConfigError(path.name, "tier", f"{problem}; leave the key out")
    return declared.job(tier)


def _strictest(uses: Sequence[DatasetUse], datasets: Mapping[str, Dataset]) -> DatasetUse:
    """What of the job's data decides the tier: the first that is core, if any is."""
    return next((use for use in uses if use.tier_of(datasets[use.name]) is Tier.CORE), uses[0])
