"""Who may use the cloud: nobody whom nothing allows it."""

from __future__ import annotations

from fnmatch import fnmatchcase

from spillway.model import Candidate, JobSpec, Rejection, SiteKind
from spillway.placement.context import Context


def cloud_access(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Whether the department may use this cluster with this billing, and whoever asks may ask for the department."""
    allowed = context.policy.cloud_access
    if allowed is None or context.cluster(candidate).kind is not SiteKind.CLOUD:
        return None
    access = allowed.get(job.department)
    if access is None:
        known = ", ".join(sorted(allowed)) or "none"
        return _denied(f"'{job.department}' may not use the cloud; departments that may (cloud_access): {known}")
    if access.clusters is not None and candidate.cluster not in access.clusters:
        return _denied(f"'{job.department}' may use {', '.join(sorted(access.clusters)) or 'none'} of the clouds only")
    if candidate.billing not in access.billing:
        return _denied(f"'{job.department}' may buy {', '.join(sorted(access.billing))} GPUs only")
    asked_by = context.snapshot.requester
    if access.dags and not any(fnmatchcase(asked_by or "", pattern) for pattern in access.dags):
        who = f"DAG '{asked_by}'" if asked_by else "no DAG"
        return _denied(f"for '{job.department}' only DAGs {', '.join(access.dags)} may use it, this is asked by {who}")
    return None


def _denied(reason: str) -> Rejection:
    return Rejection(rule="cloud-access", reason=reason, waits=False)
