"""``python -m spillway.sandbox``: taken ports, a full disk, a second start, Ctrl-C, a killed supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillway.sandbox import lifecycle
from spillway.sandbox.__main__ import main
from spillway.sandbox.settings import SandboxSettings, sandbox_settings
from spillway.sandbox.supervisor import marked_processes, read_status, supervisor_pid
from spillway.testing.command_line import interruptible
from spillway.testing.disks import filled, small_disk
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation, free_settings

INCLUDE = Path(__file__).resolve().parents[2] / "include"
PATIENCE_SECONDS = 150
DEAD_PROXY = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:1")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a command of a sandbox as a process that a Ctrl-C can reach; ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(settings: SandboxSettings, *words: str, **variables: str) -> subprocess.Popen[str]:
        environment = {"PYTHONPATH": str(INCLUDE), "SPILLWAY_SANDBOX_PORT": str(settings.base_port), **variables}
        argv = [sys.executable, "-m", "spillway.sandbox", "--state", str(settings.state), *words]
        started.append(interruptible(argv, dict(os.environ) | environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[SandboxSettings]:
    """A sandbox of the test's own, not started, on free ports."""
    settings = free_settings(tmp_path / "sandbox")
    yield settings
    lifecycle.down(settings, lambda text: None)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


def processes(settings: SandboxSettings) -> list[int]:
    """All that runs for the sandbox, its supervisor first."""
    supervisor = supervisor_pid(settings.state)
    return [*([supervisor] if supervisor else []), *marked_processes(settings.state)]


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended before it said '{text}': {process.communicate()}")


def kill_in_mid_start(process: subprocess.Popen[str], settings: SandboxSettings) -> list[int]:
    """Kill ``up`` and the supervisor, as a lost session does; gives what they left running."""
    eventually(lambda: len(processes(settings)) > 3, seconds=PATIENCE_SECONDS)
    process.kill()
    supervisor = supervisor_pid(settings.state)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: supervisor_pid(settings.state) is None)
    left = processes(settings)
    assert left
    return left


def test_a_taken_port_is_named_and_nothing_is_started(sandbox: SandboxSettings, start: Start, tmp_path: Path) -> None:
    other = sandbox_settings(tmp_path / "other", sandbox.base_port)
    code, _, err = ended(start(other, "up", "--without-airflow"))
    assert (code, err) == (
        1,
        f"spillway: port {sandbox.base_port + 100} is taken by another program, the sandbox needs it free; "
        "stop that program or choose other ports: SPILLWAY_SANDBOX_PORT=<first port>\n",
    )
    assert not other.state.exists()


def test_a_full_disk_is_named_and_nothing_is_started(start: Start, full_disk: Path) -> None:
    code, _, err = ended(start(sandbox_settings(full_disk, 18000), "up", "--without-airflow"))
    assert code == 1
    assert err.startswith(f"spillway: {full_disk} has 0 MiB free, the sandbox needs 1024 MiB; free some space")
    assert list(full_disk.iterdir()) == []


def test_the_ports_of_a_sandbox_are_remembered_whole_or_not_at_all(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=1m") as disk:
        with filled(disk), pytest.raises(OSError, match="No space left"):
            lifecycle.prepare(sandbox_settings(disk / "sandbox", 18000), print, with_airflow=False)
        assert sandbox_settings(disk / "sandbox").sites


def test_a_disk_that_fills_up_meanwhile_is_named_and_nothing_is_left_running(
    start: Start, disk_of_few_files: Path
) -> None:
    settings = free_settings(disk_of_few_files / "sandbox")
    code, _, err = ended(start(settings, "up", "--without-airflow"))
    assert code == 1
    assert err.startswith("spillway: ") and err.endswith(": the disk is full; free some space and run it again\n")
    assert "Traceback" not in err
    assert processes(settings) == []


@pytest.mark.parametrize(
    ("words", "port", "message"),
    [
        pytest.param(
            ("status",), "many", "SPILLWAY_SANDBOX_PORT: expected a port from 1024 to 65000, got 'many'", id="port"
        ),
        pytest.param(
            ("drill", "node-loss", "onprem-9"), "18000", "unknown node 'onprem-9'; known: cloud-1,", id="node"
        ),
        pytest.param(("drill", "site-outage", "clowd"), "18000", "Did you mean 'cloud'?", id="site"),
        pytest.param(
            ("drill", "node-loss", "cloud-1"), "18000", "no sandbox is running here; start it first", id="down"
        ),
        pytest.param(("airflow", "dags", "list"), "18000", "has no Airflow yet; start it first: make up", id="airflow"),
        pytest.param(("drill", "recover"), "18000", "no sandbox is running here; start it first", id="nothing-taken"),
    ],
)
def test_words_that_lead_nowhere_are_one_message(
    words: tuple[str, ...],
    port: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPILLWAY_SANDBOX_PORT", port)
    assert main(("--state", str(tmp_path / "none"), *words)) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_drill_that_there_is_not_gets_the_near_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(("drill", "node-los", "onprem-1"))
    assert (ended.value.code, "Did you mean 'node-loss'?" in capsys.readouterr().err) == (2, True)


def test_the_line_for_a_shell_begins_with_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = sandbox_settings(tmp_path, 18000)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert lifecycle.environment_line(settings).startswith("export PYTHONPATH=")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "activate").touch()
    assert lifecycle.environment_line(settings).startswith(f". {tmp_path}/bin/activate; export PYTHONPATH=")


def test_a_second_up_changes_nothing(sandbox: SandboxSettings, start: Start) -> None:
    before = supervisor_pid(sandbox.state), read_status(sandbox.state)
    code, _, err = ended(start(sandbox, "up", "--without-airflow"))
    assert (code, err) == (0, "")
    assert (supervisor_pid(sandbox.state), read_status(sandbox.state)) == before


@pytest.mark.parametrize("command", ["up", "demo"])
def test_airflow_cannot_be_added_to_a_sandbox_that_runs_without(
    sandbox: SandboxSettings, start: Start, command: str
) -> None:
    code, out, err = ended(start(sandbox, command))
    assert (code, out) == (1, "")
    assert err == (
        f"spillway: the sandbox in {sandbox.state} was started without Airflow and goes on so; to have Airflow beside "
        "it, stop it first (make down); to use it as it is, add --without-airflow\n"
    )


def test_up_whose_reader_has_seen_enough_stops_everything_without_a_traceback(
    own: SandboxSettings, start: Start
) -> None:
    process = start(own, "up", "--without-airflow")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "writing certificates, configuration and Connections\n"
    process.stdout.close()  # as `| head -n 1` does
    assert (process.stderr.read(), process.wait(PATIENCE_SECONDS)) == ("", 1)
    assert processes(own) == []


STARTED_AND_STOPPED = """
import sys
from pathlib import Path
from spillway.sandbox import lifecycle
from spillway.sandbox.settings import sandbox_settings
settings = sandbox_settings(Path(sys.argv[1]), int(sys.argv[2]))
lifecycle.up(settings, lambda text: None, with_airflow=False)
lifecycle.down(settings, print)
"""


@pytest.mark.slow
def test_a_process_that_starts_a_sandbox_and_stops_it_forgets_no_child(own: SandboxSettings) -> None:
    argv = [sys.executable, "-W", "always::ResourceWarning", "-c", STARTED_AND_STOPPED, str(own.state)]
    environment = dict(os.environ) | {"PYTHONPATH": str(INCLUDE)}
    done = subprocess.run(
        [*argv, str(own.base_port)], env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("the sandbox is down\n")


def test_a_proxy_is_not_asked_for_the_sandbox_itself(sandbox: SandboxSettings, start: Start) -> None:
    code, _, err = ended(start(sandbox, "up", "--without-airflow", **DEAD_PROXY))
    assert (code, err) == (0, "")


def test_programs_that_cannot_be_had_are_told_before_anything_is_started(
    own: SandboxSettings, start: Start, tmp_path: Path
) -> None:
    code, _, err = ended(start(own, "up", "--without-airflow", XDG_CACHE_HOME=str(tmp_path / "empty"), **DEAD_PROXY))
    assert (code, processes(own)) == (1, [])
    assert err.startswith(
        "spillway: the Debian packages apache2-utils, docker-registry could not be had; check that this machine "
        "reaches its apt sources (network, proxy) and try again:\n"
    )


def test_ctrl_c_in_a_second_up_says_that_the_sandbox_goes_on(
    installation: Installation, sandbox: SandboxSettings, start: Start
) -> None:
    with installation.frozen("onprem-store"):
        process = start(sandbox, "up", "--without-airflow")
        read_until(process, "onprem-kube-api is ready")
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
    assert (code, err) == (
        130,
        f"spillway: interrupted; the sandbox in {sandbox.state} goes on running: make status, make down\n",
    )
    assert supervisor_pid(sandbox.state) is not None


def test_ctrl_c_in_up_leaves_nothing_running_and_the_next_up_works(own: SandboxSettings, start: Start) -> None:
    process = start(own, "up", "--without-airflow")
    eventually(lambda: len(processes(own)) > 3, seconds=PATIENCE_SECONDS)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, processes(own)) == (130, [])
    assert err.startswith("spillway: interrupted; nothing is left running")

    assert ended(start(own, "up", "--without-airflow"))[0] == 0
    assert {entry["state"] for entry in (read_status(own.state) or {}).values()} == {"ready"}
    code, out, err = ended(start(own, "down"))
    assert (code, err, processes(own)) == (0, "", [])
    assert out.endswith("the sandbox is down\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("waiting for the sites", id="while-the-sites-start"),
        pytest.param("spillway-progress", id="while-the-pod-trains"),
    ],
)
def test_ctrl_c_in_the_demo_leaves_nothing_running(
    own: SandboxSettings, start: Start, tmp_path: Path, moment: str
) -> None:
    process = start(own, "demo", "--without-airflow", "--report", str(tmp_path / "report.json"))
    read_until(process, moment)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, processes(own)) == (130, [])
    assert err.startswith("spillway: interrupted; nothing is left running")
    assert not (tmp_path / "report.json").exists()


def test_down_ends_what_a_killed_supervisor_left(own: SandboxSettings, start: Start) -> None:
    kill_in_mid_start(start(own, "up", "--without-airflow"), own)
    code, out, _ = ended(start(own, "down"))
    assert (code, processes(own)) == (0, [])
    assert out.endswith(" processes of a sandbox without supervisor were ended\nthe sandbox is down\n")


@pytest.mark.slow
def test_up_begins_by_ending_what_a_killed_supervisor_left(own: SandboxSettings, start: Start) -> None:
    left = kill_in_mid_start(start(own, "up", "--without-airflow"), own)
    start(own, "up", "--without-airflow")
    eventually(lambda: supervisor_pid(own.state), seconds=PATIENCE_SECONDS)
    assert not set(left) & set(processes(own))
