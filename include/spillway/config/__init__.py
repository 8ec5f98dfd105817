"""Declared facts and policy: YAML files, validated once and given as the values of ``model``."""

from spillway.config.directories import configuration_directory, job_file, jobs_directory
from spillway.config.job_files import load_image_uses, load_job
from spillway.config.load import Configuration, load, load_candidate, load_iteration

__all__ = [
    "Configuration",
    "configuration_directory",
    "job_file",
    "jobs_directory",
    "load",
    "load_candidate",
    "load_image_uses",
    "load_iteration",
    "load_job",
]
