"""Identities and keys in a namespace with which its pods may not read, or keep, anything any more.

Those of datasets that are read at another site, and that for public parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from spillway.clouds.base import ClusterClient
from spillway.model import AttemptState, Cluster, Tier
from spillway.runs.pod_access import OF_PARTS, of_readers, store_names
from spillway.runs.services import Services


def withdrawn(services: Services, cluster: Cluster, client: ClusterClient) -> tuple[tuple[str, str], ...]:
    """Kind and name of the Secrets and ConfigMaps that nothing which is declared and no open attempt needs.

    The cluster is asked first: whoever writes one for a launch has an open attempt before.

    Raises:
        SpillwayError: the cluster does not tell.
    """
    installation = services.ledger.installation()
    own = "|".join(re.escape(name) for name in store_names(installation).values())
    special = re.compile(f"({own})({OF_PARTS}|-[0-9a-f]{{8}})")
    there = [(kind, name) for kind, name in client.applied(installation) if special.fullmatch(name)]
    needed = {*_declared(services, cluster, installation), *_in_use(services, cluster, installation)} if there else ()
    return tuple((kind, name) for kind, name in there if name not in needed)


def _declared(services: Services, cluster: Cluster, installation: str) -> Iterator[str]:
    """Those of datasets that may be read from there, and of public parts where it has an identity for these.

    Where core data may be stored it is read there itself.
    """
    if cluster.object_store.public_pod_connection is not None:
        yield from store_names(installation, OF_PARTS).values()
    for dataset in services.configuration.datasets.values():
        if dataset.remote_read is not None and not cluster.may_hold(Tier.CORE):
            names = store_names(installation, of_readers(dataset.name))
            kept = dataset.cache is not None and cluster.object_store.cache_connection is not None
            yield from (name for what, name in names.items() if kept or what in {"store", "store-ca"})


def _in_use(services: Services, cluster: Cluster, installation: str) -> Iterator[str]:
    for attempt in services.ledger.recent_attempts(services.clock()):
        if attempt.state is not AttemptState.SETTLED and attempt.candidate.cluster == cluster.name:
            for dataset in attempt.job.datasets:
                yield from store_names(installation, of_readers(dataset.name)).values()
            if attempt.job.reads_a_part:
                yield from store_names(installation, OF_PARTS).values()
