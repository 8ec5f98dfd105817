"""Every process of the two sites, and what a site holds before its first run: buckets, namespace, image, data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from spillway.clouds.api import ApiRefusal, KubernetesApi
from spillway.connections import connections_from_file
from spillway.images.mirror import mirror
from spillway.registries.http import HttpRegistry
from spillway.registries.layout import LayoutRegistry
from spillway.sandbox.agent.process import node_agent_process
from spillway.sandbox.certificates import Certificates, issue
from spillway.sandbox.configuration import (
    BUCKETS,
    CACHE_BUCKET,
    CHECKPOINT_BUCKET,
    DATASET_BUCKET,
    NAMESPACE,
    PUBLIC_PREFIXES,
    REGISTRY_USER,
    REMOTE_JOBS,
    REMOTE_PREFIX,
    kubeconfig,
)
from spillway.sandbox.kube.process import api_server_process
from spillway.sandbox.machines.fleet import begin_fleet, fleet_file, nodes_now
from spillway.sandbox.machines.process import machines_process
from spillway.sandbox.objectstore import ADMIN_ACTIONS, REGION, Identity, create_buckets, object_store_process
from spillway.sandbox.process import ProcessSpec
from spillway.sandbox.registry import registry_process
from spillway.sandbox.sample_data import digits_shards
from spillway.sandbox.sample_image import REPOSITORY, TAG, build_trainer_image
from spillway.sandbox.settings import (
    PROJECT,
    NodeSettings,
    SandboxSettings,
    SiteSettings,
    cache_directory,
    credentials,
    write_private,
)
from spillway.stores.base import OWN_PREFIX
from spillway.stores.s3 import S3Store, open_store

NODE_LOST_AFTER = timedelta(seconds=6)
POD_EVICTION_AFTER = timedelta(seconds=2)
SHARDS = 8
HOME = "onprem"
"""Where images and data are before anything is copied."""


def certificates(settings: SandboxSettings) -> Certificates:
    """The certificates of the sandbox's servers."""
    return issue(settings.state / "certificates")


def site_processes(settings: SandboxSettings) -> tuple[ProcessSpec, ...]:
    """The processes of both sites: object store, registry, Kubernetes API, and nodes or a provider of machines."""
    issued = certificates(settings)
    return tuple(spec for site in settings.sites for spec in _processes(settings, site, issued))


def machine_processes(settings: SandboxSettings, issued: Certificates) -> tuple[ProcessSpec, ...]:
    """The nodes whose machines a provider has switched on."""
    return tuple(
        spec
        for site in settings.sites
        if site.machines_port is not None
        for spec in _agents(settings, site, nodes_now(settings.state, site), issued)
    )


def _processes(settings: SandboxSettings, site: SiteSettings, issued: Certificates) -> tuple[ProcessSpec, ...]:
    state = settings.state / site.name
    write_private(state / "kubeconfig.json", json.dumps(kubeconfig(settings, site, issued)))
    store = object_store_process(
        name=f"{site.name}-store",
        state_dir=state / "store",
        base_port=site.store_port,
        identities=store_identities(settings, site),
    )
    nodes: Iterable[ProcessSpec] = _agents(settings, site, site.nodes, issued)
    if site.machines_port is not None:
        begin_fleet(fleet_file(settings.state, site), site)
        nodes = (machines_process(settings.state, site),)
    return (store, _registry(settings, site, state), _api_server(settings, site, state, issued), *nodes)


def _agents(
    settings: SandboxSettings, site: SiteSettings, nodes: Iterable[NodeSettings], issued: Certificates
) -> Iterable[ProcessSpec]:
    state = settings.state / site.name
    for node in nodes:
        yield node_agent_process(
            node,
            kubeconfig=state / "kubeconfig.json",
            root=state / node.name,
            certificates=issued,
            masks=(PROJECT, settings.state),
        )


def _registry(settings: SandboxSettings, site: SiteSettings, state: Path) -> ProcessSpec:
    return registry_process(
        name=f"{site.name}-registry",
        state_dir=state / "registry",
        port=site.registry_port,
        username=REGISTRY_USER,
        password=credentials(settings)[f"{site.name}_registry_password"],
        cache=cache_directory(),
    )


def _api_server(settings: SandboxSettings, site: SiteSettings, state: Path, issued: Certificates) -> ProcessSpec:
    token_file = state / "tokens"
    write_private(token_file, f"{credentials(settings)[f'{site.name}_api_token']}\n")
    return api_server_process(
        name=site.name,
        port=site.api_port,
        state_directory=state / "kubernetes",
        certificates=issued,
        token_file=token_file,
        node_lost_after=NODE_LOST_AFTER,
        pod_eviction_after=POD_EVICTION_AFTER,
    )


def store_identities(settings: SandboxSettings, site: SiteSettings) -> tuple[Identity, ...]:
    """The mover, who may do all, the pods, who read data and write checkpoints, and who reads public data only.

    Also pods that read public parts, which write any checkpoint, pods of the other site, which read what is below
    ``REMOTE_PREFIX`` and write checkpoints of ``REMOTE_JOBS``, and those of this site in its cache.
    """
    made = credentials(settings)
    public = (*(f"Read:{DATASET_BUCKET}/{prefix}*" for prefix in PUBLIC_PREFIXES), f"List:{DATASET_BUCKET}")
    remote = (f"Read:{DATASET_BUCKET}/{REMOTE_PREFIX}*", f"List:{DATASET_BUCKET}")
    rights: dict[str, tuple[str, ...]] = {
        "mover": ADMIN_ACTIONS,
        "pods": (f"Read:{DATASET_BUCKET}", f"List:{DATASET_BUCKET}", *_all_of(CHECKPOINT_BUCKET)),
        "public": public,
        "public-pods": (*public, f"Read:{DATASET_BUCKET}/{OWN_PREFIX}*", *_all_of(CHECKPOINT_BUCKET)),
        "remote": (*remote, *_all_of(f"{CHECKPOINT_BUCKET}/{REMOTE_JOBS}*")),
        "cache": _all_of(CACHE_BUCKET),
    }
    return tuple(
        Identity(
            name=f"{site.name}-{who}",
            access_key=f"{site.name}-{who}",
            secret_key=made[f"{site.name}_{who.replace('-', '_')}_secret"],
            actions=actions,
        )
        for who, actions in rights.items()
    )


def _all_of(what: str) -> tuple[str, ...]:
    return tuple(f"{action}:{what}" for action in ("Read", "List", "Write"))


def seed(settings: SandboxSettings, site: SiteSettings) -> None:
    """Give the site its buckets and namespace, and the on-premises one its image and data; twice changes nothing."""
    create_buckets(site.store_endpoint, store_identities(settings, site)[0], BUCKETS)
    _create_namespace(kubernetes_api(settings, site))
    if site.name == HOME:
        _push_image(settings, site)
        _upload_dataset(mover_store(settings, site, DATASET_BUCKET))


def kubernetes_api(settings: SandboxSettings, site: SiteSettings) -> KubernetesApi:
    """The API of the site with its administrator's token."""
    from spillway.clouds.kubernetes import client_from_kubeconfig

    connection = connections_from_file(settings.connections)[f"{site.name}_kubernetes"]
    client = client_from_kubeconfig(json.loads(connection.extra["kube_config"]))
    return KubernetesApi(client, endpoint=f"the Kubernetes API of site '{site.name}'")


def _push_image(settings: SandboxSettings, site: SiteSettings) -> None:
    """Build the trainer's image, without Docker, and put it into the site's registry."""
    layout = settings.state / "image"
    build_trainer_image(layout)
    registry = HttpRegistry(
        name=site.name,
        url=site.registry_endpoint,
        username=REGISTRY_USER,
        password=credentials(settings)[f"{site.name}_registry_password"],
    )
    mirror(LayoutRegistry(layout), registry, repository=REPOSITORY, reference=TAG, move_tag=True)


def mover_store(settings: SandboxSettings, site: SiteSettings, bucket: str) -> S3Store:
    """A bucket of a site with the mover's identity."""
    mover = store_identities(settings, site)[0]
    return open_store(
        name=site.name,
        bucket=bucket,
        endpoint_url=site.store_endpoint,
        region=REGION,
        access_key=mover.access_key,
        secret_key=mover.secret_key,
    )


def _upload_dataset(store: S3Store) -> None:
    """Put the shards of the digits; one that is there with the same content is left alone."""
    for name, body in digits_shards(SHARDS).items():
        key, sha256 = f"digits/{name}", hashlib.sha256(body).hexdigest()
        known = store.head(key)
        if known is None or known.sha256 != sha256:
            store.put(key, body, size_bytes=len(body), sha256=sha256, content_type="text/csv")


def _create_namespace(api: KubernetesApi) -> None:
    try:
        api.json("POST", "/api/v1/namespaces", body={"metadata": {"name": NAMESPACE}})
    except ApiRefusal as refusal:
        if refusal.status != 409:  # it exists
            raise
