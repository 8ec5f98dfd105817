"""``python -m spillway.sandbox up|down|status|drill|airflow|demo``."""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from spillway.commands.console import Console
from spillway.commands.parsing import Parser
from spillway.errors import SandboxError, SpillwayError
from spillway.sandbox import drills, lifecycle
from spillway.sandbox.airflow import become_airflow
from spillway.sandbox.demo import BREAKS, run_demo
from spillway.sandbox.settings import SandboxSettings, keep_proxies_off_loopback, sandbox_settings
from spillway.sandbox.supervisor import read_status, supervisor_pid

console = Console()
INTERRUPTED = 130
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 with one message where it failed, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    keep_proxies_off_loopback()
    try:
        settings = sandbox_settings(options.state)
        return _run(settings, options)
    except SpillwayError as problem:
        console.complain(str(problem))
    except BrokenPipeError:  # whoever read the answer has seen enough
        pass
    except OSError as problem:
        where = problem.filename or "the state directory"
        if problem.errno in DISK_FULL:
            console.complain(f"{where}: the disk is full; free some space and run it again")
        elif problem.errno in NOT_WRITABLE:
            console.complain(f"{where}: {problem.strerror}; choose a directory that you may write: --state DIRECTORY")
        else:
            raise
    return 1


def _run(settings: SandboxSettings, options: argparse.Namespace) -> int:
    try:
        return int(options.command(settings, options) or 0)
    except KeyboardInterrupt:
        if supervisor_pid(settings.state) is None:
            console.complain("interrupted; nothing is left running and nothing is lost, run it again")
        else:
            console.complain(f"interrupted; the sandbox in {settings.state} goes on running: make status, make down")
        return INTERRUPTED


def _parser() -> Parser:
    parser = Parser(prog="python -m spillway.sandbox", description=drills.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--state", type=Path, help="the sandbox's directory (default: build/sandbox)")
    commands = parser.add_subparsers(required=True)

    def command(name: str, function: object, text: str) -> Parser:
        sub = commands.add_parser(name, help=text)
        sub.set_defaults(command=function)
        return sub

    for name, function, text in (
        ("up", _up, "start everything and wait until it is ready"),
        ("supervise", _supervise, "be the supervisor in the foreground"),
    ):
        command(name, function, text).add_argument("--without-airflow", action="store_true")
    command("down", _down, "stop everything")
    command("status", _status, "show every process")
    drill = command("drill", _drill, "take something away")
    drill.add_argument("name", choices=drills.DRILLS)
    drill.add_argument(
        "target", nargs="?", help="a node (node-loss, spot-reclaim, evict), a site (site-outage), a number"
    )
    drill.add_argument("--pod", help="the pod to evict")
    airflow = command("airflow", _airflow, "Airflow's own commands, to the sandbox's Airflow")
    airflow.add_argument("words", nargs=argparse.REMAINDER, help="what follows `airflow`")
    demo = command("demo", _demo, "run the main job with a node loss and check the evidence")
    demo.add_argument("--break", dest="broken", choices=BREAKS, help="break one mechanism; the demo must then fail")
    demo.add_argument("--without-airflow", action="store_true", help="carry the run from this process")
    demo.add_argument("--keep", action="store_true", help="leave the sandbox running")
    demo.add_argument("--report", type=Path, help="where report.json goes (default: build/demo/report.json)")
    return parser


def _up(settings: SandboxSettings, options: argparse.Namespace) -> None:
    lifecycle.up(settings, console.tell, with_airflow=not options.without_airflow)
    if not options.without_airflow:
        console.say(lifecycle.login(settings))
    console.say(f"for `python -m spillway`: {lifecycle.environment_line(settings)}")


def _supervise(settings: SandboxSettings, options: argparse.Namespace) -> None:
    lifecycle.supervise(settings, with_airflow=not options.without_airflow)


def _down(settings: SandboxSettings, options: argparse.Namespace) -> None:
    lifecycle.down(settings, console.tell)


def _status(settings: SandboxSettings, options: argparse.Namespace) -> int:
    status = read_status(settings.state)
    if status is None:
        console.say(f"no sandbox is running in {settings.state}")
        return 3
    for name, entry in sorted(status.items()):
        console.say(f"{name:24} {entry['state']!s:10} pid {entry['pid'] or '-':>8}  starts {entry['starts']}")
    return 0


def _drill(settings: SandboxSettings, options: argparse.Namespace) -> None:
    target = options.target or ""
    match options.name:
        case "node-loss":
            drills.node_loss(settings, target)
        case "spot-reclaim":
            drills.spot_reclaim(settings, target)
        case "evict":
            drills.evict(settings, target, options.pod or "")
        case "site-outage":
            drills.site_outage(settings, target)
        case "provider-down":
            drills.provider_down(settings)
        case "quota":
            drills.misbehave(settings, quota=_number(target, "how many machines there may be"))
        case "boot-failure":
            drills.misbehave(settings, without_gpus=True)
        case "slow-boot":
            drills.misbehave(settings, boot=timedelta(seconds=_number(target, "how many seconds a machine takes")))
        case "recover":
            drills.recover(settings)
    console.say(f"{options.name} {target}".strip() + ": done")


def _number(written: str, what: str) -> int:
    if not written.isdecimal() or len(written) > 6:
        raise SandboxError(f"say {what}: expected a whole number below a million, got '{written}'")
    return int(written)


def _airflow(settings: SandboxSettings, options: argparse.Namespace) -> None:
    become_airflow(settings, options.words)


def _demo(settings: SandboxSettings, options: argparse.Namespace) -> int:
    return run_demo(
        settings,
        console.tell,
        broken=options.broken,
        with_airflow=not options.without_airflow,
        keep=options.keep,
        report_file=options.report,
    )


if __name__ == "__main__":
    sys.exit(main())
