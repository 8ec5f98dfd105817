"""What an hour of a GPU, or of a core, costs a job at a place, with what bringing its data there costs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import NamedTuple

from spillway.model import Candidate, JobSpec, TransferEstimate
from spillway.placement.context import Context

UNSAID_DURATION = timedelta(hours=1)
"""A transfer is spread over the time that the job trains. Where nobody said how long that is, over this: so short that
data is brought far only where that hardly costs anything."""

_NO_TRANSFER = (Decimal(1), Decimal(0))
_HOUR = Decimal(timedelta(hours=1) // timedelta(microseconds=1))


def transfer_to(job: JobSpec, cluster: str, context: Context) -> TransferEstimate | None:
    """What all of the job's data takes to get there; None where it has none, or where nobody looked."""
    return context.once(("transfers", job.datasets, cluster), lambda: _together(job, cluster, context))


def _together(job: JobSpec, cluster: str, context: Context) -> TransferEstimate | None:
    """One after the other; where nothing is known of one of them nothing is known of all."""
    parts = [context.transfer(use, cluster) for use in job.datasets]
    if len(parts) < 2 or not any(parts):
        return next(iter(parts), None)
    sizes, durations, egresses = [], [], []
    for part in parts:
        if part is None or part.size_bytes is None or part.duration is None or part.egress is None:
            return TransferEstimate()
        sizes.append(part.size_bytes)
        durations.append(part.duration)
        egresses.append(part.egress)
    return TransferEstimate(
        size_bytes=sum(sizes), duration=sum(durations, timedelta()), egress=sum(egresses, Decimal(0))
    )


def full_price(price: Decimal, job: JobSpec, transfer: TransferEstimate | None) -> Decimal | None:
    """The price of a GPU-hour with the transfer in it: its egress, and the GPUs that are held while it lasts.

    Per GPU-hour of training: ``price * (1 + transfer / training) + egress / (GPUs * training)``. None where the
    transfer is unknown.
    """
    terms = _terms(job, transfer)
    return None if terms is None else price * terms[0] + terms[1]


class Costs(NamedTuple):
    """What a transfer multiplies the prices of each cluster with and adds to them, and the highest price with it."""

    terms: Mapping[str, tuple[Decimal, Decimal] | None]
    dearest: Decimal

    def full_price(self, job: JobSpec, candidate: Candidate, context: Context) -> Decimal | None:
        """That of a candidate with a price."""
        terms, price = self.terms[candidate.cluster], context.price(job, candidate)
        return None if terms is None or price is None else price * terms[0] + terms[1]


def costs(job: JobSpec, context: Context) -> Costs:
    """Those of the job; ``dearest`` is 0 where no price is known."""

    def worked_out() -> Costs:
        terms = {cluster: _terms(job, transfer_to(job, cluster, context)) for cluster in context.clusters}
        full = (
            price * known[0] + known[1]
            for (cluster, of_cores), price in context.dearest.items()
            if of_cores is not bool(job.gpus_per_node) and (known := terms[cluster]) is not None
        )
        return Costs(terms, max(full, default=Decimal(0)))

    key = ("costs", job.datasets, job.priced_units, not job.gpus_per_node, job.expected_duration)
    return context.once(key, worked_out)


def _terms(job: JobSpec, transfer: TransferEstimate | None) -> tuple[Decimal, Decimal] | None:
    """What a transfer multiplies the price with, and what it adds to it."""
    if transfer is None or not job.priced_units:
        return _NO_TRANSFER
    if transfer.duration is None or transfer.egress is None:
        return None
    hours = _hours(job.expected_duration or UNSAID_DURATION)
    return 1 + _hours(transfer.duration) / hours, transfer.egress / (job.priced_units * hours)


def _hours(duration: timedelta) -> Decimal:
    return Decimal(duration // timedelta(microseconds=1)) / _HOUR
