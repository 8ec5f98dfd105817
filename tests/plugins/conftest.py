"""Airflow inside the test process."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.testing.installed import Installed, install
from spillway.testing.kube_server import KubeCluster
from spillway.testing.kube_space import Space
from spillway.testing.s3_server import S3Server
from spillway.testing.watched import POLL_SECONDS

# Airflow makes its home when it is first imported, which the modules beside this file do: before any fixture runs.
HOME = None if "AIRFLOW_HOME" in os.environ else tempfile.mkdtemp(prefix="airflow-")
if HOME is not None:
    os.environ["AIRFLOW_HOME"] = HOME


def pytest_unconfigure() -> None:
    if HOME is not None:
        shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """An installation in Airflow's environment whose servers do not run."""
    return install(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def _nothing_is_read_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trigger gets the settings that one of another test has read, for an installation that is no more."""
    from spillway_airflow import fresh_services

    monkeypatch.setattr(fresh_services, "_READINGS", fresh_services.Readings())


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting where a test has nothing to see in it."""
    from spillway_airflow import fresh_services

    monkeypatch.setattr(fresh_services, "PERIOD_IN_DOUBT", timedelta())
    monkeypatch.setattr(fresh_services, "LONGEST_PAUSE", timedelta(seconds=POLL_SECONDS))
    monkeypatch.setattr(fresh_services, "FIRST_PAUSE", timedelta(seconds=POLL_SECONDS))


@pytest.fixture
def space(installed: Installed, kube_api: KubeCluster, kube_space: Space, s3_server: S3Server) -> Space:
    """A namespace of the cluster ``onprem``, which is the only one that is declared, with a store that answers."""
    bucket = s3_server.new_bucket()

    def only_this_one(document: Any) -> None:
        onprem = document["clusters"][0]
        onprem["namespace"] = kube_space.name
        onprem["object_store"] |= {"dataset_bucket": bucket, "checkpoint_bucket": bucket}
        document["clusters"] = [onprem]

    installed.edit("clusters.yaml", only_this_one)
    installed.edit("policy.yaml", lambda document: document["runs"].update(node_margin="60s"))
    installed.kubernetes("onprem", kube_api.kubeconfig)
    extra = json.dumps({"endpoint_url": s3_server.endpoint_url, "region_name": s3_server.region})
    admin = s3_server.admin
    store = {"conn_type": "aws", "login": admin.access_key, "password": admin.secret_key, "extra": extra}
    installed.connection("onprem_store", store)
    return kube_space
