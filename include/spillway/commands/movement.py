"""``sync`` and ``images``: bring a dataset or an image to a site."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from spillway.commands.console import Console
from spillway.commands.installation import Installation, cluster, dataset
from spillway.commands.parsing import Subcommands, command, dry_run
from spillway.config import load_job
from spillway.errors import ConfigError, ResidencyRefused
from spillway.images.reference import ImageReference
from spillway.model import Dataset, Tier
from spillway.runs.planning import plan_image
from spillway.runs.staging import copy_dataset, copy_image
from spillway.sync.report import ObjectFate


def register(commands: Subcommands) -> None:
    """Add both commands."""
    parser = command(commands, "sync", _sync, "make a dataset whole at a site: only what is new or changed moves")
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("site", metavar="SITE", help="the cluster that is to have it")
    dry_run(parser)
    parser = command(commands, "images", _images, "mirror an image by digest to a site's registry")
    parser.add_argument("image", metavar="IMAGE", help="repository:tag or repository@digest, as job files name it")
    parser.add_argument("site", metavar="SITE", help="the cluster that is to have it")
    parser.add_argument(
        "--tier", type=Tier, choices=tuple(Tier), default=Tier.CORE, help="of an image that no job file names"
    )
    dry_run(parser)


def _sync(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    wanted, site = dataset(services, options.dataset), cluster(services, options.site).name
    if wanted.home == site:
        console.say(f"dataset {wanted.name} is at home at {site}: nothing to do")
        return 0
    with console.working(f"dataset {wanted.name} from {wanted.home} to {site}") as say:
        report = copy_dataset(services, wanted, site, dry_run=options.dry_run)
        for outcome in report.outcomes:
            if outcome.fate is not ObjectFate.UNCHANGED:
                would = "would be " if options.dry_run else ""
                say(f"  {outcome.key} {would}{outcome.fate}, {outcome.size_bytes} bytes: {outcome.reason}")
    moved = f"{report.objects_copied} objects, {report.bytes_copied} bytes"
    unchanged = f"{report.objects_unchanged} unchanged"
    done = f"would copy {moved}; {unchanged}" if options.dry_run else f"copied {moved}; {unchanged}"
    console.say(f"dataset {wanted.name} from {wanted.home} to {site}: {done}")
    return 0


def _images(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services, reference = installation.services(), ImageReference.parse(options.image)
    target, home = cluster(services, options.site), services.image_home
    if target.name == home:
        console.say(f"image {options.image} is at home at {home}: nothing to do")
        return 0
    tier = _image_tier(installation, options.image, options.tier, services.configuration.datasets)
    if tier not in target.residency:
        raise ResidencyRefused(f"image '{options.image}'", tier=tier, source=home, destination=target.name)
    with console.working(f"image {options.image} from {home} to {target.name}"):
        if options.dry_run:
            told = plan_image(services, options.image, target.name)
        else:
            report = copy_image(services, reference.repository, reference.reference, target.name, tier=tier)
            told = f"image {report.repository}@{report.digest} is at {target.name}: {report.bytes_copied} bytes moved"
    console.say(told)
    return 0


def _image_tier(installation: Installation, image: str, otherwise: Tier, datasets: Mapping[str, Dataset]) -> Tier:
    """Core where any job that uses the image is of core data; ``otherwise`` where no job file names it."""
    tiers = set()
    for file in sorted(installation.jobs_directory.glob("*.yaml")):
        try:
            job = load_job(file, datasets)
        except ConfigError:
            continue
        if job.image == image:
            tiers.add(job.tier)
    return otherwise if not tiers else Tier.CORE if Tier.CORE in tiers else Tier.PUBLIC
