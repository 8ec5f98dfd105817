"""Where the declared files are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spillway.errors import ConfigError, UnknownName

CONFIGURATION_VARIABLE = "SPILLWAY_CONFIG_DIR"
CONNECTIONS_VARIABLE = "SPILLWAY_CONNECTIONS"
JOBS_VARIABLE = "SPILLWAY_JOBS_DIR"
REPORTS_VARIABLE = "SPILLWAY_REPORTS_DIR"

_INCLUDE = Path(__file__).resolve().parents[2]


def configuration_directory(environ: Mapping[str, str]) -> Path:
    """The directory ``SPILLWAY_CONFIG_DIR`` names, else ``config`` beside the package."""
    return Path(environ.get(CONFIGURATION_VARIABLE) or _INCLUDE / "config")


def jobs_directory(environ: Mapping[str, str]) -> Path:
    """The directory ``SPILLWAY_JOBS_DIR`` names, else ``jobs`` beside the package."""
    return Path(environ.get(JOBS_VARIABLE) or _INCLUDE / "jobs")


def require_jobs(directory: Path) -> None:
    """Raises ConfigError where there is no such directory of job files."""
    if not directory.is_dir():
        raise ConfigError(str(directory), "", f"no such directory; {JOBS_VARIABLE} names the one with the job files")


def reports_directory(environ: Mapping[str, str]) -> Path | None:
    """The directory ``SPILLWAY_REPORTS_DIR`` names, None where reports are only logged."""
    named = environ.get(REPORTS_VARIABLE)
    return Path(named) if named else None


def job_file(directory: Path, name: str) -> Path:
    """The job file of that name, with or without ``.yaml``; it is always one of the directory's own files.

    Raises:
        ConfigError: there is no such directory.
        UnknownName: the directory has no such file.
    """
    require_jobs(directory)
    files = {path.stem: path for path in sorted(directory.glob("*.yaml"))}
    wanted = name.removesuffix(".yaml")
    if wanted in files:
        return files[wanted]
    raise UnknownName(f"job file in {directory}:", name, files)
