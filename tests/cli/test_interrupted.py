"""Ctrl-C and SIGTERM end a mover in the middle of an object; what is done stays, and the same command goes on."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socketserver
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest
import yaml

from spillway.checkpoints.store import CheckpointStore
from spillway.ledger import TransferOutcome
from spillway.runs.services import Services
from spillway.sandbox.settings import INCLUDE
from spillway.testing.checkpoints import commit_step
from spillway.testing.command_line import RunWithSteps, Spillway, StartSpillway, interruptible
from spillway.testing.images import put_image
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

LARGE = random.Random(7).randbytes(40 << 20)
SLOW_GBPS, FAST_GBPS = 0.0016, 10.0
"""At two hundred kilobytes a second the large object takes longer than any test."""

Command = tuple[str, ...]


@pytest.fixture
def line(installation: Installation) -> Callable[[float], None]:
    """Sets the bandwidth of both sites."""
    file = installation.config / "clusters.yaml"

    def declare(gbps: float) -> None:
        declared = yaml.safe_load(file.read_text())
        for site in declared["clusters"]:
            site["link"]["bandwidth_gbps"] = gbps
        file.write_text(yaml.safe_dump(declared))

    return declare


@pytest.fixture
def dataset(services: Services) -> Iterator[Command]:
    """One with a large object among its small ones; gives the command that moves it."""
    home, key = services.site("onprem").datasets, f"digits/large-{uuid.uuid4().hex}"
    home.put(key, LARGE, size_bytes=len(LARGE))
    yield ("sync", "digits", "cloud")
    home.delete([key])


@pytest.fixture
def image(services: Services) -> Command:
    repository = f"large-{uuid.uuid4().hex[:6]}"
    put_image(services.site("onprem").registry, repository, "v1", layer=LARGE)
    return ("images", "sync", f"{repository}:v1", "cloud", "--tier", "public")


@pytest.fixture
def checkpoint(services: Services, run_with_steps: RunWithSteps) -> Command:
    run = run_with_steps()
    store = CheckpointStore(services.site("onprem").checkpoints, run)
    commit_step(store, 2, parts={"weights": LARGE})
    return ("checkpoints", "replicate", run)


@pytest.mark.parametrize(
    ("what", "number", "told"),
    [
        ("dataset", signal.SIGTERM, "interrupted in dataset digits from onprem to cloud: "),
        ("image", signal.SIGTERM, "interrupted in large-"),
        ("checkpoint", signal.SIGINT, "interrupted in replicating checkpoints of quick-"),
    ],
)
def test_a_mover_that_is_told_to_end_is_cut_off_and_goes_on_with_the_same_command(
    request: pytest.FixtureRequest,
    spillway: Spillway,
    start_spillway: StartSpillway,
    services: Services,
    line: Callable[[float], None],
    what: str,
    number: signal.Signals,
    told: str,
) -> None:
    command: Command = request.getfixturevalue(what)
    cloud = services.site("cloud").datasets
    cloud.delete([entry.key for entry in cloud.list()])
    line(SLOW_GBPS)
    process = start_spillway(*command)
    eventually(services.ledger.link_rates)  # it was measured, so bytes move
    if what == "dataset":
        eventually(lambda: [entry for entry in cloud.list() if entry.key.startswith("digits/")])
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.count("\n")) == (128 + number, 1), said
    assert said.startswith(f"spillway: {told}"), said
    assert said.endswith("; what is done stays, the same command goes on from there\n")
    assert what != "dataset" or " of 9 objects, " in said
    (broken,) = services.ledger.transfers()
    assert broken.outcome is TransferOutcome.FAILED and broken.size_bytes > 0
    assert str(broken.reason).startswith("it was ended before it was done")

    line(FAST_GBPS)
    assert spillway(*command).code == 0
    assert [one.outcome for one in services.ledger.transfers()][-1] is TransferOutcome.COPIED


@pytest.fixture
def closed_door() -> Iterator[tuple[int, list[object]]]:
    """A port whose connections are closed at once, and a list of those that came."""
    came: list[object] = []

    class Close(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            came.append(self.client_address)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Close) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.server_address[1], came
        server.shutdown()
        thread.join()


def test_a_mover_that_waits_for_a_store_that_is_away_is_cut_off_too(
    installation: Installation, start_spillway: StartSpillway, closed_door: tuple[int, list[object]]
) -> None:
    port, came = closed_door
    known = json.loads(installation.connections.read_text())["cloud_store"]["extra"]
    installation.connection("cloud_store", extra=re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", known))
    process = start_spillway("sync", "digits", "cloud", "--json")
    assert process.stderr is not None
    told = process.stderr.readline()
    assert re.match(r"waiting for s3://.*@cloud, for \d+ s more at most: ", told), told
    assert len(came) >= 2
    process.send_signal(signal.SIGTERM)
    answered, said = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert json.loads(answered)["error"]["kind"] == "Interrupted"


CLEANUP_THAT_HANGS = """
import sys, time
from spillway.commands import ending
ending.PATIENCE_SECONDS = float(sys.argv[1])
ending.end_on_signals()
try:
    print("ready", flush=True)
    time.sleep(600)
finally:
    print("tidying up", flush=True)
    time.sleep(600)
"""


def hanging(patience_seconds: float) -> subprocess.Popen[str]:
    """A process that will not end what it does after Ctrl-C."""
    argv = [sys.executable, "-c", CLEANUP_THAT_HANGS, str(patience_seconds)]
    process = interruptible(argv, {**os.environ, "PYTHONPATH": str(INCLUDE)})
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_a_second_ctrl_c_ends_the_process_at_once() -> None:
    with hanging(600) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None and process.stdout.readline() == "tidying up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT


def test_a_second_sigterm_changes_nothing_and_an_end_that_hangs_is_cut_short() -> None:
    with hanging(0.5) as process:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None and process.wait(60) == 143
        assert process.stderr.read().endswith("the same command goes on from there\n")
