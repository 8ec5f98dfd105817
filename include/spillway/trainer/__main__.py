"""``python -m spillway.trainer digits``: train the named program under the contract of ``contract``."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spillway.errors import (
    BadData,
    CorruptCheckpoint,
    DigestMismatch,
    Fenced,
    ForeignCheckpoint,
    Missing,
    SpillwayError,
    UnknownName,
)
from spillway.model import ExitCode
from spillway.trainer.contract import read_contract
from spillway.trainer.progress import TERMINATION_LOG, Ending, write_termination_message
from spillway.trainer.stop import StopSignal

if TYPE_CHECKING:
    from spillway.trainer.session import Session

PROGRAMS = {"digits": "spillway.trainer.digits", "pytorch": "spillway.trainer.pytorch"}

OUTCOMES = {
    ExitCode.SUCCEEDED: "succeeded",
    ExitCode.STORE_UNREACHABLE: "store-unreachable",
    ExitCode.PREEMPTED: "preempted",
    ExitCode.FENCED: "fenced",
    ExitCode.FAILED: "failed",
    ExitCode.BAD_INPUT: "failed",
}

_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def main(arguments: Sequence[str], environ: Mapping[str, str], *, termination_log: Path = TERMINATION_LOG) -> int:
    """Train, and give the exit code; what went wrong is one line, a traceback only where the program is at fault."""
    stop = StopSignal()
    stop.install()
    session: Session | None = None
    error: str | None = None
    try:
        session = _open_session(arguments, environ, stop)
        code = _train(session, arguments[0])
    except Fenced as problem:
        code, error = ExitCode.FENCED, str(problem)
    except (BadData, CorruptCheckpoint, ForeignCheckpoint, DigestMismatch, Missing) as problem:
        code, error = ExitCode.BAD_INPUT, str(problem)
    except SpillwayError as problem:
        code, error = ExitCode.STORE_UNREACHABLE if problem.retry_helps else ExitCode.FAILED, str(problem)
    except Exception as problem:
        traceback.print_exc()
        code, error = ExitCode.FAILED, f"{type(problem).__name__}: {problem}"
    if error is not None:
        print(f"spillway-trainer: {error}", file=sys.stderr, flush=True)
    ending = Ending(
        outcome=OUTCOMES[code],
        last_step=None if session is None else session.last_step,
        durable_step=None if session is None else session.durable_step,
        error=error,
    )
    write_termination_message(termination_log, ending)
    return int(code)


def _open_session(arguments: Sequence[str], environ: Mapping[str, str], stop: StopSignal) -> Session:
    from spillway.checkpoints.store import CheckpointStore
    from spillway.trainer.session import Session

    name = arguments[0] if len(arguments) == 1 else " ".join(arguments)
    if name not in PROGRAMS:
        raise UnknownName("program", name, PROGRAMS)
    contract = read_contract(environ)
    return Session(
        contract,
        stop,
        data=contract.store.bucket(contract.dataset_bucket),
        checkpoints=CheckpointStore(contract.store.bucket(contract.checkpoint_bucket), contract.run),
    )


def _train(session: Session, name: str) -> ExitCode:
    # Sums in a library's threads come in another order each time; one thread gives the same bits each time.
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    from spillway.trainer.loop import train

    session.begin()
    return train(session, importlib.import_module(PROGRAMS[name]).build(session))


if __name__ == "__main__":
    exit_code = main(sys.argv[1:], os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # a request of a commit that hangs would keep the process past its grace
