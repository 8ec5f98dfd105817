"""``report.json`` and the lines that a person reads; its fields are documented in docs/evidence.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.ledger import TransferKind
from spillway.runs.evidence import evidence, timeline
from spillway.sandbox.demo.proof import Check

if TYPE_CHECKING:
    from spillway.sandbox.demo.story import Story


def write_report(
    story: Story, check_all: Callable[..., tuple[Check, ...]], file: Path
) -> tuple[dict[str, Any], tuple[Check, ...]]:
    """Gather the evidence, check it, and write both."""
    facts = story.facts()
    found = evidence(story.services, story.run)
    checks = check_all(story.services, found, facts)
    report = found | {
        "dataset": [
            {
                "cluster": line.destination,
                "objects_copied": line.objects_copied,
                "bytes_copied": line.size_bytes,
                "objects_unchanged": line.objects_unchanged,
            }
            for line in story.services.ledger.transfers(story.run)
            if line.kind is TransferKind.DATASET
        ],
        "reference_loss_equal": next(check.ok for check in checks if check.name == "loss"),
        "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in checks],
        "timings_s": story.timings_s,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(report, indent=1))
    partial.replace(file)
    story.say(f"evidence: {file}")
    return report, checks


def print_result(report: dict[str, Any], checks: tuple[Check, ...], failure: str, say: Callable[[str], None]) -> int:
    """The timeline and a line a check; 0 where all have passed, else 1."""
    say(timeline(report))
    for check in checks:
        say(f"  {'ok    ' if check.ok else 'BROKEN'} {check.name:10} {check.detail}")
    broken = [check.name for check in checks if not check.ok]
    if not broken and not failure:
        say("the run survived the loss of its node: same image, same data, exact resume, identical loss")
        return 0
    say(f"BROKEN MECHANISM: {broken[0] if broken else 'run'}" + (f" ({failure})" if failure else ""))
    return 1
