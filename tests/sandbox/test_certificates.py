"""Certificates of the sandbox's servers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path

import pytest

from spillway.errors import SandboxError
from spillway.sandbox.certificates import Certificates, KeyPair, issue


def _handshake(certificates: Certificates, *, client: KeyPair | None) -> str:
    """The server's view of a TLS connection to 127.0.0.1 that demands a client's certificate."""
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.ca_file)
    serving.load_cert_chain(certificates.server.certificate, certificates.server.key)
    serving.verify_mode = ssl.CERT_REQUIRED
    calling = ssl.create_default_context(cafile=certificates.ca_file)
    if client is not None:
        calling.load_cert_chain(client.certificate, client.key)
    seen = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    with serving.wrap_socket(connection, server_side=True) as secured:
                        secured.sendall(b"ok")
                        seen.append("accepted")
                except ssl.SSLError as problem:
                    seen.append(problem.reason)

        thread = threading.Thread(target=serve)
        thread.start()
        with (
            socket.create_connection(listener.getsockname()) as plain,
            calling.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
            contextlib.suppress(ssl.SSLError, ConnectionError),
        ):
            secured.recv(2)
        thread.join()
    return seen[0]


def test_a_server_is_trusted_on_loopback_and_lets_only_certified_clients_in(tmp_path: Path) -> None:
    certificates = issue(tmp_path / "pki")

    assert _handshake(certificates, client=certificates.client) == "accepted"
    assert _handshake(certificates, client=None) == "PEER_DID_NOT_RETURN_A_CERTIFICATE"


def test_a_client_of_another_authority_is_refused(tmp_path: Path) -> None:
    certificates, others = issue(tmp_path / "mine"), issue(tmp_path / "theirs")

    assert _handshake(certificates, client=others.client) != "accepted"


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    issue(tmp_path)

    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("*.key")} == {
        "ca.key": 0o600,
        "client.key": 0o600,
        "server.key": 0o600,
    }


def test_a_second_call_changes_nothing_and_a_missing_file_is_made_again(tmp_path: Path) -> None:
    issue(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    issue(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    (tmp_path / "client.key").unlink()
    renewed = issue(tmp_path)
    assert _handshake(renewed, client=renewed.client) == "accepted"


@pytest.mark.parametrize("name", ["ca.crt", "server.crt", "server.key", "client.key"])
def test_what_a_full_disk_has_cut_off_is_made_again(tmp_path: Path, name: str) -> None:
    issue(tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    renewed = issue(tmp_path)
    assert _handshake(renewed, client=renewed.client) == "accepted"


def test_certificates_of_two_authorities_are_not_taken_for_a_set(tmp_path: Path) -> None:
    issue(tmp_path / "old")
    issue(tmp_path / "new")
    for name in ("client.crt", "client.key"):
        (tmp_path / "old" / name).rename(tmp_path / "new" / name)
    renewed = issue(tmp_path / "new")
    assert _handshake(renewed, client=renewed.client) == "accepted"


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SandboxError, match=r"file/pki: cannot write the certificates"):
        issue(tmp_path / "file" / "pki")
