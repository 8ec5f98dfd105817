"""A store behind a certificate authority of its own: its pods know it as the platform does."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.connections import connections_from_file
from spillway.errors import ConfigError
from spillway.model import AttemptState, JobSpec, Outcome, Tier
from spillway.runs.pod_access import access_objects, pod_access
from spillway.runs.services import Services
from spillway.runs.sites import bucket
from spillway.sandbox.certificates import issue
from spillway.sandbox.sample_data import digits_shards
from spillway.testing.builders import attempt
from spillway.testing.carried_run import Carried
from spillway.testing.faulty_proxy import faulty_proxy
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
CONNECTIONS = ("onprem_store", "onprem_store_pods")
DIGITS = {"name": "digits", "home": "onprem", "prefix": "digits/", "tier": "public"}
SAFE = {
    "name": "safe",
    "home": "onprem",
    "prefix": "remote/safe/",
    "tier": "core",
    "remote_read": {"connection": "onprem_store_remote"},
    "cache": {"connection": "sandbox_cache_key", "max_gib": 1},
}
CORE: dict[str, Any] = {"name": "remote-digits", "dataset": "safe", "tier": Tier.CORE, "image_tier": Tier.PUBLIC}
TWO_STORES = {"store": "onprem_store_remote", "cache": "cloud_store_cache"}
"""Those of a pod that reads core data from the cloud, with the Connections that say how it reaches them."""


def change_extra(installation: Installation, conn_id: str, **changes: Any) -> None:
    extra = dict(connections_from_file(installation.connections)[conn_id].extra)
    installation.connection(conn_id, extra=json.dumps(extra | changes))


@pytest.fixture
def store_over_tls(installation: Installation, tmp_path: Path) -> Iterator[Path]:
    """The store on premises answers over TLS only, as far as Connections say; gives the file of its authority."""
    certificates = issue(tmp_path / "tls")
    upstream = str(connections_from_file(installation.connections)["onprem_store"].extra["endpoint_url"])
    with faulty_proxy(upstream, tls=certificates.server) as proxy:
        for conn_id in CONNECTIONS:
            change_extra(installation, conn_id, endpoint_url=proxy.url, verify=str(certificates.ca_file))
        yield certificates.ca_file


def test_a_pod_reads_and_commits_to_a_store_whose_authority_only_its_connection_names(
    store_over_tls: Path, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(steps=2, every=2))
    last = run.result()
    assert (last.outcome, last.candidate.cluster) == (Outcome.SUCCEEDED, "onprem")
    assert run.committed("onprem") == (2,)


def test_certificates_that_cannot_be_read_are_told_before_any_pod_starts(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    change_extra(installation, "onprem_store_pods", verify="/no/ca.pem")
    run = open_run(make_job())
    digest = run.services.site("onprem").registry.resolve("train", "numpy2.4.6-py3.11")
    staged = run.services.ledger.advance(run.place(), AttemptState.STAGED, image_digest=digest)
    run.services.ledger.advance(staged, AttemptState.LAUNCHED)
    with pytest.raises(ConfigError, match=r"onprem_store_pods\.extra\.verify: .*'/no/ca\.pem'"):
        run.advance()
    assert run.attempts[0].outcome is Outcome.FAILED


@pytest.fixture
def two_stores(installation: Installation) -> Services:
    """Services of sites with a core dataset that pods of the cloud read at its home, through a cache."""
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS, SAFE]}))
    return installation.services()


@pytest.mark.parametrize("private", [("store",), ("cache",), ("store", "cache"), ()], ids=" and ".join)
def test_each_store_of_a_pod_is_vouched_for_by_its_own_certificates_alone(
    installation: Installation, two_stores: Services, make_job: MakeJob, tmp_path: Path, private: tuple[str, ...]
) -> None:
    for what in private:
        (tmp_path / what).write_text(f"the authority of the {what}")
        change_extra(installation, TWO_STORES[what], verify=str(tmp_path / what))
    away = attempt(job=make_job(**CORE))
    away = replace(away, candidate=replace(away.candidate, cluster="cloud", pool="h100"))
    written = {entry["metadata"]["name"]: entry["data"] for entry in access_objects(two_stores, away)}
    told = {what: written[name] for what, name in pod_access(two_stores, away).certificates.items()}
    assert told == {what: {"ca.crt": f"the authority of the {what}"} for what in private}


def test_a_pod_with_a_cache_has_the_identities_of_its_dataset_and_of_the_cache_and_none_of_its_sites(
    two_stores: Services, make_job: MakeJob
) -> None:
    away = attempt(job=make_job(**CORE))
    away = replace(away, candidate=replace(away.candidate, cluster="cloud", pool="h100"))
    written = {entry["metadata"]["name"]: entry["data"] for entry in access_objects(two_stores, away)}
    access = pod_access(two_stores, away)
    names = {"store": access.store_secret, "cache": str(access.cache_secret)}
    who = {what: b64decode(written[name][f"SPILLWAY_{what.upper()}_ACCESS_KEY"]) for what, name in names.items()}
    assert who == {"store": b"onprem-remote", "cache": b"cloud-cache"}
    assert written.keys() == {*names.values(), access.pull_secret}


def test_a_pod_reads_and_caches_where_each_store_has_an_authority_of_its_own(
    installation: Installation, two_stores: Services, start_run: Carry, make_job: MakeJob, tmp_path: Path
) -> None:
    home, cache = two_stores.site("onprem").datasets, bucket(two_stores.connect("cloud_store"), "cache", "cloud")
    shards = {f"{SAFE['prefix']}{name}": body for name, body in digits_shards(1).items()}
    for key, body in shards.items():
        home.put(key, body, size_bytes=len(body))
    with ExitStack() as proxies:
        proxies.callback(home.delete, shards)
        for what, conn_id in TWO_STORES.items():
            certificates = issue(tmp_path / what)
            upstream = str(connections_from_file(installation.connections)[conn_id].extra["endpoint_url"])
            proxy = proxies.enter_context(faulty_proxy(upstream, tls=certificates.server))
            change_extra(installation, conn_id, endpoint_url=proxy.url, verify=str(certificates.ca_file))
        before = {entry.key for entry in cache.list()}
        assert start_run(make_job(steps=2, every=2, gpu_model="H100", **CORE)).result().outcome is Outcome.SUCCEEDED
        kept = {entry.key for entry in cache.list()} - before
        proxies.callback(cache.delete, kept)
        assert len(kept) == len(shards)
