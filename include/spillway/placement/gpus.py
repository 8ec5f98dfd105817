"""What kind of GPUs a place has, and in what parts they are given away."""

from __future__ import annotations

from spillway.model import Candidate, JobSpec, Rejection
from spillway.placement.context import Context
from spillway.placement.filters import never


def gpu_model(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    pool = context.pool(candidate)
    if job.gpu_model in {None, pool.gpu_model}:
        return None
    return never("gpu-model", f"needs {job.gpu_model}, the pool has {pool.gpu_model or 'no GPUs'}")


def gpu_memory(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Of the part that it takes, where it takes a part."""
    pool = context.pool(candidate)
    has = pool.gpu_memory_gib if pool.gpu_share is None else pool.gpu_share.memory_gib
    if job.gpu_memory_gib <= has:
        return None
    return never("gpu-memory", f"needs {job.gpu_memory_gib} GiB a GPU, the pool's have {has}")


def gpu_share(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """A job takes one part, and that part whole: what it asks for is what is kept from others and booked."""
    share = context.pool(candidate).gpu_share
    parts = None if share is None else share.fraction
    if job.gpu_fraction == parts or not job.gpus_per_node:
        return None
    wanted = "whole GPUs" if job.gpu_fraction is None else job.shape_in_words
    gives = "whole ones only" if parts is None else f"them in parts of {parts} only"
    return never("gpu-share", f"needs {wanted}, the pool gives {gives}")


def cpu_work(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Work without GPUs keeps off their nodes; to what needs GPUs ``node_shape`` says that a pool has none."""
    pool = context.pool(candidate)
    if job.gpus_per_node or not pool.gpus_per_node:
        return None
    return never(
        "cpu-work", f"needs no GPU, the pool's nodes have {pool.gpus_per_node}; only pools without GPUs take it"
    )
