"""The contract between the platform and training code: the environment it is given."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from spillway.errors import ConfigError, UnknownName
from spillway.model import CheckpointManifest, KeyScope
from spillway.stores.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess:
    """One object store that the pod works with. ``ca_file`` vouches for it in the place of whom the image trusts;
    ``file:///folder`` keeps buckets as folders, for trying out."""

    endpoint: str
    region: str
    access_key: str
    secret_key: str = field(repr=False)
    ca_file: Path | None = None

    def bucket(self, name: str, *, attempts: int = 4, timeout_seconds: float = 60) -> ObjectStore:
        """The bucket of that name; nothing is asked of the store yet.

        Args:
            attempts: tries of one request in all; 1 is none more, also where the store is only busy.
            timeout_seconds: silence after which a try counts as failed.
        """
        address = urlsplit(self.endpoint)
        if address.scheme == "file":
            from spillway.stores.local import LocalStore

            return LocalStore(Path(unquote(address.path)) / name)
        from spillway.stores.s3 import S3Endpoint, S3Store

        endpoint = S3Endpoint(
            url=self.endpoint,
            region=self.region,
            access_key=self.access_key,
            secret_key=self.secret_key,
            ca_file=self.ca_file,
            attempts=attempts,
            timeout_seconds=timeout_seconds,
        )
        return S3Store(name=f"s3://{name}@{address.netloc}", endpoint=endpoint, bucket=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAccess:
    """Where the pod keeps, encrypted, what it reads of data that may not be stored at its site."""

    store: StoreAccess
    bucket: str
    prefix: str
    key: str = field(repr=False)
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetAccess:
    """What of the dataset bucket belongs to a data set: by ``record``, the key of the record that says so, or where
    that is None, at the data set's home, all that ``scope`` holds.
    """

    scope: KeyScope
    record: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """One attempt as its container sees it. ``resume_manifest`` is None for a run that begins with step 1.

    ``dataset`` is the first one that the job file names, ``datasets`` are all of them by name.
    ``store_patience``: how long the site's store may be silent before the attempt ends. Training goes on meanwhile.
    ``rank`` is of this pod among those of its gang, and where ``torchrun`` starts several processes in a pod, of this
    process among all; 0 is the first one, and one that is alone.
    """

    run: str
    attempt: int
    resume_manifest: str | None
    resumed_from_step: int | None
    store: StoreAccess
    checkpoint_bucket: str
    dataset_bucket: str
    dataset: DatasetAccess
    grace: timedelta
    store_patience: timedelta
    total_steps: int
    checkpoint_every: int
    step_pause: timedelta
    seed: int
    rank: int
    cache: CacheAccess | None = None
    datasets: Mapping[str, DatasetAccess] = field(default_factory=dict)

    def dataset_of(self, name: str | None) -> DatasetAccess:
        """The data set of that name, None is the first; raises UnknownName where the job reads none of that name."""
        if name is None:
            return self.dataset
        if name not in self.datasets:
            raise UnknownName("data set", name, self.datasets)
        return self.datasets[name]

    @property
    def first_step(self) -> int:
        return (self.resumed_from_step or 0) + 1

    def check_step(self, manifest: CheckpointManifest) -> None:
        """Refuse to go on from the manifest where it is of another step than was promised, or beyond the last one."""
        if manifest.step != self.resumed_from_step:
            problem = f"expected {manifest.step} as in the manifest, got {self.resumed_from_step}"
            raise ConfigError("environment", "SPILLWAY_RESUMED_FROM_STEP", problem)
        if manifest.step > self.total_steps:
            seen = f"expected at least {manifest.step}, the step of the run's checkpoint, got {self.total_steps}"
            fix = "give the job as many steps, or open another run of it"
            raise ConfigError("environment", "SPILLWAY_STEPS", f"{seen}; {fix}")


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
        store=_store_access(environ, "SPILLWAY_STORE"),
        checkpoint_bucket=_text(environ, "SPILLWAY_CHECKPOINT_BUCKET"),
        dataset_bucket=_text(environ, "SPILLWAY_DATASET_BUCKET"),
        dataset=DatasetAccess(
            scope=KeyScope(
                prefix=environ.get("SPILLWAY_DATASET_PREFIX", ""),
                include=_patterns(environ, "SPILLWAY_DATASET_INCLUDE"),
                exclude=_patterns(environ, "SPILLWAY_DATASET_EXCLUDE"),
            ),
            record=environ.get("SPILLWAY_DATASET_RECORD") or None,
        ),
        datasets=_datasets(environ, "SPILLWAY_DATASETS"),
        grace=timedelta(seconds=_seconds(environ, "SPILLWAY_GRACE_SECONDS", default="30")),
        store_patience=timedelta(seconds=_seconds(environ, "SPILLWAY_STORE_PATIENCE_SECONDS", default="60")),
        total_steps=_required_integer(environ, "SPILLWAY_STEPS", least=1),
        checkpoint_every=_required_integer(environ, "SPILLWAY_CHECKPOINT_EVERY", least=1),
        step_pause=timedelta(seconds=_seconds(environ, "SPILLWAY_STEP_SECONDS", default="0")),
        seed=_required_integer(environ, "SPILLWAY_SEED", least=0, default="0"),
        rank=_rank(environ),
        cache=_cache_access(environ) if environ.get("SPILLWAY_CACHE_KEY") else None,
    )


def _rank(environ: Mapping[str, str]) -> int:
    under_torchrun = all(environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    return _required_integer(environ, "RANK" if under_torchrun else "JOB_COMPLETION_INDEX", least=0, default="0")


def _cache_access(environ: Mapping[str, str]) -> CacheAccess:
    return CacheAccess(
        store=_store_access(environ, "SPILLWAY_CACHE"),
        bucket=_text(environ, "SPILLWAY_CACHE_BUCKET"),
        prefix=_text(environ, "SPILLWAY_CACHE_PREFIX"),
        key=_text(environ, "SPILLWAY_CACHE_KEY"),
        limit_bytes=_required_integer(environ, "SPILLWAY_CACHE_BYTES", least=1),
    )


def _store_access(environ: Mapping[str, str], name: str) -> StoreAccess:
    endpoint = _text(environ, f"{name}_ENDPOINT")
    if urlsplit(endpoint).scheme not in {"http", "https", "file"}:
        problem = f"expected an http, https or file URL, got '{endpoint}'"
        raise ConfigError("environment", f"{name}_ENDPOINT", problem)
    ca_file = environ.get(f"{name}_CA_FILE")
    if ca_file and not Path(ca_file).is_file():
        problem = f"expected the path of a certificate file, there is none at '{ca_file}'"
        raise ConfigError("environment", f"{name}_CA_FILE", problem)
    return StoreAccess(
        endpoint=endpoint,
        region=_text(environ, f"{name}_REGION"),
        access_key=_text(environ, f"{name}_ACCESS_KEY"),
        secret_key=_text(environ, f"{name}_SECRET_KEY"),
        ca_file=Path(ca_file) if ca_file else None,
    )


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise ConfigError("environment", name, "expected a value, it is not set; the platform sets it in the pod")
    return value


def _patterns(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Patterns as a JSON list; none where the variable is not set."""
    text = environ.get(name) or "[]"
    try:
        patterns = json.loads(text)
    except ValueError:
        patterns = None
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise ConfigError("environment", name, f"expected a JSON list of patterns, got '{text}'")
    return tuple(patterns)


def _datasets(environ: Mapping[str, str], name: str) -> dict[str, DatasetAccess]:
    """Data sets as a JSON list, by name; none where the variable is not set. Keys of later releases are passed over."""
    text = environ.get(name) or "[]"
    try:
        return {
            str(one["name"]): DatasetAccess(
                scope=KeyScope(prefix=one["prefix"], include=tuple(one["include"]), exclude=tuple(one["exclude"])),
                record=one["record"] or None,
            )
            for one in json.loads(text)
        }
    except (ValueError, TypeError, KeyError) as problem:
        seen = f"expected a JSON list of data sets as the platform writes it, got '{text}'"
        raise ConfigError("environment", name, seen) from problem


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
