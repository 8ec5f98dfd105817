"""Every process of the two sites, and what a site holds before its first run: buckets, namespace, image, data."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta

from spillway.connections import ConnectionSpec, connections_from_file
from spillway.errors import SandboxError
from spillway.images.mirror import mirror
from spillway.registries.http import HttpRegistry
from spillway.registries.layout import LayoutRegistry
from spillway.sandbox.agent.process import node_agent_process
from spillway.sandbox.certificates import Certificates, issue
from spillway.sandbox.configuration import (
    BUCKETS,
    CHECKPOINT_BUCKET,
    DATASET_BUCKET,
    NAMESPACE,
    REGISTRY_USER,
    kubeconfig,
)
from spillway.sandbox.kube.process import api_server_process
from spillway.sandbox.objectstore import ADMIN_ACTIONS, REGION, Identity, create_buckets, object_store_process
from spillway.sandbox.process import ProcessSpec
from spillway.sandbox.registry import registry_process
from spillway.sandbox.sample_data import digits_shards
from spillway.sandbox.sample_image import REPOSITORY, TAG, build_trainer_image
from spillway.sandbox.settings import (
    PROJECT,
    SandboxSettings,
    SiteSettings,
    cache_directory,
    credentials,
    write_private,
)
from spillway.stores.s3 import S3Store, open_store

NODE_LOST_AFTER = timedelta(seconds=6)
POD_EVICTION_AFTER = timedelta(seconds=2)
SHARDS = 8
NODE_STAGE = 1
"""Node agents start when the API servers and registries answer."""


def certificates(settings: SandboxSettings) -> Certificates:
    """The certificates of the sandbox's servers."""
    return issue(settings.state / "certificates")


def site_processes(settings: SandboxSettings) -> tuple[ProcessSpec, ...]:
    """The processes of both sites: object store, registry, Kubernetes API, node agents."""
    issued = certificates(settings)
    return tuple(spec for site in settings.sites for spec in _processes(settings, site, issued))


def _processes(settings: SandboxSettings, site: SiteSettings, issued: Certificates) -> tuple[ProcessSpec, ...]:
    made, state = credentials(settings), settings.state / site.name
    tokens = state / "tokens"
    write_private(tokens, f"{made[f'{site.name}_api_token']}\n")
    config = state / "kubeconfig.json"
    write_private(config, json.dumps(kubeconfig(settings, site, issued)))
    return (
        object_store_process(
            name=f"{site.name}-store",
            state_dir=state / "store",
            base_port=site.store_port,
            identities=store_identities(settings, site),
        ),
        registry_process(
            name=f"{site.name}-registry",
            state_dir=state / "registry",
            port=site.registry_port,
            username=REGISTRY_USER,
            password=made[f"{site.name}_registry_password"],
            cache=cache_directory(),
        ),
        api_server_process(
            name=site.name,
            port=site.api_port,
            state_directory=state / "kubernetes",
            certificates=issued,
            token_file=tokens,
            node_lost_after=NODE_LOST_AFTER,
            pod_eviction_after=POD_EVICTION_AFTER,
        ),
        *(
            node_agent_process(
                kubeconfig=config,
                node=node.name,
                gpus=node.gpus,
                gpu_model=node.gpu_model,
                port=node.port,
                root=state / node.name,
                certificates=issued,
                labels={"spillway.dev/pool": node.pool},
                masks=(PROJECT, settings.state),
                stage=NODE_STAGE,
            )
            for node in site.nodes
        ),
    )


def store_identities(settings: SandboxSettings, site: SiteSettings) -> tuple[Identity, ...]:
    """The mover, who may do all, and the pods, who read data and write checkpoints."""
    made = credentials(settings)
    return (
        Identity(
            name=f"{site.name}-mover",
            access_key=f"{site.name}-mover",
            secret_key=made[f"{site.name}_mover_secret"],
            actions=ADMIN_ACTIONS,
        ),
        Identity(
            name=f"{site.name}-pods",
            access_key=f"{site.name}-pods",
            secret_key=made[f"{site.name}_pod_secret"],
            actions=(
                f"Read:{DATASET_BUCKET}",
                f"List:{DATASET_BUCKET}",
                f"Read:{CHECKPOINT_BUCKET}",
                f"List:{CHECKPOINT_BUCKET}",
                f"Write:{CHECKPOINT_BUCKET}",
            ),
        ),
    )


def seed(settings: SandboxSettings) -> None:
    """Give each site its buckets and namespace, and the on-premises one its image and data; twice changes nothing."""
    connections = connections_from_file(settings.connections)
    for site in settings.sites:
        create_buckets(site.store_endpoint, store_identities(settings, site)[0], BUCKETS)
        _create_namespace(connections[f"{site.name}_kubernetes"])
    home = settings.site("onprem")
    layout = settings.state / "image"
    build_trainer_image(layout)
    mirror(
        LayoutRegistry(layout),
        HttpRegistry(
            name=home.name,
            url=home.registry_endpoint,
            username=REGISTRY_USER,
            password=credentials(settings)[f"{home.name}_registry_password"],
        ),
        repository=REPOSITORY,
        reference=TAG,
        move_tag=True,
    )
    _upload_dataset(mover_store(settings, home, DATASET_BUCKET))


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


def _create_namespace(connection: ConnectionSpec) -> None:
    from kubernetes.client import CoreV1Api
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config import new_client_from_config_dict

    api = CoreV1Api(new_client_from_config_dict(json.loads(connection.extra["kube_config"])))
    try:
        api.create_namespace({"metadata": {"name": NAMESPACE}})
    except ApiException as problem:
        if problem.status != 409:
            raise SandboxError(f"the namespace '{NAMESPACE}' could not be created: {problem.reason}") from problem
