"""Every error that Spillway raises on purpose.

    SpillwayError
    ├── ConfigError             a declared file is wrong; nothing was started
    ├── UnknownName             a name that no configuration declares
    ├── Unreachable             an endpoint did not answer (a retry helps)
    ├── AccessDenied            an endpoint refused the credentials
    ├── RequestRefused          an endpoint understood a request and will not do it
    ├── InvalidImage            an image reference or manifest that cannot be used
    ├── Missing                 an object, bucket, image, tag or pod that should exist
    ├── PreconditionFailed      a conditional write lost its race
    ├── KeepsChanging           something that others changed again and again meanwhile (a retry helps)
    ├── DigestMismatch          bytes are not what their digest promises
    ├── KeyRefused              a key that a store cannot hold exactly as it is
    ├── StoreFull               a store or a disk that has no space left
    ├── IncompleteListing       a listing that cannot be trusted to be whole
    ├── Fenced                  a newer attempt owns the run
    ├── CorruptCheckpoint       a committed step whose bytes no longer match
    ├── CheckpointConflict      a step of an attempt that was written before, with other content
    ├── ForeignCheckpoint       a checkpoint that belongs to another run
    ├── NoValidCheckpoint       a run that must resume has nothing to resume from
    ├── ResidencyRefused        bytes that may not leave their site
    ├── DeletesRefused          a sync would delete more than its guard allows
    ├── SyncIncomplete          a dataset of which some objects could not be copied
    ├── MirrorIncomplete        a repository of which some tags are not at their destination
    ├── BadTrace                a history of jobs that cannot be read as one
    ├── BadData                 training data that cannot be used
    ├── CapacityNever           no declared capacity can ever hold the job
    ├── InsufficientHistory     a history without a measured step, or with too few for what is asked of it
    ├── LaunchRefused           a gate refused to start a pod
    ├── PoolRefused             a pool that is not scaled as it was asked for; what runs on it goes on
    ├── TrainingFailed          the program itself failed; starting it elsewhere would not help
    ├── MoveRefused             a run that is not moved; it goes on where it is
    ├── NoProgress              attempts in a row that committed nothing new
    ├── ResumeMismatch          an attempt that did not continue where its checkpoint ended
    ├── RunCancelled            a run that a person has ended
    ├── PlanChanged             nothing of an approved plan holds any more
    ├── ScalerBusy              another one scales the node pools just now (a retry helps)
    ├── TurnLost                another one has scaled since the plan was made (a retry helps)
    ├── IllegalTransition       an attempt asked to move where its state machine has no edge
    └── SandboxError            the embedded sandbox could not be set up or driven

A message says what was seen, what was expected and what to do. ``retry_helps`` tells a caller whether the same call
may succeed later without anybody changing anything.
"""

from __future__ import annotations

from spillway.errors.checkpoints import (
    CheckpointConflict,
    CorruptCheckpoint,
    Fenced,
    ForeignCheckpoint,
    NoValidCheckpoint,
)
from spillway.errors.endpoints import (
    AccessDenied,
    DigestMismatch,
    IncompleteListing,
    InvalidImage,
    KeepsChanging,
    KeyRefused,
    Missing,
    PoolRefused,
    PreconditionFailed,
    RequestRefused,
    StoreFull,
    Unreachable,
)
from spillway.errors.movement import DeletesRefused, MirrorIncomplete, ResidencyRefused, SyncIncomplete
from spillway.errors.root import ConfigError, SpillwayError, UnknownName
from spillway.errors.runs import (
    BadData,
    BadTrace,
    CapacityNever,
    IllegalTransition,
    InsufficientHistory,
    LaunchRefused,
    MoveRefused,
    NoProgress,
    ResumeMismatch,
    RunCancelled,
    SandboxError,
    TrainingFailed,
)
from spillway.errors.scaling import PlanChanged, ScalerBusy, TurnLost

__all__ = [
    "AccessDenied",
    "BadData",
    "BadTrace",
    "CapacityNever",
    "CheckpointConflict",
    "ConfigError",
    "CorruptCheckpoint",
    "DeletesRefused",
    "DigestMismatch",
    "Fenced",
    "ForeignCheckpoint",
    "IllegalTransition",
    "IncompleteListing",
    "InsufficientHistory",
    "InvalidImage",
    "KeepsChanging",
    "KeyRefused",
    "LaunchRefused",
    "MirrorIncomplete",
    "Missing",
    "MoveRefused",
    "NoProgress",
    "NoValidCheckpoint",
    "PlanChanged",
    "PoolRefused",
    "PreconditionFailed",
    "RequestRefused",
    "ResidencyRefused",
    "ResumeMismatch",
    "RunCancelled",
    "SandboxError",
    "ScalerBusy",
    "SpillwayError",
    "StoreFull",
    "SyncIncomplete",
    "TrainingFailed",
    "TurnLost",
    "UnknownName",
    "Unreachable",
]
