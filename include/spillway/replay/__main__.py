"""``python -m spillway.replay TRACE``: recorded jobs through policies, over simulated clusters, and what each came to.

Exit code 0 when it is done, 1 with one message where it is not, 2 for words that make no sense.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from spillway.commands.console import Console, OutputLost, check_place, open_closed_streams
from spillway.commands.history import trace_options
from spillway.commands.parsing import Parser, WordsRefused, whole
from spillway.errors import SpillwayError
from spillway.errors.counts import counted

DAY = 86400.0
MOST_GPUS = 100_000
"""As many nodes as a pool of a file may have."""
MOST_DAYS = 36_525


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay a trace; gives the exit code."""
    console = Console()
    try:
        parser = _parser()
        options = parser.parse_words(sys.argv[1:] if arguments is None else arguments)
        if options.measure is not None and not 0 <= options.measure[0] < options.measure[1] <= MOST_DAYS:
            parser.error(f"--measure: expected two days from 0 to {MOST_DAYS}, the second one later")
        return _replay(console, options)
    except WordsRefused:
        raise
    except SpillwayError as problem:
        console.complain(str(problem))
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        console.complain(f"interrupted{console.cut_off}; nothing was written")
        return 130


def _parser() -> Parser:
    words = Parser(prog="python -m spillway.replay", description="Recorded jobs through policies, side by side.")
    words.add_argument("trace", metavar="TRACE", type=Path, help="plain CSV or a public format, gzip or not")
    words.add_argument(
        "--clusters", metavar="FILE", type=Path, required=True, help="a clusters.yaml: what is simulated"
    )
    words.add_argument(
        "--policy",
        nargs="+",
        default=["default", "thrifty", "s0", "s2"],
        metavar="POLICY",
        help="policy.yaml files, or names of presets (default: all presets)",
    )
    words.add_argument("--seed", type=whole(0), default=1, help="of boot times, estimates and spot (default: 1)")
    words.add_argument("--conditions", type=Path, metavar="FILE", help="a YAML file of when there is spot, and of data")
    words.add_argument(
        "--quotas", action="store_true", help="with quotas and rights to clouds of policy files, by department"
    )
    words.add_argument("--local-gpus", type=whole(1, MOST_GPUS), metavar="N", help="GPUs of the first on-premises pool")
    words.add_argument(
        "--estimates",
        type=_estimates,
        default=0.0,
        metavar="exact|none|SIGMA",
        help="what jobs say of how long they train where the trace does not tell: that, nothing, or that with an error "
        "whose logarithm has this spread (default: exact)",
    )
    words.add_argument(
        "--measure",
        nargs=2,
        type=float,
        metavar="DAY",
        help="figures of what is from so many days after the first job to so many alone (default: of all of it)",
    )
    words.add_argument("--without-bound", action="store_true", help="leave out the bound that takes long to work out")
    words.add_argument("--json", type=Path, metavar="FILE", help="write the comparison as JSON, too")
    words.add_argument("--html", type=Path, metavar="FILE", help="write it as one page with plots, too")
    trace_options(words)
    return words


def _estimates(text: str) -> float | None:
    if text in {"exact", "none"}:
        return 0.0 if text == "exact" else None
    try:
        sigma = float(text)
    except ValueError:
        sigma = -1.0
    if not 0 <= sigma <= 5:
        raise argparse.ArgumentTypeError(f"expected exact, none or a number from 0 to 5, got '{text}'")
    return sigma


def _replay(console: Console, options: argparse.Namespace) -> int:
    from spillway.replay.comparing import STANDARD, clusters_of, comparison, estimated, policies_of, replayable
    from spillway.replay.conditions import conditions_of
    from spillway.replay.fields import Clock
    from spillway.replay.page import page
    from spillway.replay.report import HEADER, as_json, rows
    from spillway.replay.trace import read_trace

    measured = None if options.measure is None else (options.measure[0] * DAY, options.measure[1] * DAY)
    for file in filter(None, (options.json, options.html)):
        check_place(file)
    policies = policies_of(options.policy, quotas=options.quotas)
    clusters, conditions = clusters_of(options.clusters, options.local_gpus), STANDARD
    if options.conditions is not None:
        clusters, conditions = conditions_of(options.conditions, clusters)
    clock = Clock(zone=options.zone) if options.epoch is None else Clock(zone=options.zone, epoch=options.epoch)
    trace = read_trace(options.trace, format=options.format, clock=clock, leave_out_bad_rows=options.leave_out_bad_rows)
    whole, untold = replayable(trace.jobs)
    notes = [
        *trace.notes,
        *(f"{counted(count, 'row', form=',')} left out: {why}" for why, count in trace.left_out.items()),
        *untold,
    ]
    if not whole:
        console.complain(f"{options.trace} has no job that tells how long it held its GPUs; nothing to replay")
        return 1
    lasts = max(job.submitted_at + (job.duration or timedelta(0)) for job in whole) - whole[0].submitted_at
    if lasts.days > MOST_DAYS:
        said = f"its jobs lie {lasts.days:,} days apart, the most are {MOST_DAYS:,}; mend the moments that are none"
        console.complain(f"{options.trace}: {said}")
        return 1
    if measured is not None:
        submitted = ((job.submitted_at - whole[0].submitted_at).total_seconds() for job in whole)
        if not any(measured[0] <= at < measured[1] for at in submitted):
            days = f"from day {options.measure[0]:g} to day {options.measure[1]:g}"
            console.complain(f"{options.trace}: no job was submitted {days} after the first one; nothing to measure")
            return 1
    jobs = whole if options.estimates is None else estimated(whole, options.estimates, options.seed)

    found = comparison(
        options.trace.name,
        jobs,
        clusters,
        policies,
        conditions=conditions,
        seed=options.seed,
        measured=measured,
        placement=not options.without_bound,
        notes=notes,
        following=console.counting,
    )
    console.table(HEADER, rows(found))
    for note in found.remarks():
        console.say(note)
    if options.json is not None:
        _write(console, options.json, json.dumps(as_json(found), indent=1))
    if options.html is not None:
        _write(console, options.html, page(found))
    return 0


def _write(console: Console, file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise OutputLost(problem, str(file)) from problem
    console.say(f"wrote {file}")


if __name__ == "__main__":
    open_closed_streams()
    sys.exit(main())
