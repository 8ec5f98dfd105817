"""The supervisor, with small processes in place of the servers; its own process is a real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spillway.errors import SandboxError
from spillway.sandbox import lifecycle
from spillway.sandbox.settings import sandbox_settings
from spillway.sandbox.supervisor import (
    FIRST_BACK_OFF_SECONDS,
    MARK,
    Supervisor,
    marked_processes,
    read_status,
    supervisor_pid,
    sweep,
)
from spillway.testing.disks import filled, small_disk
from spillway.testing.polling import eventually

INCLUDE = Path(__file__).resolve().parents[2] / "include"

SUPERVISE = """
import json, sys
from datetime import timedelta
from pathlib import Path
from spillway.sandbox.process import ProcessSpec
from spillway.sandbox.supervisor import Supervisor

state = Path(sys.argv[1])
specs = [
    ProcessSpec(
        name=entry["name"],
        argv=(entry.get("program", "/bin/sh"), "-c", entry["script"]),
        environment={"PATH": "/usr/bin:/bin"},
        working_directory=state,
        ready=(state / entry["ready"]).exists,
        stage=entry.get("stage", 0),
        stop_grace=timedelta(seconds=entry.get("stop_grace_s", 5)),
        cleanup=tuple(state / name for name in entry.get("cleanup", ())),
    )
    for entry in json.loads(sys.argv[2])
]
Supervisor(state=state, specs=specs).run()
"""

Supervise = Callable[..., subprocess.Popen[bytes]]


def long_lived(name: str, **fields: Any) -> dict[str, Any]:
    """A process that says it is ready and stays."""
    return {"name": name, "script": f"touch {name}.ready; exec sleep 1000", "ready": f"{name}.ready"} | fields


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Supervise]:
    """Start a supervisor of these processes; whatever a test leaves behind is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*entries: dict[str, Any], state: Path = tmp_path) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", SUPERVISE, str(state), json.dumps(entries)]
        with (state / "supervisor.log").open("ab") as log:
            process = subprocess.Popen(argv, env={"PYTHONPATH": str(INCLUDE), "PATH": os.environ["PATH"]}, stderr=log)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
    sweep(tmp_path)


def ready(state: Path, *names: str) -> dict[str, dict[str, Any]]:
    """The status once all of these are ready."""
    return eventually(
        lambda: read_status(state) or {}, lambda seen: all(seen.get(name, {}).get("state") == "ready" for name in names)
    )


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_later_stage_starts_when_the_earlier_one_is_ready(tmp_path: Path, supervise: Supervise) -> None:
    supervise(
        {"name": "first", "script": "sleep 0.6; touch first.ready; exec sleep 1000", "ready": "first.ready"},
        long_lived("second", stage=1, script="test -e first.ready && touch second.ready; exec sleep 1000"),
    )
    seen = ready(tmp_path, "first", "second")
    assert {name: entry["starts"] for name, entry in seen.items()} == {"first": 1, "second": 1}


def test_a_killed_process_is_started_again_and_its_children_are_ended(tmp_path: Path, supervise: Supervise) -> None:
    supervise(
        {
            "name": "server",
            "script": "sleep 1000 & echo $! >> children; touch server.ready; wait",
            "ready": "server.ready",
        }
    )
    first = ready(tmp_path, "server")["server"]["pid"]
    child = int((tmp_path / "children").read_text().split()[0])
    os.kill(first, signal.SIGKILL)
    second = eventually(lambda: (read_status(tmp_path) or {})["server"], lambda seen: seen["starts"] == 2)
    assert second["pid"] not in {None, first}
    eventually(lambda: not is_alive(child))


def test_a_process_that_keeps_ending_is_started_ever_later(tmp_path: Path, supervise: Supervise) -> None:
    supervise({"name": "crasher", "script": "date +%s.%N >> starts; exit 1", "ready": "never"})
    starts = eventually(
        lambda: (tmp_path / "starts").read_text().split() if (tmp_path / "starts").exists() else [],
        lambda seen: len(seen) >= 3,
    )
    pauses = [later - sooner for sooner, later in pairwise(map(float, starts))]
    assert pauses[0] >= FIRST_BACK_OFF_SECONDS and pauses[1] >= 2 * FIRST_BACK_OFF_SECONDS
    assert (read_status(tmp_path) or {})["crasher"]["state"] == "starting"


def test_a_held_process_stays_down_until_it_is_released(tmp_path: Path, supervise: Supervise) -> None:
    supervise(long_lived("node"), long_lived("store"))
    before = ready(tmp_path, "node", "store")
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "node").touch()
    eventually(lambda: read_status(tmp_path) or {}, lambda seen: seen["node"]["state"] == "held")
    eventually(lambda: not is_alive(before["node"]["pid"]))
    (tmp_path / "held" / "node").unlink()
    after = ready(tmp_path, "node", "store")
    assert after["node"]["pid"] != before["node"]["pid"]
    assert after["store"] == before["store"]


def test_term_ends_every_process_the_latest_stage_first(tmp_path: Path, supervise: Supervise) -> None:
    goodbye = "trap 'echo {0} >> ended; exit 0' TERM; touch {0}.ready; while true; do sleep 0.05; done"
    process = supervise(
        *(
            {"name": name, "script": goodbye.format(name), "ready": f"{name}.ready", "stage": stage}
            for name, stage in (("base", 0), ("middle", 1), ("top", 2))
        )
    )
    ready(tmp_path, "base", "middle", "top")
    process.terminate()
    assert process.wait(60) == 0
    assert (tmp_path / "ended").read_text().split() == ["top", "middle", "base"]
    assert list(marked_processes(tmp_path)) == []
    assert not {"supervisor.pid", "status.json"} & {file.name for file in tmp_path.iterdir()}


def test_down_tells_what_it_stops_while_it_waits_for_it(tmp_path: Path, supervise: Supervise) -> None:
    last_word = "trap 'until [ -e stopping\\ top ]; do sleep 0.05; done; exit 0' TERM"
    script = f"{last_word}; touch top.ready; while :; do sleep 0.05; done"
    supervise(long_lived("base"), long_lived("top", script=script, stage=1, stop_grace_s=60))
    ready(tmp_path, "base", "top")
    lifecycle.down(sandbox_settings(tmp_path, 1), lambda line: (tmp_path / line).touch())
    assert (tmp_path / "stopping top").exists()


def test_a_process_that_ignores_term_is_killed_after_its_grace(tmp_path: Path, supervise: Supervise) -> None:
    deaf = "trap '' TERM; touch deaf.ready; while true; do sleep 0.05; done"
    process = supervise({"name": "deaf", "script": deaf, "ready": "deaf.ready", "stop_grace_s": 0.3})
    ready(tmp_path, "deaf")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert list(marked_processes(tmp_path)) == []


def test_what_a_killed_supervisor_leaves_behind_is_swept(tmp_path: Path, supervise: Supervise) -> None:
    process = supervise({"name": "server", "script": "sleep 1000 & touch server.ready; wait", "ready": "server.ready"})
    ready(tmp_path, "server")
    process.kill()
    process.wait()
    assert read_status(tmp_path) is None
    assert len(list(marked_processes(tmp_path))) == 2
    assert sweep(tmp_path) == 2
    assert sweep(tmp_path) == 0


def test_a_supervisor_begins_by_sweeping_what_a_killed_one_left(tmp_path: Path, supervise: Supervise) -> None:
    first = supervise(long_lived("server"))
    left = ready(tmp_path, "server")["server"]["pid"]
    first.kill()
    first.wait()
    supervise(long_lived("server"))
    assert ready(tmp_path, "server")["server"]["pid"] != left
    assert not is_alive(left)


def test_a_sweep_leaves_other_state_directories_alone(tmp_path: Path) -> None:
    other = tmp_path / "other"
    with subprocess.Popen(["sleep", "1000"], env={MARK: str(other)}) as bystander:
        assert sweep(tmp_path) == 0
        assert bystander.poll() is None
        assert sweep(other) == 1


def test_a_second_supervisor_of_the_same_directory_is_refused(tmp_path: Path, supervise: Supervise) -> None:
    process = supervise(long_lived("server"))
    ready(tmp_path, "server")
    with pytest.raises(SandboxError, match=f"a sandbox is already running on {tmp_path}; stop it first"):
        Supervisor(state=tmp_path, specs=()).run()
    assert supervisor_pid(tmp_path) == process.pid


def test_a_pid_file_that_names_another_process_is_not_a_supervisor(tmp_path: Path) -> None:
    (tmp_path / "supervisor.pid").write_text(str(os.getpid()))
    (tmp_path / "status.json").write_text("{}")
    assert supervisor_pid(tmp_path) is None
    assert read_status(tmp_path) is None


def test_leftover_sockets_are_removed_before_each_start(tmp_path: Path, supervise: Supervise) -> None:
    (tmp_path / "server.sock").touch()
    script = "test -e server.sock || touch server.ready; touch server.sock; exec sleep 1000"
    supervise(long_lived("server", script=script, cleanup=["server.sock"]))
    assert ready(tmp_path, "server")["server"]["starts"] == 1


def test_a_process_gets_its_own_environment_and_the_mark_alone(tmp_path: Path, supervise: Supervise) -> None:
    supervise(
        long_lived("server", script="tr '\\0' '\\n' < /proc/$$/environ > environment; touch server.ready; exec sleep 9")
    )
    ready(tmp_path, "server")
    assert sorted((tmp_path / "environment").read_text().split()) == ["PATH=/usr/bin:/bin", f"{MARK}={tmp_path}"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own for the state directory; nothing runs on it when it goes."""
    with small_disk(tmp_path / "disk", "size=256k") as folder:
        yield folder
        sweep(folder)


def logged(state: Path) -> list[str]:
    """What the supervisor has logged, without the times."""
    return [line.split(" ", 2)[2] for line in (state / "supervisor.log").read_text().splitlines()]


def test_on_a_full_disk_the_processes_go_on_and_are_started_again(disk: Path, supervise: Supervise) -> None:
    process = supervise(long_lived("server"), long_lived("other"), state=disk)
    before = ready(disk, "server", "other")
    with filled(disk):
        os.kill(before["server"]["pid"], signal.SIGKILL)
        started = eventually(
            lambda: set(marked_processes(disk)) - {before["server"]["pid"], before["other"]["pid"]},
            lambda seen: len(seen) == 1,
        )
        assert process.poll() is None and is_alive(before["other"]["pid"])
        assert (read_status(disk) or {})["server"] == before["server"]  # the last that could be written
    after = eventually(lambda: read_status(disk) or {}, lambda seen: seen["server"]["starts"] == 2)
    assert ({after["server"]["pid"]}, after["other"]) == (started, before["other"])
    eventually(lambda: len(logged(disk)) == 2)
    begin, end = logged(disk)
    assert begin.startswith("writing status.json fails and is tried again: [Errno 28] No space left on device")
    assert end == "writing status.json works again"
    process.terminate()
    assert process.wait(60) == 0


def test_a_process_that_cannot_be_started_takes_no_other_with_it_and_is_told_once(
    tmp_path: Path, supervise: Supervise
) -> None:
    program = tmp_path / "program"
    supervise(long_lived("broken", program=str(program)), long_lived("server"))
    server = ready(tmp_path, "server")["server"]
    eventually(lambda: (read_status(tmp_path) or {})["broken"]["starts"] >= 2)
    program.symlink_to("/bin/sh")
    assert ready(tmp_path, "broken", "server")["server"] == server
    assert logged(tmp_path) == [
        f"starting broken fails and is tried again: [Errno 2] No such file or directory: '{program}'",
        "starting broken works again",
    ]


def test_a_supervisor_whose_state_directory_was_removed_ends_everything(tmp_path: Path, supervise: Supervise) -> None:
    state = tmp_path / "state"
    state.mkdir()
    process = supervise(long_lived("server"), state=state)
    ready(state, "server")
    state.rename(tmp_path / "gone")
    assert process.wait(60) == 0
    assert list(marked_processes(state)) == []
