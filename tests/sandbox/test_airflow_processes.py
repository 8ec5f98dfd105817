"""Airflow's processes: whatever they call themselves, the supervisor's mark stays on them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from spillway.sandbox.airflow import airflow_environment
from spillway.sandbox.settings import INCLUDE, sandbox_settings
from spillway.sandbox.supervisor import MARK, marked_processes, sweep
from spillway.testing.polling import eventually

TITLE = "airflow worker"
GIVES_ITSELF_A_TITLE = f"import setproctitle, time; setproctitle.setproctitle({TITLE!r}); time.sleep(1000)"


def title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0")


def test_a_process_that_gives_itself_a_title_is_found_and_swept(tmp_path: Path) -> None:
    environment = airflow_environment(sandbox_settings(tmp_path)) | {MARK: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", GIVES_ITSELF_A_TITLE], env=environment) as process:
        try:
            eventually(lambda: title(process.pid) == TITLE)
            assert list(marked_processes(tmp_path)) == [process.pid]
            assert sweep(tmp_path) == 1
        finally:
            process.kill()


def test_commands_of_airflow_speak_to_the_sandboxs_own(tmp_path: Path) -> None:
    settings = sandbox_settings(tmp_path)
    settings.airflow_home.mkdir(parents=True)
    (settings.airflow_home / "migrated").touch()
    words = ("airflow", "config", "get-value", "database", "sql_alchemy_conn")
    argv = [sys.executable, "-m", "spillway.sandbox", "--state", str(tmp_path), *words]
    environment = {"PYTHONPATH": str(INCLUDE), "HOME": str(tmp_path / "home")}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [f"sqlite:///{settings.airflow_home}/airflow.db"])
    assert not (tmp_path / "home").exists()
