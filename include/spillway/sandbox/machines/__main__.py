"""``python -m spillway.sandbox.machines``: a cloud's API for the machines of one site.

``GET /pools/POOL`` tells what was asked for and which machines there are, ``PUT`` asks for so many and names those that
are to be switched off. The nodes of machines that are off are taken out of Kubernetes, as a cloud's controller does.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import signal
import ssl
import threading
import urllib.error
import urllib.request
from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from spillway.errors import SandboxError
from spillway.sandbox.machines.fleet import Fleet, Machine, QuotaExceeded, change_fleet, fleet_file, read_fleet, resized
from spillway.sandbox.process import port_open
from spillway.sandbox.settings import SandboxSettings, SiteSettings, credentials, sandbox_settings

log = logging.getLogger("spillway.sandbox.machines")
PASS_SECONDS = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m spillway.sandbox.machines", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the sandbox's directory")
    parser.add_argument("--site", required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {options.site} %(levelname)s %(message)s")
    settings = sandbox_settings(options.state)
    site = next(site for site in settings.sites if site.name == options.site)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = ThreadingHTTPServer(("127.0.0.1", int(site.machines_port or 0)), partial(_Api, settings, site))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not stop.wait(PASS_SECONDS):
        try:
            clear_away(settings, site)
        except (OSError, ValueError, SandboxError) as problem:
            log.warning("nodes whose machines are off are still in Kubernetes: %s", problem)
    server.shutdown()


class _Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, settings: SandboxSettings, site: SiteSettings, *connection: Any) -> None:
        self._site, self._file = site, fleet_file(settings.state, site)
        self._token = credentials(settings)[f"{site.name}_machines_token"]
        super().__init__(*connection)

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(HTTPStatus.OK, {})
        elif self._known():
            self._answer(HTTPStatus.OK, _told(read_fleet(self._file)))

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._known():
            return
        try:
            asked = json.loads(body)
            nodes, terminate = int(asked["nodes"]), frozenset(asked["terminate"])
        except (KeyError, TypeError, ValueError) as problem:
            self._refuse(HTTPStatus.BAD_REQUEST, "InvalidRequest", f"expected nodes and terminate: {problem!r}")
            return
        try:
            now = datetime.now(UTC)
            fleet = change_fleet(self._file, lambda fleet: resized(fleet, self._site, nodes, terminate, now))
        except QuotaExceeded as problem:
            self._refuse(HTTPStatus.CONFLICT, "QuotaExceeded", str(problem))
        else:
            self._answer(HTTPStatus.OK, _told(fleet))

    def log_message(self, format: str, *arguments: Any) -> None:
        if self.command != "GET":
            log.info(format, *arguments)

    def _known(self) -> bool:
        """Whether the caller and the pool are known; answers where one is not."""
        if self.headers.get("Authorization") != f"Bearer {self._token}":
            self._refuse(HTTPStatus.UNAUTHORIZED, "Unauthorized", "the token is not known")
        elif self.path != f"/pools/{self._site.nodes[0].pool}":
            self._refuse(HTTPStatus.NOT_FOUND, "NoSuchPool", f"there is only pool {self._site.nodes[0].pool}")
        else:
            return True
        return False

    def _refuse(self, status: HTTPStatus, code: str, message: str) -> None:
        self._answer(status, {"code": code, "message": message})

    def _answer(self, status: HTTPStatus, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _told(fleet: Fleet) -> dict[str, Any]:
    machines = [{"name": machine.name, "ordered_at": machine.ordered_at.isoformat()} for machine in fleet.machines]
    return {"wanted": fleet.wanted, "machines": machines}


def clear_away(settings: SandboxSettings, site: SiteSettings) -> None:
    """Take the nodes of the machines that are off out of Kubernetes, and their disks away."""
    file = fleet_file(settings.state, site)
    for machine in read_fleet(file).leaving:
        if not port_open(machine.port):
            _delete_node(settings, site, machine)
            shutil.rmtree(settings.state / site.name / machine.name, ignore_errors=True)
            change_fleet(file, partial(_without, machine))
            log.info("%s is gone", machine.name)


def _without(gone: Machine, fleet: Fleet) -> Fleet:
    return replace(fleet, leaving=tuple(machine for machine in fleet.leaving if machine != gone))


def _delete_node(settings: SandboxSettings, site: SiteSettings, machine: Machine) -> None:
    """Delete the node; raises OSError where the API does not answer."""
    document = json.loads((settings.state / site.name / "kubeconfig.json").read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    request = urllib.request.Request(
        f"{cluster['server']}/api/v1/nodes/{machine.name}",
        method="DELETE",
        headers={"Authorization": f"Bearer {user['token']}"},
    )
    context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
    try:
        urllib.request.urlopen(request, timeout=5, context=context).close()
    except urllib.error.HTTPError as answer:
        answer.close()
        if answer.code != HTTPStatus.NOT_FOUND:
            raise


if __name__ == "__main__":
    main()
