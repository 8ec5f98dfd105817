"""``python -m spillway.sandbox.kube``: one cluster's control plane as one process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web

from spillway.sandbox.kube.controllers import LEASE_NAMESPACE, NodeLifecycle, expire_events, finish_namespaces
from spillway.sandbox.kube.jobs import run_jobs
from spillway.sandbox.kube.node_proxy import NodeProxy
from spillway.sandbox.kube.objects import Objects
from spillway.sandbox.kube.resources import NAMESPACES
from spillway.sandbox.kube.scheduler import schedule
from spillway.sandbox.kube.server import ApiServer
from spillway.sandbox.kube.store import Store

log = logging.getLogger("spillway.sandbox.kube")

_FIRST_NAMESPACES = ("default", "kube-system", LEASE_NAMESPACE)
_PASS_SECONDS = 0.5
_SETTLE_SECONDS = 0.02


def main() -> None:
    options = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {options.name} %(levelname)s %(message)s")
    asyncio.run(_serve(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spillway.sandbox.kube", description=__doc__)
    parser.add_argument("--name", required=True, help="how the log calls this cluster")
    parser.add_argument("--port", type=int, required=True, help="loopback port to serve TLS on")
    parser.add_argument("--state-dir", type=Path, required=True, help="where the objects are kept")
    parser.add_argument("--tls-cert", type=Path, required=True)
    parser.add_argument("--tls-key", type=Path, required=True)
    parser.add_argument("--token-file", type=Path, required=True, help="lines of TOKEN,USER")
    parser.add_argument(
        "--node-ca", type=Path, required=True, help="authority that signed the node agents' certificates"
    )
    parser.add_argument("--node-client-cert", type=Path, required=True, help="shown to node agents")
    parser.add_argument("--node-client-key", type=Path, required=True)
    parser.add_argument("--node-lost-after", type=float, default=40, metavar="SECONDS")
    parser.add_argument("--pod-eviction-after", type=int, default=300, metavar="SECONDS")
    return parser


async def _serve(options: argparse.Namespace) -> None:
    store = Store(options.state_dir / "objects.sqlite")
    objects = Objects(store, lambda: datetime.now(UTC), pod_eviction_after_seconds=options.pod_eviction_after)
    for name in _FIRST_NAMESPACES:
        if store.find(NAMESPACES, None, name) is None:
            objects.create(NAMESPACES, None, {"metadata": {"name": name}})
    server = ApiServer(objects, read_tokens(options.token_file), NodeProxy(store, _client_tls(options)))
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", options.port, ssl_context=_server_tls(options)).start()
    log.info("serving on 127.0.0.1:%d with %d objects", options.port, sum(1 for _ in store.everything()))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    control = asyncio.create_task(_control(objects, timedelta(seconds=options.node_lost_after)))
    await stop.wait()
    control.cancel()
    await runner.cleanup()
    store.close()


async def _control(objects: Objects, node_lost_after: timedelta) -> None:
    """Run the scheduler and every controller after each write and at least twice a second."""
    lifecycle = NodeLifecycle(objects, node_lost_after)
    steps: dict[str, Callable[[], None]] = {
        "scheduler": lambda: schedule(objects),
        "node lifecycle": lambda: lifecycle.run(time.monotonic()),
        "job": lambda: run_jobs(objects),
        "namespace": lambda: finish_namespaces(objects),
        "event": lambda: expire_events(objects),
    }
    while True:
        for name, step in steps.items():
            try:
                step()
            except Exception:
                log.exception("the %s controller failed; it runs again", name)
        await asyncio.sleep(_SETTLE_SECONDS)
        await objects.store.changed(_PASS_SECONDS)


def read_tokens(path: Path) -> dict[str, str]:
    """Users by their bearer token."""
    rows = [line.split(",") for line in path.read_text().splitlines() if line.strip()]
    return {row[0].strip(): (row[1].strip() if len(row) > 1 else "admin") for row in rows}


def _server_tls(options: argparse.Namespace) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(options.tls_cert, options.tls_key)
    return context


def _client_tls(options: argparse.Namespace) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.node_ca)
    context.load_cert_chain(options.node_client_cert, options.node_client_key)
    return context


if __name__ == "__main__":
    main()
