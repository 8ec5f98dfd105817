"""The launcher by itself: one container in each kind of isolation that this machine allows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spillway.sandbox.agent.container import LAUNCHER
from spillway.sandbox.agent.isolation import best_isolation

NAMESPACED = ["root", "user"] if os.geteuid() == 0 else ["user"]
DEADLINE_SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class Result:
    code: int
    output: str
    failure: str


class Launcher:
    """Starts containers with an image of a few files."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.image = directory, directory / "image"
        self.file("opt/app/data", "from the image\n")

    def file(self, name: str, content: str) -> Path:
        path = self.image / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755)
        return path

    def start(self, isolation: str, *argv: str, **fields: Any) -> subprocess.Popen[bytes]:
        scratch = self.directory / f"scratch-{isolation}"
        scratch.mkdir(exist_ok=True)
        container = {
            "agent_pid": os.getpid(),
            "failure_file": str(self.directory / "failure"),
            "cgroup_files": [],
            "isolation": isolation,
            "scratch": str(scratch),
            "image_root": str(self.image),
            "masks": [],
            "mounts": [],
            "working_directory": "/",
            "argv": list(argv),
            "environment": {"PATH": "/usr/bin:/bin"},
            **fields,
        }
        command = [sys.executable, "-I", "-S", str(LAUNCHER)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True)
        assert process.stdin is not None
        process.stdin.write(json.dumps(container).encode())
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, isolation: str, *argv: str, **fields: Any) -> Result:
        process = self.start(isolation, *argv, **fields)
        output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        failure = self.directory / "failure"
        told = failure.read_text() if failure.exists() else ""
        return Result(code=process.returncode, output=output.decode(), failure=told)


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path)


@pytest.fixture
def hidden() -> Iterator[Path]:
    """A directory of the host, outside of /tmp, which no container shares with the host."""
    directory = Path.home() / f".spillway-hidden-{os.getpid()}"
    directory.mkdir()
    (directory / "secret").write_text("x")
    yield directory
    (directory / "secret").unlink()
    directory.rmdir()


@pytest.mark.parametrize("isolation", NAMESPACED)
class TestNamespaces:
    def test_the_image_lies_over_the_host_and_the_first_process_is_number_one(
        self, launcher: Launcher, isolation: str
    ) -> None:
        script = "cat /opt/app/data; test -x /usr/bin/env && echo host; echo $$; ls -A /tmp; cat /proc/1/comm"

        assert launcher.run(isolation, "/bin/sh", "-c", script) == Result(
            code=0, output="from the image\nhost\n1\nsh\n", failure=""
        )

    def test_masks_hide_and_mounts_show(self, launcher: Launcher, isolation: str, hidden: Path, tmp_path: Path) -> None:
        volume = tmp_path / "volume"
        volume.mkdir()
        place = Path("/mnt") / f"spillway-{os.getpid()}"
        mounts = [{"source": str(volume), "target": str(place), "read_only": False}]
        script = f"ls -A {hidden}; echo written > {place}/file"

        result = launcher.run(isolation, "/bin/sh", "-c", script, masks=[str(hidden)], mounts=mounts)

        assert result == Result(code=0, output="", failure="")
        assert (volume / "file").read_text() == "written\n"
        assert not place.exists()

    def test_without_a_mask_the_hosts_directory_shows(self, launcher: Launcher, isolation: str, hidden: Path) -> None:
        assert launcher.run(isolation, "ls", str(hidden)).output == "secret\n"

    def test_an_image_kept_below_a_directory_that_it_extends_is_laid_over_its_entries_and_changes_none(
        self, launcher: Launcher, isolation: str, hidden: Path
    ) -> None:
        home, on_host = Path.home(), Path.home() / f".spillway-file-{os.getpid()}"
        on_host.write_text("host\n")
        launcher.image = hidden / "image"
        in_image = launcher.file(f"{home.relative_to('/')}/of-the-image", "image\n")
        script = f"""cat {home}/of-the-image {on_host} {hidden}/secret; echo new > {home}/new && echo made
            for file in {home}/of-the-image {on_host}; do (echo changed > $file) 2>/dev/null || echo refused; done
            (echo changed > {hidden}/secret) && echo changed"""
        try:
            result = launcher.run(isolation, "/bin/sh", "-c", script)

            assert result.output == "image\nhost\nxmade\nrefused\nrefused\nchanged\n"
            assert [path.read_text() for path in (in_image, on_host, hidden / "secret")] == ["image\n", "host\n", "x"]
            assert not (home / "new").exists()
        finally:
            on_host.unlink()
            shutil.rmtree(launcher.image)


@pytest.mark.parametrize("isolation", [*NAMESPACED, "plain"])
class TestEveryIsolation:
    @pytest.mark.parametrize(
        ("script", "code"),
        [("exit 0", 0), ("exit 7", 7), ("sh -c 'kill -9 $$'; exit $?", 137), ("sh -c 'kill -15 $$'; exit $?", 143)],
    )
    def test_the_launcher_ends_with_the_programs_code(
        self, launcher: Launcher, isolation: str, script: str, code: int
    ) -> None:
        assert launcher.run(isolation, "/bin/sh", "-c", script).code == code

    def test_a_program_that_is_not_there_is_told(self, launcher: Launcher, isolation: str) -> None:
        result = launcher.run(isolation, "no-such-program")

        assert (result.code, result.output) == (128, "")
        assert result.failure == "exec: 'no-such-program': executable file not found in the image or the host's $PATH"

    def test_the_working_directory_is_made_and_the_environment_is_the_given_one(
        self, launcher: Launcher, isolation: str
    ) -> None:
        place = "/tmp/work" if isolation != "plain" else str(launcher.directory / "work")

        result = launcher.run(isolation, "/bin/sh", "-c", "pwd; env | sort", working_directory=place)

        assert result.output == f"{place}\nPATH=/usr/bin:/bin\nPWD={place}\n"

    def test_term_is_passed_on_and_the_program_may_end_as_it_wants(self, launcher: Launcher, isolation: str) -> None:
        script = "trap 'echo term; exit 5' TERM; echo up; while :; do sleep 0.02; done"
        process = launcher.start(isolation, "/bin/sh", "-c", script)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"

        process.terminate()

        assert process.communicate(timeout=DEADLINE_SECONDS)[0] == b"term\n"
        assert process.returncode == 5

    def test_the_program_does_not_outlive_its_launcher(self, launcher: Launcher, isolation: str) -> None:
        process = launcher.start(isolation, "/bin/sh", "-c", "echo up; exec sleep 600")
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"

        process.send_signal(signal.SIGKILL)

        assert process.communicate(timeout=DEADLINE_SECONDS)[0] == b""  # the pipe ends with its last holder

    def test_a_launcher_whose_agent_is_gone_already_starts_nothing(self, launcher: Launcher, isolation: str) -> None:
        assert launcher.run(isolation, "echo", "started", agent_pid=1).output == ""


def test_a_plain_container_finds_the_images_files_by_their_paths_in_it(launcher: Launcher) -> None:
    launcher.file("opt/app/bin/show", "#!/bin/sh\necho $WHERE; pwd; cat $1\n")
    argv = ["/opt/app/bin/show", "/opt/app/data"]
    environment = {"PATH": "/opt/app/bin:/usr/bin:/bin", "WHERE": "/opt/app:/none"}

    result = launcher.run("plain", *argv, environment=environment, working_directory="/opt/app")

    inside = f"{launcher.image}/opt/app"
    assert result.output == f"{inside}:/none\n{inside}\nfrom the image\n"


def test_the_strongest_isolation_that_works_is_chosen(tmp_path: Path) -> None:
    assert best_isolation(tmp_path) == NAMESPACED[0]
    assert list(tmp_path.iterdir()) == []


def test_without_namespaces_containers_are_plain_and_the_log_says_what_that_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refusing = tmp_path / "launcher.py"
    refusing.write_text("import sys; sys.stderr.write('Operation not permitted'); sys.exit(1)")
    monkeypatch.setattr("spillway.sandbox.agent.isolation.LAUNCHER", refusing)

    assert best_isolation(tmp_path) == "plain"
    assert "Operation not permitted" in caplog.text
    assert "containers run as plain processes" in caplog.text
