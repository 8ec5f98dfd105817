"""``sync``: bring a dataset to a site."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from spillway.commands.console import Console, OutputLost, printable
from spillway.commands.installation import Installation, cluster, dataset
from spillway.commands.parsing import Parser, carried_out, delete_up_to, dry_run
from spillway.errors.counts import counted
from spillway.model import DELETE_SHARE_MAX
from spillway.runs.moving_datasets import copy_dataset
from spillway.sync.progress import Paced
from spillway.sync.report import ObjectFate, ObjectOutcome, SyncReport, summary


def register(parser: Parser) -> None:
    """Add the words of the command."""
    carried_out(parser, _sync, json=True)
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("site", metavar="SITE", help="the cluster that is to have it")
    parser.add_argument(
        "--verify", action="store_true", help="list and compare both sides, whatever the record of the last sync says"
    )
    deletes = parser.add_mutually_exclusive_group()
    deletes.add_argument(
        "--delete",
        action="store_true",
        help=f"also delete what the source no longer has, up to {DELETE_SHARE_MAX:.0%}% of the site's objects",
    )
    delete_up_to(deletes, "as --delete, up to so many percent of the site's objects")
    parser.add_argument(
        "--outcomes", type=Path, metavar="FILE", help="write what became of every object, one JSON line each"
    )
    dry_run(parser)


def _sync(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    wanted, site = dataset(services, options.dataset), cluster(services, options.site).name
    if wanted.home == site:
        if options.json:
            console.data(summary(SyncReport.at_home(wanted.name, site, dry_run=options.dry_run)))
        else:
            console.say(f"dataset {wanted.name} is at home at {site}: nothing to do")
        return 0
    route = f"dataset {wanted.name} from {wanted.home} to {site}"
    paced = Paced(lambda line: None if options.json else show(line), every_seconds=console.pace_seconds)
    with console.following(route, paced.so_far) as (say, show), _lines(options.outcomes) as write:

        def tell(outcome: ObjectOutcome) -> None:
            write(outcome)
            if outcome.fate is not ObjectFate.UNCHANGED and not options.json:
                would = "would be " if options.dry_run else ""
                size = counted(outcome.size_bytes, "byte")
                say(f"  {printable(outcome.key)} {would}{outcome.fate}, {size}: {outcome.reason}")

        report = copy_dataset(
            services,
            wanted,
            site,
            delete=options.delete or options.delete_up_to is not None,
            delete_share_max=options.delete_up_to or DELETE_SHARE_MAX,
            verify=options.verify,
            dry_run=options.dry_run,
            on_outcome=tell,
            tell_unchanged=options.outcomes is not None,
            on_progress=paced,
        )
    if options.json:
        console.data(summary(report))
    else:
        console.say(f"{route}: {_done(report)}")
    return 0


def _done(report: SyncReport) -> str:
    moved = f"{counted(report.objects_copied, 'object')}, {counted(report.bytes_copied, 'byte')}"
    deleted = report.count(ObjectFate.DELETED)
    more = f"; deleted {deleted}" if deleted and not report.dry_run else f"; would delete {deleted}" if deleted else ""
    kept = f"; {report.objects_withheld} withheld" if report.objects_withheld else ""
    return f"{'would copy' if report.dry_run else 'copied'} {moved}; {report.objects_unchanged} unchanged{kept}{more}"


@contextmanager
def _lines(file: Path | None) -> Iterator[Callable[[ObjectOutcome], None]]:
    """Writes outcomes to the file, or nowhere.

    Raises:
        OutputLost: the file cannot be written.
    """
    if file is None:
        yield lambda outcome: None
        return
    with _writing(file):
        lines = file.open("w", encoding="utf-8")

    def write(outcome: ObjectOutcome) -> None:
        with _writing(file):
            lines.write(json.dumps(outcome._asdict(), ensure_ascii=False) + "\n")

    try:
        yield write
    finally:
        with _writing(file):
            lines.close()


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise OutputLost(problem, str(file)) from problem
