"""``python -m spillway.sandbox.agent``: one GPU node as one process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import ssl
from pathlib import Path

from spillway.sandbox.agent.agent import Agent
from spillway.sandbox.agent.client import ApiClient, read_kubeconfig
from spillway.sandbox.agent.container import sweep
from spillway.sandbox.agent.endpoints import serve, server_tls
from spillway.sandbox.agent.images import ImageStore
from spillway.sandbox.agent.isolation import best_isolation
from spillway.sandbox.agent.node import Node, NodeFacts

log = logging.getLogger("spillway.sandbox.agent")


def main() -> None:
    options = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {options.node} %(levelname)s %(message)s")
    asyncio.run(_run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spillway.sandbox.agent", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--node", required=True, help="name of the node object")
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--gpu-model", required=True)
    parser.add_argument("--port", type=int, required=True, help="port of the agent's own HTTPS endpoints")
    parser.add_argument("--root", type=Path, required=True, help="where images, logs and volumes are kept")
    parser.add_argument("--tls-cert", type=Path, required=True)
    parser.add_argument("--tls-key", type=Path, required=True)
    parser.add_argument("--client-ca", type=Path, required=True, help="authority of those who may call the agent")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="of the node; repeatable")
    parser.add_argument("--mask", action="append", default=[], metavar="DIR", help="hidden from containers; repeatable")
    return parser


async def _run(options: argparse.Namespace) -> None:
    root = options.root.resolve()
    (root / "pods").mkdir(parents=True, exist_ok=True)
    killed = sweep(root / "pods")
    facts = NodeFacts(
        name=options.node,
        gpus=options.gpus,
        gpu_model=options.gpu_model,
        address="127.0.0.1",
        port=options.port,
        labels=dict(label.partition("=")[::2] for label in options.label),
        masks=tuple(options.mask),
        root=root,
        isolation=best_isolation(root),
    )
    log.info("isolation %s; %d containers of an earlier agent were ended", facts.isolation, killed)
    api = ApiClient(read_kubeconfig(options.kubeconfig))
    node = Node(facts, api)
    agent = Agent(node, api, ImageStore(root))
    tls = server_tls(options.tls_cert, options.tls_key, options.client_ca)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    work = asyncio.create_task(_work(node, agent, tls))
    await asyncio.wait({work, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
    work.cancel()
    await agent.stop()
    await asyncio.wait({work})
    await api.close()
    if not stop.is_set():
        await work  # raises what ended it


async def _work(node: Node, agent: Agent, tls: ssl.SSLContext) -> None:
    """Be the node for ever; the agent's port opens when the API server has the node as ready."""
    await node.register()
    runner = await serve(agent, node.facts.address, node.facts.port, tls)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(node.keep_alive())
            group.create_task(agent.run())
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    main()
