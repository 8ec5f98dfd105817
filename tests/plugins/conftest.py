"""Airflow inside the test process."""

from __future__ import annotations

import os
import shutil
import tempfile

# Airflow makes its home when it is first imported, which the modules beside this file do: before any fixture runs.
HOME = None if "AIRFLOW_HOME" in os.environ else tempfile.mkdtemp(prefix="airflow-")
if HOME is not None:
    os.environ["AIRFLOW_HOME"] = HOME


def pytest_unconfigure() -> None:
    if HOME is not None:
        shutil.rmtree(HOME, ignore_errors=True)
