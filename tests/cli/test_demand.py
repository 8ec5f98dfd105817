"""``sample`` and ``demand``; of an installation whose clusters nobody has started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spillway.__main__ import main
from spillway.model import PoolSample, Sample
from spillway.sandbox.settings import INCLUDE
from spillway.testing.installed import Installed, install
from spillway.testing.polling import eventually


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    made = install(tmp_path / "installed", monkeypatch)
    monkeypatch.setenv("SPILLWAY_CONNECTIONS", str(made.settings.connections))
    return made


def test_demand_is_told_with_its_age_and_ends_with_1_where_some_of_it_is_old(
    installed: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.edit("policy.yaml", lambda policy: policy["scaling"].update(forecast=None))
    assert main(["demand"]) == 1
    assert "never" in capsys.readouterr().out
    pools = tuple(
        PoolSample(cluster=site.name, pool=site.nodes[0].pool, gpus=4, used_gpus=1, nodes=2, idle_nodes=0)
        for site in installed.settings.sites
    )
    installed.ledger.record_sample(Sample(at=datetime.now(UTC), pools=pools))
    asked = ["--department", "research", "--priority", "exploration", "--business-scene", "defects"]
    assert main(["demand", *asked]) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == "in all 0 of 8 GPUs used by exploration jobs of research in the scene defects, 0 waited for"
    assert main(["demand", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["stale"], [pool["used_gpus"] for pool in data["pools"]]) == (False, [1, 1])
    assert data["foreseen"] is None
    installed.edit("policy.yaml", lambda policy: policy["scaling"].update(forecast={"quantile": 0.9, "ahead": "15m"}))
    assert main(["demand"]) == 0
    nothing = "nothing is foreseen: demand is known for 0 steps of 1:00:00, which is less than a day"
    assert capsys.readouterr().out.splitlines()[-2:] == ["", nothing]
    assert main(["demand", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["foreseen"] == nothing
    assert main(["demand", "--department", "reserch"]) == 1
    assert "Did you mean 'research'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["demand", "--priority", "reserch"])
    assert "Did you mean 'research'?" in capsys.readouterr().err


def test_a_sample_is_taken_of_clusters_that_are_away_too(
    installed: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sample", "--once"]) == 0
    newest = installed.ledger.newest_sample(datetime.now(UTC))
    assert newest is not None
    assert (newest.pools, sorted(newest.unknown)) == ((), ["cloud", "onprem"])
    assert main(["demand", "--json"]) == 1
    assert "unreachable" in json.loads(capsys.readouterr().out)["pools"][0]["cause"]


def test_a_sampler_goes_on_until_it_is_told_to_end(installed: Installed) -> None:
    environment = os.environ | {"PYTHONPATH": str(INCLUDE), "PYTHONUNBUFFERED": "1"}
    sampler = subprocess.Popen(
        [sys.executable, "-m", "spillway", "sample"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        eventually(lambda: installed.ledger.newest_sample(datetime.now(UTC)))
        assert sampler.poll() is None
        sampler.send_signal(signal.SIGTERM)
        out, err = sampler.communicate(timeout=60)
    finally:
        sampler.kill()
    assert (sampler.returncode, out) == (143, b"sampling every 30 s\n")
    assert err.count(b"fails, which is a gap for as long as it lasts") == 2


def test_what_is_wrong_from_the_start_is_told_at_once(installed: Installed, capsys: pytest.CaptureFixture[str]) -> None:
    installed.edit("policy.yaml", lambda policy: policy.update(samples={"keep": {"hours": "3"}}))
    assert main(["sample"]) == 1
    assert "policy.yaml: samples.keep.hours: expected a duration" in capsys.readouterr().err
