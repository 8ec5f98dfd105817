"""``python -m spillway.sandbox.realcluster build``: build the real control plane, or find it in the cache."""

from __future__ import annotations

import argparse
import sys
import time

from spillway.errors import SandboxError
from spillway.sandbox.realcluster.build import build
from spillway.sandbox.settings import cache_directory


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m spillway.sandbox.realcluster", description=__doc__)
    parser.add_argument("action", choices=("build",))
    parser.parse_args()
    started = time.monotonic()
    try:
        programs = build(
            cache_directory(), lambda text: print(f"{time.monotonic() - started:6.0f} s  {text}", flush=True)
        )
    except SandboxError as problem:
        print(problem, file=sys.stderr)
        return 1
    print(f"the control plane's programs are in {programs}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
