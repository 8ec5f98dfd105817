"""The memory of a plan does not grow with the dataset; stores that make up their listings stand in for real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INCLUDE = Path(__file__).resolve().parents[2] / "include"
SCRIPT = """
import resource, sys
from spillway.errors import Missing
from spillway.model import ObjectInfo
from spillway.sync.execute import sync_dataset

class MadeUp:
    def __init__(self, name):
        self.name = name
    def list(self, prefix=""):
        for n in range(int(sys.argv[1])):
            scattered = n * 2654435761 % 2**32
            yield ObjectInfo(
                key=f"{prefix}{scattered % 4096:04}/{scattered}.npy", size_bytes=n, etag=f"{n:032}", sha256=f"{n:064}"
            )
    def head(self, key):
        return None
    def read(self, key, **options):
        raise Missing("object", key, self.name)

report = sync_dataset(source=MadeUp("s"), destination=MadeUp("d"), dataset="x", prefix="data/", dry_run=True)
print(report.objects_unchanged, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.parametrize(
    ("objects", "mib"),
    [
        pytest.param(1_000_000, 300, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
        pytest.param(10_000_000, 1024, marks=[pytest.mark.chaos, pytest.mark.timeout(7200)]),
    ],
)
def test_a_plan_of_many_keys_on_each_side_fits_into_memory(objects: int, mib: int) -> None:
    argv = [sys.executable, "-c", SCRIPT, str(objects)]
    done = subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(INCLUDE)}, capture_output=True, check=True)
    unchanged, used_mib = map(int, done.stdout.split())
    assert unchanged == objects
    assert used_mib <= mib
