"""``python -m spillway.forecast backtest FILE``: which model forecasts a history of jobs best, and how well.

Exit code 0 when it is done, 1 with one message where it is not, 2 for words that make no sense, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from spillway.commands.console import Console, open_closed_streams
from spillway.commands.parsing import Parser, WordsRefused, days, group, lasting
from spillway.errors import SpillwayError
from spillway.errors.counts import counted
from spillway.forecast.backtest import METHODS, Score, backtest
from spillway.forecast.base import History
from spillway.forecast.choosing import fit
from spillway.forecast.series import HOUR, of_jobs
from spillway.replay.trace import read_trace

HEADER = (
    "horizon", "method", "WAPE %", "MASE", "pinball %", "coverage", "fit ms", "forecast ms", "origins", "models",
)  # fmt: skip

MINUTE = timedelta(minutes=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    console = Console(json="--json" in words)
    try:
        return _backtest(console, parser().parse_words(words))
    except WordsRefused as refusal:
        console.no_answer("WordsRefused", refusal.problem, fix="the command with --help tells its words")
        raise
    except SpillwayError as problem:
        console.complain(str(problem))
        console.no_answer(type(problem).__name__, problem.told, fix=problem.fix, retry_helps=problem.retry_helps)
        return 1
    except BrokenPipeError:  # whoever read the answer has seen enough
        return 1
    except KeyboardInterrupt:
        console.complain(f"interrupted{console.cut_off}")
        console.no_answer("Interrupted", "interrupted", fix="run it again", retry_helps=True)
        return 130


def parser() -> Parser:
    whole = Parser(prog="python -m spillway.forecast", description="How well demand can be forecast.")
    words = group(whole).add_parser("backtest", help="score every method on a history, at rolling origins")
    words.add_argument("file", type=Path, metavar="FILE", help="a trace, or what `spillway history export` wrote")
    words.add_argument("--days", type=days, default=28, help="go back so many days (default: 28)")
    words.add_argument(
        "--horizon",
        type=lasting,
        action="append",
        metavar="TIME",
        help="how far ahead, such as 30m, 1h, 24h; may be repeated (default: 1h and 24h)",
    )
    words.add_argument("--step", type=lasting, default=HOUR, metavar="TIME", help="of the series (default: 1h)")
    words.add_argument("--method", action="append", choices=METHODS, metavar="NAME", help="only this; may be repeated")
    words.add_argument("--time-zone", type=_zone, default="UTC", metavar="NAME", help="whose clocks people work by")
    words.add_argument("--leave-out-bad-rows", action="store_true", help="count rows at fault instead of refusing them")
    words.add_argument("--json", action="store_true", help="print JSON for a program")
    return whole


def _backtest(console: Console, options: argparse.Namespace) -> int:
    horizons = options.horizon or [HOUR, 24 * HOUR]
    if options.step % MINUTE:
        options.usage_error(f"--step: expected whole minutes, got {options.step}")
    if uneven := [horizon for horizon in horizons if horizon % options.step]:
        options.usage_error(f"a horizon is whole steps of {options.step}, got {uneven[0]}")
    trace = read_trace(options.file, leave_out_bad_rows=options.leave_out_bad_rows)
    history = of_jobs(trace.jobs, step=options.step, time_zone=options.time_zone)
    scores = [
        _scored(console, history, method, horizon // options.step, options)
        for horizon in horizons
        for method in options.method or METHODS
    ]
    chosen = [choice for horizon in horizons for choice in fit(history, horizon // options.step).choices[-1:]]
    if options.json:
        console.data({
            "file": str(options.file),
            "jobs": len(trace.jobs),
            "left_out": dict(trace.left_out),
            "starts_at": history.at(0).isoformat(),
            "ends_at": history.ends_at.isoformat(),
            "step_seconds": history.step.total_seconds(),
            "scores": [asdict(score) for score in scores],
            "now": [{"horizon": choice.step, "model": choice.name, "reason": choice.reason} for choice in chosen],
        })  # fmt: skip
        return 0
    console.say(
        f"{counted(len(trace.jobs), 'job')}, {counted(history.present, 'step')} of {history.step}, {_span(history)}"
    )
    console.table(HEADER, [_row(score, history) for score in scores])
    for choice in chosen:
        console.say(f"now, {choice.reason}: {choice.name}")
    return 0


def _scored(console: Console, history: History, method: str, horizon: int, options: argparse.Namespace) -> Score:
    """One line of the table; how far it is is shown meanwhile, of an answer for a program on no output."""
    lasting = timedelta(days=options.days)
    if options.json:
        return backtest(method, history, horizon=horizon, lasting=lasting, clock=time.perf_counter)
    text, shown = f"{method}, {history.ahead(horizon)}", time.monotonic()
    with console.counting(text) as show:

        def after(done: int, of: int) -> None:
            nonlocal shown
            if time.monotonic() - shown >= console.pace_seconds:
                shown = time.monotonic()
                show(f"{done} of {of} origins")

        return backtest(method, history, horizon=horizon, lasting=lasting, clock=time.perf_counter, after=after)


def _row(score: Score, history: History) -> tuple[object, ...]:
    return (
        history.ahead(score.horizon),
        score.method,
        f"{score.wape:.2f}",
        f"{score.mase:.2f}",
        f"{score.pinball:.2f}",
        f"{score.coverage:.2f}",
        f"{1e3 * score.fit_seconds:.0f}",
        f"{1e3 * score.forecast_seconds:.1f}",
        score.origins,
        ", ".join(f"{name} {count}" for name, count in score.models.items()) if len(score.models) > 1 else None,
    )


def _span(history: History) -> str:
    return f"{_told(history.at(0))} to {_told(history.ends_at)}"


def _told(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as problem:
        raise argparse.ArgumentTypeError(f"expected a time zone such as Europe/Berlin, got '{text}'") from problem
    return text


if __name__ == "__main__":
    open_closed_streams()
    sys.exit(main())
