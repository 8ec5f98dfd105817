"""A NumPy network that learns to read digits: small, and the same to the last bit however often it is interrupted."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.errors import BadData, CorruptCheckpoint
from spillway.trainer.session import Checkpoint, Session

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PIXELS, HIDDEN, CLASSES = 64, 64, 10
BATCH = 64
LEARNING_RATE, MOMENTUM = 0.1, 0.9
HELD_OUT_EVERY = 5
_SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
_PARAMETERS = sum(int(np.prod(shape)) for shape in _SHAPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Images as rows of pixels in [0, 1], and their digits. ``sha256`` is of all objects with their names."""

    pixels: Floats
    digits: Integers
    sha256: str

    @property
    def training(self) -> Integers:
        """The rows to learn from; every fifth is held out."""
        rows = np.arange(len(self.digits))
        return np.delete(rows, self.held_out)

    @property
    def held_out(self) -> Integers:
        return np.arange(0, len(self.digits), HELD_OUT_EVERY)


def read_samples(objects: Mapping[str, bytes]) -> Samples:
    """The samples of all objects, in the order of names and lines.

    Raises:
        BadData: a line is not 64 pixels from 0 to 16 and a digit, or there are fewer than ten samples.
    """
    rows = [_row(name, number, line) for name in sorted(objects) for number, line in _lines(objects[name])]
    if len(rows) < CLASSES:
        raise BadData("data set", f"expected at least {CLASSES} samples, got {len(rows)}")
    table = np.array(rows, dtype=np.int64)
    digest = hashlib.sha256()
    for name in sorted(objects):
        digest.update(name.encode() + b"\0" + hashlib.sha256(objects[name]).digest())
    return Samples(pixels=table[:, :PIXELS] / 16.0, digits=table[:, PIXELS], sha256=digest.hexdigest())


def _lines(body: bytes) -> list[tuple[int, bytes]]:
    return [(number, line) for number, line in enumerate(body.splitlines(), start=1) if line.strip()]


def _row(name: str, number: int, line: bytes) -> list[int]:
    fields = line.split(b",")
    if len(fields) != PIXELS + 1:
        raise BadData(f"{name}: line {number}", f"expected {PIXELS + 1} numbers, got {len(fields)}")
    try:
        row = [int(field) for field in fields]
    except ValueError as problem:
        raise BadData(f"{name}: line {number}", f"expected integers ({problem})") from problem
    if not all(0 <= value <= 16 for value in row) or row[-1] >= CLASSES:
        raise BadData(f"{name}: line {number}", "expected pixels from 0 to 16 and then a digit")
    return row


class Digits:
    """One hidden layer, cross-entropy, stochastic gradient descent with momentum; all in float64.

    The order of the batches follows from the seed, the epoch and the place in it alone.
    """

    def __init__(self, samples: Samples, *, seed: int) -> None:
        random = np.random.default_rng(seed)
        self._samples, self._seed = samples, seed
        self._rows = samples.training
        self._epoch, self._batch = 0, 0
        self._weights = np.zeros(_PARAMETERS)
        for layer, shape in zip(_views(self._weights), _SHAPES, strict=True):
            if len(shape) > 1:
                layer[...] = random.standard_normal(shape) / np.sqrt(shape[0])
        self._velocity = np.zeros(_PARAMETERS)

    def step(self) -> float:
        rows = self._next_rows()
        loss, gradient = _loss_and_gradient(self._weights, self._samples.pixels[rows], self._samples.digits[rows])
        self._velocity = MOMENTUM * self._velocity - LEARNING_RATE * gradient
        self._weights += self._velocity
        return loss

    def _next_rows(self) -> Integers:
        order = np.random.default_rng([self._seed, self._epoch]).permutation(self._rows)
        rows = order[self._batch * BATCH : (self._batch + 1) * BATCH]
        self._batch += 1
        if self._batch * BATCH >= len(order):
            self._epoch, self._batch = self._epoch + 1, 0
        return rows

    def checkpoint(self) -> Checkpoint:
        cursor = {
            "seed": self._seed,
            "epoch": self._epoch,
            "batch": self._batch,
            "dataset_sha256": self._samples.sha256,
        }
        parts = {"weights.npy": _packed(self._weights), "velocity.npy": _packed(self._velocity)}
        return Checkpoint(parts=parts, data_cursor=cursor)

    def restore(self, session: Session) -> None:
        """Go on where the session's checkpoint ended.

        Raises:
            BadData: the data set or the seed is not the one that the checkpoint was trained with.
            CorruptCheckpoint: a part does not hold this network's numbers.
        """
        manifest = session.resumed_from
        assert manifest is not None
        cursor = manifest.data_cursor
        for name, here in (("dataset_sha256", self._samples.sha256), ("seed", self._seed)):
            if cursor.get(name) != here:
                seen = f"the checkpoint of step {manifest.step} was trained with {name} {cursor.get(name)}"
                raise BadData("data set", f"{seen}, here it is {here}; sync the data set as it was")
        self._epoch, self._batch = int(cursor["epoch"]), int(cursor["batch"])
        self._weights = _unpacked(session, "weights.npy")
        self._velocity = _unpacked(session, "velocity.npy")

    def summary(self) -> Mapping[str, float]:
        rows = self._samples.held_out
        _, scores = _forward(self._weights, self._samples.pixels[rows])
        return {"held_out_accuracy": float(np.mean(scores.argmax(axis=1) == self._samples.digits[rows]))}


def build(session: Session) -> Digits:
    """The program of this attempt, restored where it resumes."""
    program = Digits(read_samples(session.dataset()), seed=session.contract.seed)
    if session.resumed_from is not None:
        program.restore(session)
    return program


def _views(vector: Floats) -> list[Floats]:
    """The layers' arrays as views into one vector, in the order of ``_SHAPES``."""
    ends = np.cumsum([int(np.prod(shape)) for shape in _SHAPES])
    return [part.reshape(shape) for part, shape in zip(np.split(vector, ends[:-1]), _SHAPES, strict=True)]


def _forward(weights: Floats, pixels: Floats) -> tuple[Floats, Floats]:
    first, first_bias, second, second_bias = _views(weights)
    hidden = np.tanh(pixels @ first + first_bias)
    return hidden, hidden @ second + second_bias


def _loss_and_gradient(weights: Floats, pixels: Floats, digits: Integers) -> tuple[float, Floats]:
    """Mean cross-entropy of a batch and its gradient, as one vector like ``weights``."""
    hidden, scores = _forward(weights, pixels)
    scores = scores - scores.max(axis=1, keepdims=True)
    logarithms = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    every = np.arange(len(digits))
    loss = -float(logarithms[every, digits].mean())
    slope = np.exp(logarithms)
    slope[every, digits] -= 1.0
    slope /= len(digits)
    inner = (slope @ _views(weights)[2].T) * (1.0 - hidden**2)
    parts = (pixels.T @ inner, inner.sum(axis=0), hidden.T @ slope, slope.sum(axis=0))
    return loss, np.concatenate([part.ravel() for part in parts])


def _packed(vector: Floats) -> bytes:
    target = io.BytesIO()
    np.save(target, vector, allow_pickle=False)
    return target.getvalue()


def _unpacked(session: Session, name: str) -> Floats:
    try:
        vector: Floats = np.load(io.BytesIO(session.load(name)), allow_pickle=False)
    except ValueError as problem:
        raise CorruptCheckpoint(
            session.contract.run, session.contract.first_step - 1, f"{name}: {problem}"
        ) from problem
    if vector.shape != (_PARAMETERS,) or vector.dtype != np.float64:
        problem_text = f"{name}: expected {_PARAMETERS} float64 numbers, got {vector.shape} {vector.dtype}"
        raise CorruptCheckpoint(session.contract.run, session.contract.first_step - 1, problem_text)
    return vector
