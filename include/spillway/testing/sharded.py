"""A rank of a sharded training as a process of its own: PyTorch's DTensors on CPUs, saved with every rank's own shards.

    python -m spillway.testing.sharded RENDEZVOUS SCRATCH [--dies-at STEP] [--held-at STEP --held-by FILE] [--beside]
        [--sends-for SECONDS]

The variables of the contract and of ``torchrun`` say the rest. The last line is what the rank holds, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]
import torch.distributed as dist  # type: ignore[import-not-found]
import torch.distributed.checkpoint as dcp  # type: ignore[import-not-found]
from torch.distributed.device_mesh import init_device_mesh  # type: ignore[import-not-found]
from torch.distributed.tensor import Shard, distribute_tensor  # type: ignore[import-not-found]

from spillway.checkpoints.store import CheckpointStore
from spillway.errors import Fenced
from spillway.model import CheckpointPart, ExitCode
from spillway.trainer.contract import read_contract
from spillway.trainer.dcp import SessionWriter, agree, load, save
from spillway.trainer.session import Session
from spillway.trainer.stop import StopSignal

ROWS = 12


def main(arguments: list[str]) -> int:
    """Train the steps of the contract; the exit code is that of a trainer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rendezvous")
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--dies-at", type=int)
    parser.add_argument("--held-at", type=int)
    parser.add_argument("--held-by", type=Path)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--sends-for", type=float, default=0.0)
    options = parser.parse_args(arguments)
    contract = read_contract(os.environ)
    session = Session(
        contract,
        StopSignal(),
        data=contract.store.bucket(contract.dataset_bucket),
        checkpoints=CheckpointStore(contract.store.bucket(contract.checkpoint_bucket), contract.run),
    )
    session.begin()
    ranks = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{options.rendezvous}", rank=contract.rank, world_size=ranks)
    try:
        return _train(session, _state(ranks), options)
    except Fenced as problem:
        print(problem, file=sys.stderr, flush=True)
        return ExitCode.FENCED


def _state(ranks: int) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (ranks,))
    rows = torch.arange(ROWS * 4.0).reshape(ROWS, 4)
    return {
        "trained": distribute_tensor(rows.clone(), mesh, [Shard(0)]),
        "frozen": distribute_tensor(rows + 1000, mesh, [Shard(0)]),
        "next": 1,
    }


def _train(session: Session, state: dict[str, Any], options: argparse.Namespace) -> int:
    contract = session.contract
    if session.resumed_from is not None:
        load(session, state, options.scratch)
    send = session.send

    def send_slowly(step: int, parts: Mapping[str, bytes | Path]) -> tuple[CheckpointPart, ...]:
        time.sleep(options.sends_for)
        return send(step, parts)

    session.send = send_slowly  # type: ignore[method-assign]
    saving: Any = None
    for step in range(contract.first_step, contract.total_steps + 1):
        session.report(step, 1 / step)
        if saving is not None:  # the step before, beside which this one was trained; it may hold the state itself
            saving.result()
            saving = None
        state["trained"] += step
        state["next"] = step + 1
        turn, last = agree(session, step), step == contract.total_steps
        if step == options.dies_at:
            session.send = lambda *_: os._exit(9)  # type: ignore[method-assign]
        if step == options.held_at:
            print("held", flush=True)
            while not options.held_by.exists():
                time.sleep(0.05)
        if options.beside and not last:
            writer = SessionWriter(session, options.scratch, data_cursor={"next": step + 1})
            saving = dcp.async_save(state, storage_writer=writer, process_group=dist.new_group(backend="gloo"))
        elif turn.commit or last:
            save(session, state, options.scratch, data_cursor={"next": step + 1}, last=last)
    session.settle()
    held = {name: state[name].full_tensor().sum().item() for name in ("trained", "frozen")}
    print(json.dumps({**held, "next": state["next"], "scratch": len(list(options.scratch.iterdir()))}), flush=True)
    return ExitCode.SUCCEEDED


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a gang that has lost a rank waits for it in its destructors
