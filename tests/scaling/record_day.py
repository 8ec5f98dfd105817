"""Make the recorded day anew: ``PYTHONPATH=include python tests/scaling/record_day.py``.

Only where rules are meant to plan otherwise from now on, or what is stored has another shape. Made-up jobs run through
the live rules over simulated clusters for a day, and a ledger stores the looks of the scaler as it does live. Beside
them, in ``recorded_day.txt``, stands what a candidate would have wanted otherwise.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from test_recorded_day import CANDIDATE, DAY, NEXT, RECORDED, TOLD, numbers

from spillway.codec import encode
from spillway.ledger import Ledger, ScalingLook, open_ledger
from spillway.model import Forecast, PoolTarget, ScalingSnapshot
from spillway.replay import beats
from spillway.replay.comparing import policy_of
from spillway.replay.engine import replay
from spillway.replay.synthetic import PHILLY_LIKE, made_up
from spillway.replay.world import Conditions
from spillway.runs.scaling import NOTED_EVERY
from spillway.runs.scaling_facts import MEMORY
from spillway.runs.shadow_scaling import shadow_scaling
from spillway.scaling.planner import plan_scaling
from spillway.scaling.rules import ScalingRules
from spillway.testing.builders import cloud_cluster, cloud_pool, node_pool, onprem_cluster
from spillway.testing.ledger_files import new_ledger


class DayIsOver(Exception):
    """Ends the replay: its longest jobs take weeks."""


def record(ledger: Ledger) -> None:
    """A day of the preset ``s2``: on-premises has 48 GPUs, and the cloud up to 40 nodes of 8."""
    home = onprem_cluster(pools=(node_pool(max_nodes=6),))
    bought = cloud_cluster(pools=(cloud_pool(max_nodes=40),))
    jobs = made_up(PHILLY_LIKE, starts_at=DAY, days=1, seed=7)

    def planned(
        seen: ScalingSnapshot, forecasts: Mapping[tuple[str, str], Forecast], rules: ScalingRules
    ) -> tuple[PoolTarget, ...]:
        plan = plan_scaling(seen, forecasts, rules)
        look = ScalingLook(snapshot=seen, forecasts=forecasts, rules=rules, plan=plan)
        now = seen.taken_at
        if now >= NEXT:
            raise DayIsOver
        for use, target in zip(seen.pools, plan, strict=True):
            if use.wanted != target.nodes:
                begun = ledger.begin_change(target, before=use.wanted, actor="s2", now=now, look=look)
                ledger.change_is_asked(begun, now)
        ledger.note_look(look, every=NOTED_EVERY, remembered=MEMORY)
        return plan

    beats.plan_scaling = planned
    conditions = Conditions(tick=timedelta(minutes=1))
    with suppress(DayIsOver):
        replay("made up", jobs, (home, bought), policy_of("s2"), conditions=conditions)


def main() -> None:
    with TemporaryDirectory() as folder:
        ledger = open_ledger(new_ledger(Path(folder) / "ledger.db"))
        record(ledger)
        looks = list(ledger.looks_between(DAY, NEXT))
        lines = [json.dumps(encode(look), separators=(",", ":")) for look in looks]
        RECORDED.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
        TOLD.write_text(numbers(shadow_scaling(looks, CANDIDATE, since=DAY, until=NEXT)))
        print(
            f"{len(looks)} looks, {len(ledger.scaling_changes())} changes, {RECORDED.stat().st_size} bytes: {RECORDED}"
        )


if __name__ == "__main__":
    main()
