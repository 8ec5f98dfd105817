"""The same contract with PyTorch: what a real training script has to do, and nothing more.

PyTorch comes with the training image; Spillway itself does not need it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]

from spillway.errors import CorruptCheckpoint
from spillway.trainer.digits import BATCH, CLASSES, HIDDEN, LEARNING_RATE, MOMENTUM, PIXELS, Samples, read_samples
from spillway.trainer.session import Checkpoint, Session

MODEL, OPTIMIZER = "model.pt", "optimizer.pt"


class TorchDigits:
    """The digits network on the GPU where there is one, and its optimizer."""

    def __init__(self, samples: Samples, *, seed: int) -> None:
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(1)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._samples, self._seed, self._next_step = samples, seed, 1
        self._rows = samples.training
        self._model = torch.nn.Sequential(
            torch.nn.Linear(PIXELS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, CLASSES)
        ).to(self._device, torch.float64)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    def step(self) -> float:
        batches = -(-len(self._rows) // BATCH)
        epoch, batch = divmod(self._next_step - 1, batches)
        order = np.random.default_rng([self._seed, epoch]).permutation(self._rows)
        pixels, digits = self._tensors(order[batch * BATCH : (batch + 1) * BATCH])
        self._optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self._model(pixels), digits)
        loss.backward()
        self._optimizer.step()
        self._next_step += 1
        return float(loss.item())

    def checkpoint(self) -> Checkpoint:
        parts = {MODEL: _packed(self._model.state_dict()), OPTIMIZER: _packed(self._optimizer.state_dict())}
        return Checkpoint(parts=parts, data_cursor={"next_step": self._next_step, "seed": self._seed})

    def restore(self, session: Session) -> None:
        """Go on where the session's checkpoint ended; raises CorruptCheckpoint where a part cannot be read."""
        assert session.resumed_from is not None
        self._next_step = int(session.resumed_from.data_cursor["next_step"])
        try:
            self._model.load_state_dict(_unpacked(session, MODEL, self._device))
            self._optimizer.load_state_dict(_unpacked(session, OPTIMIZER, self._device))
        except (pickle.UnpicklingError, EOFError, RuntimeError, ValueError, KeyError) as problem:
            step = session.contract.first_step - 1
            seen = f"PyTorch cannot load it ({type(problem).__name__})"
            raise CorruptCheckpoint(session.contract.run, step, seen) from problem

    def summary(self) -> Mapping[str, float]:
        pixels, digits = self._tensors(self._samples.held_out)
        with torch.no_grad():
            right = self._model(pixels).argmax(dim=1) == digits
        return {"held_out_accuracy": float(right.double().mean().item())}

    def _tensors(self, rows: Any) -> tuple[Any, Any]:
        pixels = torch.from_numpy(self._samples.pixels[rows]).to(self._device)
        return pixels, torch.from_numpy(self._samples.digits[rows]).to(self._device)


def build(session: Session) -> TorchDigits:
    """The program of this attempt, restored where it resumes."""
    program = TorchDigits(read_samples(session.dataset()), seed=session.contract.seed)
    if session.resumed_from is not None:
        program.restore(session)
    return program


def _packed(state: Mapping[str, Any]) -> bytes:
    target = io.BytesIO()
    torch.save(state, target)
    return target.getvalue()


def _unpacked(session: Session, name: str, device: str) -> Any:
    return torch.load(io.BytesIO(session.load(name)), map_location=device, weights_only=True)
