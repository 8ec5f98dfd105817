"""The contract between the platform and training code: the environment it is given, the exit codes it answers with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from urllib.parse import urlsplit

from spillway.errors import ConfigError
from spillway.stores.base import ObjectStore


class ExitCode(IntEnum):
    """What the process says with its exit code."""

    SUCCEEDED = 0
    FAILED = 1
    """The program, its configuration or its store is at fault, or the last checkpoint could not be committed."""
    BAD_INPUT = 65
    """The data set or the checkpoint to resume from cannot be used."""
    PREEMPTED = 75
    """The stop signal came; everything trained so far is committed."""
    FENCED = 76
    """A newer attempt owns the run; nothing was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess:
    """The object store of the pod's site. ``file:///folder`` keeps buckets as folders, for trying out."""

    endpoint: str
    region: str
    access_key: str
    secret_key: str = field(repr=False)
    ca_file: Path | None = None

    def bucket(self, name: str) -> ObjectStore:
        """The bucket of that name; nothing is asked of the store yet."""
        address = urlsplit(self.endpoint)
        if address.scheme == "file":
            from spillway.stores.local import LocalStore

            return LocalStore(Path(address.path) / name)
        from spillway.stores.s3 import open_store

        return open_store(
            name=address.netloc,
            bucket=name,
            endpoint_url=self.endpoint,
            region=self.region,
            access_key=self.access_key,
            secret_key=self.secret_key,
            ca_file=self.ca_file,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """One attempt as its container sees it. ``resume_manifest`` is None for a run that begins with step 1."""

    run: str
    attempt: int
    resume_manifest: str | None
    resumed_from_step: int | None
    store: StoreAccess
    checkpoint_bucket: str
    dataset_bucket: str
    dataset_prefix: str
    grace: timedelta
    total_steps: int
    checkpoint_every: int
    step_pause: timedelta
    seed: int

    @property
    def first_step(self) -> int:
        return (self.resumed_from_step or 0) + 1


def read_contract(environ: Mapping[str, str]) -> Contract:
    """The contract that the variables describe.

    Raises:
        ConfigError: a variable is missing or has a value it cannot have; it is named with what was expected.
    """
    resume_manifest = environ.get("SPILLWAY_RESUME_MANIFEST") or None
    resumed_from_step = _integer(environ, "SPILLWAY_RESUMED_FROM_STEP", least=1, default="")
    if (resume_manifest is None) != (resumed_from_step is None):
        seen = f"got '{resume_manifest or ''}' and '{resumed_from_step or ''}'"
        problem = f"expected both or neither of SPILLWAY_RESUME_MANIFEST and SPILLWAY_RESUMED_FROM_STEP, {seen}"
        raise ConfigError("environment", "SPILLWAY_RESUME_MANIFEST", problem)
    return Contract(
        run=_text(environ, "SPILLWAY_RUN"),
        attempt=_required_integer(environ, "SPILLWAY_ATTEMPT", least=1),
        resume_manifest=resume_manifest,
        resumed_from_step=resumed_from_step,
        store=_store_access(environ),
        checkpoint_bucket=_text(environ, "SPILLWAY_CHECKPOINT_BUCKET"),
        dataset_bucket=_text(environ, "SPILLWAY_DATASET_BUCKET"),
        dataset_prefix=environ.get("SPILLWAY_DATASET_PREFIX", ""),
        grace=timedelta(seconds=_seconds(environ, "SPILLWAY_GRACE_SECONDS", default="30")),
        total_steps=_required_integer(environ, "SPILLWAY_STEPS", least=1),
        checkpoint_every=_required_integer(environ, "SPILLWAY_CHECKPOINT_EVERY", least=1),
        step_pause=timedelta(seconds=_seconds(environ, "SPILLWAY_STEP_SECONDS", default="0")),
        seed=_required_integer(environ, "SPILLWAY_SEED", least=0, default="0"),
    )


def _store_access(environ: Mapping[str, str]) -> StoreAccess:
    endpoint = _text(environ, "SPILLWAY_STORE_ENDPOINT")
    if urlsplit(endpoint).scheme not in {"http", "https", "file"}:
        problem = f"expected an http, https or file URL, got '{endpoint}'"
        raise ConfigError("environment", "SPILLWAY_STORE_ENDPOINT", problem)
    ca_file = environ.get("SPILLWAY_STORE_CA_FILE")
    if ca_file and not Path(ca_file).is_file():
        problem = f"expected the path of a certificate file, there is none at '{ca_file}'"
        raise ConfigError("environment", "SPILLWAY_STORE_CA_FILE", problem)
    return StoreAccess(
        endpoint=endpoint,
        region=_text(environ, "SPILLWAY_STORE_REGION"),
        access_key=_text(environ, "SPILLWAY_STORE_ACCESS_KEY"),
        secret_key=_text(environ, "SPILLWAY_STORE_SECRET_KEY"),
        ca_file=Path(ca_file) if ca_file else None,
    )


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise ConfigError("environment", name, "expected a value, it is not set; the platform sets it in the pod")
    return value


def _integer(environ: Mapping[str, str], name: str, *, least: int, default: str) -> int | None:
    text = environ.get(name) or default
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ConfigError("environment", name, f"expected an integer of at least {least}, got '{text}'")
    return int(text)


def _required_integer(environ: Mapping[str, str], name: str, *, least: int, default: str = "") -> int:
    value = _integer(environ, name, least=least, default=default)
    if value is None:
        raise ConfigError("environment", name, f"expected an integer of at least {least}, it is not set")
    return value


def _seconds(environ: Mapping[str, str], name: str, *, default: str) -> float:
    text = environ.get(name) or default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ConfigError("environment", name, f"expected a number of seconds, got '{text}'")
    return seconds
