"""The sandbox's registry as a process."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import urllib3

from spillway.registries.digest import digest_of
from spillway.sandbox.registry import registry_process
from spillway.sandbox.settings import cache_directory
from spillway.testing.images import put_image
from spillway.testing.registry_server import RegistryServer

PASSWORD = "correct horse battery staple"


def process_files(state_dir: Path) -> dict[str, tuple[int, str]]:
    """Mode and content of the files that a new spec writes."""
    registry_process(
        name="onprem-registry", state_dir=state_dir, port=1, username="ada", password=PASSWORD, cache=cache_directory()
    )
    return {
        path.name: (stat.S_IMODE(path.stat().st_mode), path.read_text())
        for path in state_dir.iterdir()
        if path.is_file()
    }


def test_its_files_are_readable_by_their_owner_only_and_hold_no_password(tmp_path: Path) -> None:
    files = process_files(tmp_path)
    assert {name: mode for name, (mode, _) in files.items()} == dict.fromkeys(
        ("config.yml", "htpasswd", "upload_secret"), 0o600
    )
    assert [name for name, (_, text) in files.items() if PASSWORD in text] == []
    assert files["htpasswd"][1].startswith("ada:$2y$")


def test_setting_it_up_again_keeps_the_secret_of_unfinished_uploads(tmp_path: Path) -> None:
    assert process_files(tmp_path)["config.yml"] == process_files(tmp_path)["config.yml"]


@pytest.fixture
def server(tmp_path: Path) -> RegistryServer:
    return RegistryServer(name="onprem", state_dir=tmp_path / "registry")


def test_images_outlive_a_kill_and_can_be_deleted(server: RegistryServer) -> None:
    server.start()
    try:
        image = put_image(server.client(), "train", "v1", layer=b"kept")
        with server.outage():
            pass
        assert server.client().manifest("train", "v1") == image
        headers = urllib3.make_headers(basic_auth=f"{server.username}:{server.password}")
        url = f"{server.url}/v2/train/blobs/{digest_of(b'kept')}"
        assert urllib3.request("DELETE", url, headers=headers).status == 202
        assert not server.client().has_blob("train", digest_of(b"kept"))
    finally:
        server.stop()
