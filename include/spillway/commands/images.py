"""``images``: mirror images from their home to other sites."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from spillway.codec import encode
from spillway.commands.console import Console
from spillway.commands.installation import Installation, cluster
from spillway.commands.parsing import Parser, command, delete_up_to, dry_run, group
from spillway.errors import SpillwayError, UnknownName
from spillway.errors.counts import counted
from spillway.images.mirror import named_digest
from spillway.images.reference import ImageReference
from spillway.images.report import RepositoryReport, TagFate, require_complete
from spillway.model import DELETE_SHARE_MAX, Tier
from spillway.runs.distribution import Route, image_routes, repository_routes
from spillway.runs.moving_images import copy_image, copy_repository
from spillway.runs.residency import image_users
from spillway.runs.services import Say, Services
from spillway.sync.progress import OnProgress, Paced

QUIET = (TagFate.UNCHANGED, TagFate.SKIPPED)
"""What becomes of most tags at most times; it is counted, not listed."""


def register(parser: Parser) -> None:
    """Add the command of images."""
    subject = group(parser)
    text = "mirror what job files and images.yaml name; or one image, or one repository of images.yaml"
    parser = command(subject, "sync", _sync, text, json=True)
    parser.add_argument(
        "what",
        metavar="IMAGE",
        nargs="?",
        help="repository:tag or repository@digest as job files name it, or a repository of images.yaml",
    )
    parser.add_argument(
        "site", metavar="SITE", nargs="?", help="the cluster that is to have it (default: each that may)"
    )
    parser.add_argument(
        "--tier", type=Tier, choices=tuple(Tier), default=Tier.CORE, help="of an image that no job file names"
    )
    parser.add_argument(
        "--verify", action="store_true", help="look below every tag of a repository for what its site has lost"
    )
    delete_up_to(
        parser,
        f"where images.yaml says delete: up to so many percent of a site's tags, instead of {DELETE_SHARE_MAX:.0%}%",
    )
    dry_run(parser)


def _sync(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    if options.site is not None and cluster(services, options.site).name == services.image_home:
        if options.json:
            console.data([])
        else:
            console.say(f"image {options.what} is at home at {options.site}: nothing to do")
        return 0
    say: Say = (lambda text: None) if options.json else console.say
    answers: list[dict[str, Any]] = []
    failures: list[str] = []
    routes = _routes(services, options)
    for done, route in enumerate(routes):
        answer = {"name": route.name, "site": route.site, "problem": None}
        answers.append(answer)
        so_far = f"{done} of {len(routes)} were mirrored before it" if done else ""
        with console.following(f"{route.name} to {route.site}", partial(str, so_far)) as (_, show):
            paced = None if options.json else Paced(show, every_seconds=console.pace_seconds)
            try:
                _mirror(services, route, options, say, answer.update, paced)
            except SpillwayError as problem:
                answer["problem"] = str(problem)
                failures.append(str(problem))
    if options.json:
        console.data(answers)
    elif not answers:
        console.say("nothing is declared that another site may hold")
    for failure in failures:
        console.complain(failure)
    return 1 if failures else 0


def _routes(services: Services, options: argparse.Namespace) -> tuple[Route, ...]:
    """What is asked for; everything that is declared where nothing is."""
    if options.what is None:
        return (*image_routes(services), *repository_routes(services))
    declared = services.configuration.repositories.get(options.what)
    if declared is None and not {":", "@"}.intersection(options.what):
        raise UnknownName("repository of images.yaml", options.what, services.configuration.repositories)
    tier = _tier(services, options) if declared is None else declared.tier
    if options.site is not None:
        return (Route(name=options.what, site=options.site, tier=tier),)
    if declared is not None:
        return tuple(route for route in repository_routes(services) if route.name == declared.repository)
    others = {name: one for name, one in services.configuration.clusters.items() if name != services.image_home}
    # Where none may hold it, each says so.
    allowed = {name: one for name, one in others.items() if one.may_hold(tier)} or others
    return tuple(Route(name=options.what, site=name, tier=tier) for name in sorted(allowed))


def _tier(services: Services, options: argparse.Namespace) -> Tier:
    """Of an image; of one that does not exist none is asked."""
    reference = ImageReference.parse(options.what)
    named_digest(services.site(services.image_home).registry, reference.repository, reference.reference)
    used = any(image_users(services, [options.what], services.image_uses()).values())
    return Tier.PUBLIC if used else options.tier


def _mirror(
    services: Services,
    route: Route,
    options: argparse.Namespace,
    say: Say,
    tell: Callable[[Any], None],
    on_progress: OnProgress | None,
) -> None:
    declared = services.configuration.repositories.get(route.name)
    if declared is not None:
        whole = copy_repository(
            services,
            declared,
            route.site,
            verify=options.verify,
            delete_share_max=options.delete_up_to or DELETE_SHARE_MAX,
            dry_run=options.dry_run,
            on_progress=on_progress,
        )
        tell(encode(whole))
        _show(whole, route, say)
        return require_complete(whole)
    reference = ImageReference.parse(route.name)
    report = copy_image(
        services,
        reference.repository,
        reference.reference,
        route.site,
        tier=route.tier,
        dry_run=options.dry_run,
        on_progress=on_progress,
    )
    tell(encode(report))
    if options.dry_run:
        say(f"would mirror {route.name} to {route.site} ({report.digest}): {counted(report.bytes_copied, 'byte')}")
    else:
        moved = counted(report.bytes_copied, "byte")
        say(f"image {report.repository}@{report.digest} is at {route.site}: {moved} moved")
    return None


def _show(report: RepositoryReport, route: Route, say: Say) -> None:
    would = "would be " if report.dry_run else ""
    for outcome in report.outcomes:
        if outcome.fate not in QUIET:
            say(f"  {outcome.tag} {would}{outcome.fate}, {counted(outcome.bytes_copied, 'byte')}: {outcome.reason}")
    counts = ", ".join(f"{report.count(fate)} {fate}" for fate in TagFate if report.count(fate))
    copied = counted(report.bytes_copied, "byte")
    say(f"repository {route.name} to {route.site}: {would}{counts or 'no tags'}; {copied}")
