"""How long samples are kept, and who knows what GPUs do, as it is declared."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from spillway.config import load
from spillway.errors import ConfigError
from spillway.model import PrometheusRef, SampleRetention

Write = Callable[..., Path]


def test_samples_are_kept_as_long_as_the_policy_says(directory: Path, write: Write) -> None:
    assert load(directory).keep_samples == SampleRetention()
    write("policy.yaml", ("samples",), {"keep": {"five_minutes": "90d"}})
    assert load(directory).keep_samples == SampleRetention(five_minutes=timedelta(days=90))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"keep": {"hours": "0s"}}, "samples.keep.hours: expected a duration above 0"),
        ({"keep": {"hours": 3}}, "samples.keep.hours: expected a duration such as"),
        ({"keep": {"hour": "3d"}}, "unknown key 'hour'; known: five_minutes, hours, samples. Did you mean 'hours'?"),
        ({"every": "10s"}, "unknown key 'every'; known: keep"),
    ],
)
def test_what_is_no_retention_is_refused_by_its_path(
    directory: Path, write: Write, written: object, message: str
) -> None:
    write("policy.yaml", ("samples",), written)
    with pytest.raises(ConfigError) as refused:
        load(directory)
    assert message in str(refused.value)


def test_a_cluster_may_say_which_prometheus_knows_its_gpus(directory: Path, write: Write) -> None:
    assert load(directory).clusters["onprem"].prometheus is None
    declared = {"connection": "metrics", "node_label": "node", "labels": {"cluster": "a"}}
    write("clusters.yaml", ("clusters", 0, "prometheus"), declared)
    expected = PrometheusRef(connection="metrics", node_label="node", labels={"cluster": "a"})
    assert load(directory).clusters["onprem"].prometheus == expected


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ({}, r"prometheus\.connection"),
        ({"connection": "c", "node_label": "a-b"}, r"prometheus\.node_label"),
        ({"connection": "c", "labels": {'x"}': "y"}}, r"prometheus\.labels"),
        ({"connection": "c", "labels": {"x": 1}}, r"prometheus\.labels\.x"),
        ({"connection": "c", "url": "http://h"}, r"unknown key 'url'"),
    ],
)
def test_what_names_no_prometheus_is_refused_by_its_path(
    directory: Path, write: Write, written: object, path: str
) -> None:
    write("clusters.yaml", ("clusters", 0, "prometheus"), written)
    with pytest.raises(ConfigError, match=path):
        load(directory)
