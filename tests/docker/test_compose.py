"""The compose file says the same as the sandbox, and nothing in it needs an engine to be checked."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.connections import ConnectionSpec, connections_from_file, database_url
from spillway.runs.local import LEDGER_CONNECTION
from spillway.runs.sites import registry_host
from spillway.sandbox import sample_image
from spillway.sandbox.airflow import airflow_processes, settings_file
from spillway.sandbox.configuration import BUCKETS
from spillway.sandbox.objectstore import object_store_process
from spillway.sandbox.registry import registry_process
from spillway.sandbox.settings import cache_directory, sandbox_settings
from spillway.sandbox.sites import store_identities

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
SITES = ("onprem", "cloud")
ADDRESS = "192.0.2.7"
AIRFLOW_SERVICES = ("api-server", "scheduler", "dag-processor", "triggerer")
STORES = ("store", "store_pods", "store_public", "store_public_pods", "store_remote", "store_cache")


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment that the script writes for a host at this address."""
    folder = tmp_path_factory.mktemp("docker")
    done = write_environment(folder, ADDRESS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    lines = (folder / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def write_environment(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The script, run from this folder."""
    script = shutil.copy(DOCKER / "environment.sh", folder)
    return subprocess.run(["sh", script, *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def passwords(variables: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in variables.items() if re.search(r"_(PASSWORD|SECRET|KEY)$", name)}


@pytest.fixture(scope="module")
def compose(variables: Mapping[str, str]) -> dict[str, Any]:
    """The compose file as an engine reads it: variables replaced, merges done."""

    def value(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        assert default is not None or name in variables, f"environment.sh writes no {name}"
        return variables.get(name, default or "")

    pattern = re.compile(r"(?<!\$)\$\{(?P<name>[A-Z_]+)(:-(?P<default>[^}]*)|:\?[^}]*)\}")
    document: dict[str, Any] = yaml.safe_load(pattern.sub(value, (DOCKER / "compose.yaml").read_text()))
    return document


def environment(compose: dict[str, Any], service: str) -> dict[str, str]:
    found: dict[str, str] = compose["services"][service]["environment"]
    return found


def connection(compose: dict[str, Any], conn_id: str) -> ConnectionSpec:
    return ConnectionSpec(conn_id=conn_id, **json.loads(compose["configs"]["connections"]["content"])[conn_id])


def test_airflow_and_the_command_line_read_the_same_connections(compose: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "connections.json"
    file.write_text(compose["configs"]["connections"]["content"])
    servers = {f"{site}_{server}" for site in SITES for server in (*STORES, "registry")}
    assert connections_from_file(file).keys() == {LEDGER_CONNECTION, *servers}
    for name in (*AIRFLOW_SERVICES, "setup"):
        (mounted,) = compose["services"][name]["configs"]
        assert (mounted["source"], mounted["mode"]) == ("connections", 0o400)
        said = environment(compose, name)
        assert said["SPILLWAY_CONNECTIONS"] == mounted["target"]
        assert json.loads(said["AIRFLOW__SECRETS__BACKEND_KWARGS"]) == {"connections_file_path": mounted["target"]}


def test_every_password_is_new_and_long(passwords: Mapping[str, str]) -> None:
    assert len(set(passwords.values())) == len(passwords) == 20
    assert min(map(len, passwords.values())) >= 40


def test_what_the_environment_script_writes_is_what_the_compose_file_needs(variables: Mapping[str, str]) -> None:
    needed = re.findall(r"\$\{([A-Z_]+):\?", (DOCKER / "compose.yaml").read_text())
    assert set(needed) == set(variables)


REFUSED = {
    "nothing": (),
    "a-name": ("localhost",),
    "loopback": ("127.0.0.1",),
    "every-interface": ("0.0.0.0",),
    "one-number": ("1",),
    "three-octets": ("1.2.3",),
    "five-octets": ("1.2.3.4.5",),
    "an-octet-too-large": ("1.2.3.256",),
    "two-lines": ("192.0.2.7\n192.0.2.8",),
}


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_an_address_that_pods_cannot_reach_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    done = write_environment(tmp_path, *words)
    assert (done.returncode, [path.name for path in tmp_path.iterdir()]) == (2, ["environment.sh"])
    assert f"expected an IPv4 address of this host that pods reach, got '{' '.join(words)}'" in done.stderr


def test_the_passwords_are_for_their_owner_alone_and_never_replaced(tmp_path: Path) -> None:
    assert write_environment(tmp_path, ADDRESS).returncode == 0
    file = tmp_path / ".env"
    written = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    again = write_environment(tmp_path, ADDRESS)
    assert (again.returncode, f"{file} exists" in again.stderr, file.read_text()) == (2, True, written)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".env", "environment.sh"]


def published(compose: dict[str, Any], service: str) -> list[str]:
    return [port.rpartition(":")[0] for port in compose["services"][service]["ports"]]


@pytest.mark.parametrize("site", SITES)
def test_pods_are_given_addresses_at_which_the_host_publishes_the_servers(compose: dict[str, Any], site: str) -> None:
    for conn_id in (f"{site}_{server}" for server in STORES):
        assert connection(compose, conn_id).extra["endpoint_url"] in {
            f"http://{address}" for address in published(compose, f"{site}-store")
        }
    assert registry_host(connection(compose, f"{site}_registry")) in published(compose, f"{site}-registry")


def test_configuration_jobs_and_dags_are_mounted_read_only_where_the_image_looks_for_them(
    compose: dict[str, Any],
) -> None:
    image = dict(re.findall(r"(\w+)=(\S+)", (DOCKER / "airflow/Dockerfile").read_text()))
    for service in (*AIRFLOW_SERVICES, "setup"):
        mounts = [volume.split(":") for volume in compose["services"][service]["volumes"] if volume.startswith(".")]
        assert {target: (DOCKER / source).resolve() for source, target, _ in mounts} == {
            image["SPILLWAY_CONFIG_DIR"]: ROOT / "include/config",
            image["SPILLWAY_JOBS_DIR"]: ROOT / "include/jobs",
            image["AIRFLOW__CORE__DAGS_FOLDER"]: ROOT / "dags",
        }
        assert {mode for _, _, mode in mounts} == {"ro"}


def test_all_airflow_components_of_the_sandbox_run_with_its_settings(compose: dict[str, Any]) -> None:
    sandbox = {spec.name.removeprefix("airflow-") for spec in airflow_processes(sandbox_settings())}
    assert set(AIRFLOW_SERVICES) == sandbox
    for name in AIRFLOW_SERVICES:
        service = compose["services"][name]
        assert service["command"] == [name]
        assert service["env_file"] == "airflow.env"


def test_only_arguments_for_sqlite_are_set_otherwise_than_in_the_sandbox(compose: dict[str, Any]) -> None:
    shared = settings_file()
    overridden = {name: value for name, value in environment(compose, "scheduler").items() if name in shared}
    assert overridden == {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS_ASYNC": "",
    }


@pytest.mark.parametrize("site", SITES)
def test_an_object_store_runs_with_the_flags_of_the_sandbox(compose: dict[str, Any], site: str, tmp_path: Path) -> None:
    settings = sandbox_settings(tmp_path, 20000)
    spec = object_store_process(
        name="store", state_dir=tmp_path, base_port=20000, identities=store_identities(settings, settings.site(site))
    )
    (script,) = compose["services"][f"{site}-store"]["command"]
    written = shlex.split(script[script.index("exec weed mini") :].replace("\\\n", " "))[3:]
    own = {"-dir", "-ip.bind", "-s3.config", "-filer.localSocket", "-s3.localSocket"}

    def flags(argv: list[str]) -> set[str]:
        """Those that are no port, path or address, which differ between a process and a container by nature."""
        return {
            flag for flag in argv if flag.partition("=")[0] not in own and not re.search(r"port(\.grpc)?=[1-9]", flag)
        }

    assert flags(written) == flags(list(spec.argv[2:]))
    assert environment(compose, f"{site}-store")["GOMEMLIMIT"] == spec.environment["GOMEMLIMIT"]


@pytest.mark.parametrize("site", SITES)
def test_a_store_knows_the_identities_of_the_sandbox(compose: dict[str, Any], site: str, tmp_path: Path) -> None:
    (script,) = compose["services"][f"{site}-store"]["command"]
    script = script[: script.index("exec weed")].replace("$$", "$").replace("/tmp/s3.json", "s3.json")
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, env=environment(compose, f"{site}-store"), check=True)
    written = json.loads((tmp_path / "s3.json").read_text())["identities"]
    expected = store_identities(sandbox_settings(tmp_path, 20000), sandbox_settings(tmp_path, 20000).site(site))
    assert [(one["name"], tuple(one["actions"])) for one in written] == [(one.name, one.actions) for one in expected]
    keys = {one["credentials"][0]["accessKey"]: one["credentials"][0]["secretKey"] for one in written}
    for conn_id in (f"{site}_{server}" for server in STORES):
        known = connection(compose, conn_id)
        assert keys[known.login or ""] == known.password


@pytest.mark.parametrize("site", SITES)
def test_a_registry_runs_with_the_configuration_of_the_sandbox(
    compose: dict[str, Any], site: str, tmp_path: Path
) -> None:
    registry_process(
        name=f"{site}-registry", state_dir=tmp_path, port=20000, username="u", password="p", cache=cache_directory()
    )
    configuration = yaml.safe_load((tmp_path / "config.yml").read_text())
    by_nature = {"REGISTRY_HTTP_ADDR", "REGISTRY_HTTP_SECRET", "REGISTRY_AUTH_HTPASSWD_PATH", "REGISTRY_VERSION"}
    by_nature |= {"REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY"}
    sandbox = dict(flattened("REGISTRY", configuration)) | {"REGISTRY_AUTH": "htpasswd"}
    written = environment(compose, f"{site}-registry")
    assert {k: v for k, v in written.items() if k not in by_nature} == {
        k: v for k, v in sandbox.items() if k not in by_nature
    }
    known = connection(compose, f"{site}_registry")
    assert (known.schema, known.login) == ("http", "spillway")


def flattened(prefix: str, value: Any) -> list[tuple[str, str]]:
    """A registry's configuration as its environment variables."""
    if isinstance(value, dict):
        return [pair for key, part in value.items() for pair in flattened(f"{prefix}_{key.upper()}", part)]
    return [(prefix, str(value).lower() if isinstance(value, bool) else str(value))]


def test_the_ledger_and_airflow_have_a_database_each_on_postgresql(compose: dict[str, Any]) -> None:
    password = environment(compose, "postgres")["POSTGRES_PASSWORD"]
    assert database_url(connection(compose, "spillway_ledger")) == (
        f"postgresql://airflow:{password}@postgres:5432/ledger"
    )
    assert environment(compose, "setup")["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].endswith(
        f"://airflow:{password}@postgres:5432/airflow"
    )
    assert "CREATE DATABASE ledger;" in (DOCKER / "postgres/ledger.sql").read_text()


def test_only_stores_and_registries_are_published_beyond_loopback_and_volumes_are_declared(
    compose: dict[str, Any],
) -> None:
    named = set()
    for name, service in compose["services"].items():
        address = ADDRESS if name.endswith(("-store", "-registry")) else "127.0.0.1"
        assert all(port.startswith(f"{address}:") for port in service.get("ports", []))
        named |= {volume.split(":")[0] for volume in service.get("volumes", []) if not volume.startswith(".")}
    assert named == set(compose["volumes"])


def test_the_trainers_image_has_the_environment_and_libraries_of_the_sandbox() -> None:
    text = (DOCKER / "trainer/Dockerfile").read_text().replace("\\\n", " ")
    variables = re.search(r"^ENV (.*)$", text, re.MULTILINE)
    assert variables is not None
    assert sorted(variables[1].split()) == sorted(f"{name}={value}" for name, value in sample_image.ENVIRONMENT.items())
    libraries = re.search(r"\^\((.*)\)==", text)
    assert libraries is not None
    assert set(libraries[1].split("|")) == set(sample_image.DISTRIBUTIONS)
    copied = set(re.findall(r"include/spillway/(\S+)", text))
    assert copied == set(sample_image.OWN_MODULES)


def test_the_buckets_of_the_identities_are_the_ones_that_are_created(compose: dict[str, Any]) -> None:
    (script,) = compose["services"]["onprem-store"]["command"]
    assert set(re.findall(r"(?:Read|List|Write):(\w+)", script)) == set(BUCKETS)
