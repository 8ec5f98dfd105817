"""Servers of tests do not outlive the tests, also where those are killed and clean nothing up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from spillway.sandbox.settings import INCLUDE
from spillway.testing.polling import eventually

TESTS = """
import sys, threading, time
from pathlib import Path
from spillway.sandbox.process import ProcessSpec
from spillway.testing import processes

folder = Path(sys.argv[1])
spec = ProcessSpec(name="s", argv=("/bin/sleep", "600"), environment={}, working_directory=folder, ready=lambda: True)
started = []
thread = threading.Thread(target=lambda: started.append(processes.start(spec, folder / "log")))
thread.start()
thread.join()
processes.remove_at_our_end(folder / "supervisor.pid")
time.sleep(1)
print(started[0].pid, started[0].poll(), flush=True)
time.sleep(600)
"""


def test_what_tests_started_ends_with_them_and_not_with_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "supervisor.pid"
    pid_file.touch()
    argv = [sys.executable, "-c", TESTS, str(tmp_path)]
    environment = dict(os.environ) | {"PYTHONPATH": str(INCLUDE)}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        server, exit_code = tests.stdout.readline().split()
        assert exit_code == "None"
        assert pid_file.exists()
        tests.kill()
    eventually(lambda: not Path("/proc", server).exists())
    eventually(lambda: not pid_file.exists())
