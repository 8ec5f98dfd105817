"""What Airflow does with the plugins folder when it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from spillway.sandbox.settings import INCLUDE, PROJECT

PLUGINS = PROJECT / "plugins"
LOADS_PLUGINS = """
import json, sys
from airflow import plugins_manager
plugins_manager.ensure_plugins_loaded()
import spillway_airflow
names = [plugin["name"] for plugin in plugins_manager.get_plugin_info()]
errors = plugins_manager.get_import_errors()
print(json.dumps({"plugins": names, "errors": errors, "modules": sorted(sys.modules)}))
"""


def test_the_package_is_imported_by_its_name_only_and_never_executed_as_loose_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADS_PLUGINS],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
            "PYTHONPATH": f"{INCLUDE}:{PLUGINS}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])

    assert "spillway" in found["plugins"]
    assert found["errors"] == {}
    stems = {file.stem for file in (PLUGINS / "spillway_airflow").rglob("*.py")} - {"__init__"}
    assert stems >= {"hooks", "failures", "training_job", "place_job"}
    assert stems & set(found["modules"]) == set()
