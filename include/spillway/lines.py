"""The lines between sites: which one limits a transfer, how long it takes and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal

from spillway.model import Cluster, SiteKind, TransferEstimate

BYTES_PER_GIGABIT = 1e9 / 8
GIBIBYTE = 1 << 30
MEBIBYTE = 1 << 20


def link_between(one: Cluster, other: Cluster) -> Cluster:
    """The site whose line limits what goes between the two: the slower one; of two equal ones that of the cloud."""
    return min(one, other, key=lambda site: (site.link.bandwidth_gbps, site.kind is SiteKind.ONPREM, site.name))


def bytes_per_second(link: Cluster, measured: Mapping[str, float]) -> float:
    """What the site's line carries: as it was measured, before that as it is declared.

    A measurement of nothing is none: the line stood still.
    """
    rate = measured.get(link.name, 0.0)
    return rate if rate > 0 else link.link.bandwidth_gbps * BYTES_PER_GIGABIT


def transfer(
    size_bytes: int | None, source: Cluster, target: Cluster, measured: Mapping[str, float]
) -> TransferEstimate:
    """What bringing that many bytes from one site to the other takes; of an unknown size nothing is known.

    Args:
        measured: bytes a second that lines were measured to carry, by the name of their site.
    """
    if size_bytes == 0 or source.name == target.name:
        return TransferEstimate(size_bytes=0, duration=timedelta(), egress=Decimal(0))
    if size_bytes is None:
        return TransferEstimate()
    rate = bytes_per_second(link_between(source, target), measured)
    return TransferEstimate(
        size_bytes=size_bytes,
        duration=timedelta(seconds=size_bytes / rate),
        egress=source.link.egress_price_per_gib * size_bytes / GIBIBYTE,
    )
