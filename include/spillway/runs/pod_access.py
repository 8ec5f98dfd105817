"""What a pod reaches stores and registry with: identities, addresses, certificates, as objects of its namespace."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from spillway.clouds.pod import PodAccess, pull_secret, store_ca, store_secret
from spillway.connections import ConnectionSpec
from spillway.errors import ConfigError
from spillway.model import Attempt, CacheRule
from spillway.runs.parts import public_identity
from spillway.runs.routes import let_read
from spillway.runs.services import Services
from spillway.runs.sites import ca_file, registry_host, store_endpoint
from spillway.stores.encrypted_cache import key_of, prefix_of


def _pod_store(services: Services, attempt: Attempt) -> ConnectionSpec:
    """The identity that the attempt's pod has at the stores it works with: its site's, or the one there for public
    parts, where it reads one beside core data; or its dataset's for reading it from other sites.

    Raises:
        ResidencyRefused: they are another site's, and nobody lets its dataset be read from there, or not any more.
    """
    cluster, public = attempt.candidate.cluster, public_identity(services, attempt)
    if services.store_site(attempt.job, cluster) == cluster:
        return services.site(cluster).pod_store if public is None else services.connect(public)
    dataset = services.dataset(attempt.job.datasets[0].name)
    return services.connect(let_read(services, dataset, cluster, run=attempt.run))


OF_PARTS = "-public"
"""How the names end of what pods have that read public parts, where core data is."""


def store_names(installation: str, whose: str = "") -> Mapping[str, str]:
    """What the objects are called that pods reach their stores with, by what each is for.

    Each installation has its own: another one in the same namespace may use another store. So has each dataset that is
    read from other sites (``whose``, see ``of_readers``), and so have pods that read public parts (``OF_PARTS``).
    """
    return {what: f"spillway-{what}-{installation}{whose}" for what in ("store", "store-ca", "cache", "cache-ca")}


def of_readers(dataset: str) -> str:
    """How the names end of what pods have that read the dataset at another site: a dash and eight digits (hex)."""
    return "-" + hashlib.sha256(dataset.encode()).hexdigest()[:8]


def pod_access(services: Services, attempt: Attempt) -> PodAccess:
    """What pods reach store and registry with."""
    installation, here = services.ledger.installation(), attempt.candidate.cluster
    if services.store_site(attempt.job, here) != here:
        whose = of_readers(attempt.job.datasets[0].name)
    else:
        whose = OF_PARTS if public_identity(services, attempt) else ""
    names = store_names(installation, whose)
    certificates = _certificates(services, attempt)
    return PodAccess(
        store_secret=names["store"],
        cache_secret=names["cache"] if _cache(services, attempt) else None,
        store_ca=names["store-ca"] if "store" in certificates else None,
        cache_ca=names["cache-ca"] if "cache" in certificates else None,
        pull_secret=f"spillway-registry-{installation}",
    )


def access_objects(services: Services, attempt: Attempt) -> list[Mapping[str, Any]]:
    """The objects that ``pod_access`` names."""
    site, installation = services.site(attempt.candidate.cluster), services.ledger.installation()
    namespace, access = site.cluster.namespace, pod_access(services, attempt)
    secrets = {access.store_secret: _store_environment("SPILLWAY_STORE", _pod_store(services, attempt))}
    if access.cache_secret is not None and (cache := _cache(services, attempt)) is not None:
        secrets[access.cache_secret] = _cache_environment(services, attempt, *cache)
    objects = [
        *(store_secret(name, namespace, values, installation=installation) for name, values in secrets.items()),
        pull_secret(
            access.pull_secret,
            namespace,
            host=registry_host(site.pull),
            username=site.pull.login or "",
            password=site.pull.password or "",
            installation=installation,
        ),
    ]
    certificates = _certificates(services, attempt)
    named = access.certificates.items()
    return objects + [store_ca(name, namespace, certificates[what], installation=installation) for what, name in named]


def _certificates(services: Services, attempt: Attempt) -> dict[str, str]:
    """The certificates (PEM) that vouch for the pod's ``store`` and its ``cache``, left out where the image has to know
    them. Each store has its own: a client to whom certificates are named trusts no others.
    """
    stores = {"store": _pod_store(services, attempt)}
    if (cache := _cache(services, attempt)) is not None:
        stores["cache"] = cache[1]
    found = {what: _store_certificates(store) for what, store in stores.items()}
    return {what: text for what, text in found.items() if text}


def _store_certificates(store: ConnectionSpec) -> str:
    """Those that its pods' Connection names; empty where it names none.

    Raises:
        ConfigError: the file cannot be read here.
    """
    file = ca_file(store)
    try:
        return file.read_text(encoding="utf-8") if file else ""
    except (OSError, UnicodeDecodeError) as problem:
        field = f"{store.conn_id}.extra.verify"
        raise ConfigError("Connections", field, f"expected a file of certificates (PEM): {problem}") from problem


def _cache_environment(services: Services, attempt: Attempt, rule: CacheRule, store: ConnectionSpec) -> dict[str, str]:
    """Where the pod's cache is, its identity there, and the key."""
    key = key_of(services.connect(rule.connection).password or "")
    return {
        **_store_environment("SPILLWAY_CACHE", store),
        "SPILLWAY_CACHE_BUCKET": services.cluster(attempt.candidate.cluster).object_store.cache_bucket or "",
        "SPILLWAY_CACHE_PREFIX": prefix_of(key, attempt.job.datasets[0].name),
        "SPILLWAY_CACHE_KEY": key.hex(),
        "SPILLWAY_CACHE_BYTES": str(rule.limit_bytes),
    }


def _cache(services: Services, attempt: Attempt) -> tuple[CacheRule, ConnectionSpec] | None:
    """The rule of the cache that the pod has, and its identity there, which reaches nothing else of the site; None
    where its dataset is not read from another site, or its own has no place for one.
    """
    here = attempt.candidate.cluster
    conn_id = services.cluster(here).object_store.cache_connection
    if services.store_site(attempt.job, here) == here or conn_id is None:
        return None
    rule = services.dataset(attempt.job.datasets[0].name).cache
    return None if rule is None else (rule, services.connect(conn_id))


def _store_environment(name: str, store: ConnectionSpec) -> dict[str, str]:
    """A store's address and the pods' own identity there."""
    return {
        f"{name}_ENDPOINT": store_endpoint(store),
        f"{name}_REGION": str(store.extra.get("region_name", "us-east-1")),
        f"{name}_ACCESS_KEY": store.login or "",
        f"{name}_SECRET_KEY": store.password or "",
    }
