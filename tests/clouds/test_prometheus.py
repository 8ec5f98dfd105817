"""Against Debian's Prometheus, and against a server that answers what no healthy one does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from spillway.clouds import prometheus
from spillway.clouds.prometheus import Prometheus
from spillway.errors import AccessDenied, RequestRefused, SpillwayError, Unreachable
from spillway.model import DeviceUse, PrometheusRef
from spillway.testing.ports import free_port
from spillway.testing.prometheus_server import PrometheusServer, dcgm
from spillway.testing.scripted_http import Answer, ScriptedServer

SOURCE = PrometheusRef(connection="onprem_prometheus")


def test_the_gpus_of_each_node_tell_what_they_do(prometheus_server: PrometheusServer) -> None:
    prometheus_server.exporter.tell(
        dcgm("GPU_UTIL", 80), dcgm("FB_USED", 20_000), dcgm("FB_FREE", 60_000), dcgm("POWER_USAGE", 310.5),
        dcgm("GPU_TEMP", 61), dcgm("GPU_UTIL", 40, gpu=1), dcgm("GPU_TEMP", 72, gpu=1),
        dcgm("GPU_UTIL", 0, node="h100-0"), dcgm("SM_CLOCK", 1410, node="idle"), "up 1",
    )  # fmt: skip
    assert prometheus_server.client().devices(SOURCE) == {
        "a100-0": DeviceUse(gpus=2, utilisation=0.6, memory=0.25, power_watts=310.5, temperature_celsius=72),
        "h100-0": DeviceUse(gpus=1, utilisation=0.0),
    }


def test_a_server_that_knows_several_clusters_is_asked_for_one(prometheus_server: PrometheusServer) -> None:
    prometheus_server.exporter.tell(
        dcgm("GPU_UTIL", 10, cluster='on\\"prem', kubernetes_node="n1"),
        dcgm("GPU_UTIL", 90, node="a100-1", cluster="cloud", kubernetes_node="n1"),
    )
    source = PrometheusRef(connection="c", node_label="kubernetes_node", labels={"cluster": 'on"prem', "job": "dcgm"})
    assert prometheus_server.client().devices(source) == {"n1": DeviceUse(gpus=1, utilisation=0.1)}


def test_what_is_not_a_figure_or_not_fresh_is_a_gap(prometheus_server: PrometheusServer) -> None:
    told, old = time.time(), int((time.time() - 120) * 1000)
    prometheus_server.exporter.tell(
        dcgm("GPU_UTIL", "NaN"), dcgm("GPU_TEMP", "9223372036854775794"), dcgm("POWER_USAGE", -1),
        f"{dcgm('GPU_UTIL', 50, node='stale')} {old}",
        dcgm("GPU_UTIL", 50, node=""), dcgm("GPU_UTIL", 70, node="part"), dcgm("GPU_UTIL", "+Inf", node="part", gpu=1),
    )  # fmt: skip
    assert prometheus_server.client().devices(SOURCE) == {"part": DeviceUse(gpus=1, utilisation=0.7)}
    assert time.time() - told < prometheus.FRESH.total_seconds(), "the machine was too slow for this to be tested"
    prometheus_server.exporter.fail()
    assert prometheus_server.client().devices(SOURCE) == {}, "the exporter is gone: its last figures are of the past"


def test_a_server_that_goes_away_is_told_and_asked_again_when_it_is_back(prometheus_server: PrometheusServer) -> None:
    prometheus_server.exporter.tell(dcgm("GPU_UTIL", 30))
    client = prometheus_server.client()
    with prometheus_server.outage(), pytest.raises(Unreachable, match=r"Prometheus of cluster 'onprem' at http.*refus"):
        client.devices(SOURCE)
    assert client.devices(SOURCE) == {"a100-0": DeviceUse(gpus=1, utilisation=0.3)}


def test_wrong_credentials_are_told_without_being_shown(prometheus_server: PrometheusServer) -> None:
    with pytest.raises(AccessDenied) as refused:
        prometheus_server.client(password="s3cret-of-yesterday").devices(SOURCE)
    assert str(refused.value) == (
        f"Prometheus of cluster 'onprem' at {prometheus_server.url} refused the credentials: HTTP 401 Unauthorized; "
        "correct its credentials"
    )


@pytest.fixture
def odd() -> Iterator[ScriptedServer]:
    with closing(ScriptedServer()) as server:
        yield server


def vector(**changes: Any) -> bytes:
    series = {"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "Hostname": "n1", "gpu": "0"}, "value": [1.5, "50"]}
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": [series]}} | changes).encode()


@pytest.mark.parametrize(
    ("answer", "expected", "said"),
    [
        pytest.param(Answer(body=b"<html>"), Unreachable, "not with all of it: b'<html>'", id="not JSON"),
        pytest.param(Answer(body=b"[]"), Unreachable, "its answer cannot be used", id="another shape"),
        pytest.param(Answer(body=b"[" * 100_000), Unreachable, "not with all of it: b'[[[", id="nested without end"),
        pytest.param(
            Answer(body=vector().replace(b'"50"', b"1" * 400)), Unreachable, "its answer cannot be used", id="too large"
        ),
        pytest.param(Answer(body=vector(data={"result": []})), Unreachable, "resultType", id="a part is missing"),
        pytest.param(
            Answer(body=vector(status="error", errorType="timeout", error="query timed out")),
            Unreachable,
            "timeout: query timed out",
            id="an error with 200",
        ),
        pytest.param(
            Answer(body=vector(warnings=["store-3 did not answer"])),
            Unreachable,
            "it is not whole: store-3 did not answer",
            id="a partial answer",
        ),
        pytest.param(Answer(body=vector(), cut_bytes=9), Unreachable, "not with all of it", id="cut off"),
        pytest.param(Answer(status=503), Unreachable, "HTTP 503", id="not available"),
        pytest.param(Answer(status=429), Unreachable, "HTTP 429", id="too many requests"),
        pytest.param(Answer(status=403), AccessDenied, "correct Connection 'p'", id="forbidden"),
        pytest.param(Answer(status=404, body=b"?"), RequestRefused, "it does not say why", id="no such path"),
        pytest.param(
            Answer(status=400, body=b'{"error": "parse error"}'), RequestRefused, "parse error", id="not understood"
        ),
    ],
)
def test_an_answer_that_is_none_is_a_clear_error(
    odd: ScriptedServer, answer: Answer, expected: type[SpillwayError], said: str
) -> None:
    odd.script = lambda call: answer
    client = Prometheus(f"{odd.url}/prefix/", name="cloud", password="token", credentials="Connection 'p'")
    with pytest.raises(expected) as problem:
        client.devices(SOURCE)
    assert said in str(problem.value)
    [call] = odd.calls
    assert (call.path, call.headers["Authorization"]) == ("/prefix/api/v1/query", "Bearer token")


def test_credentials_do_not_follow_a_redirect_elsewhere(odd: ScriptedServer) -> None:
    with closing(ScriptedServer()) as elsewhere:
        elsewhere.script = lambda call: Answer(body=vector())
        odd.script = lambda call: Answer(status=302, headers={"Location": elsewhere.url})
        Prometheus(odd.url, name="cloud", password="token").devices(SOURCE)
        assert [call.headers.get("Authorization") for call in elsewhere.calls] == [None]


def test_a_server_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        Prometheus(f"http://127.0.0.1:{free_port()}", name="cloud").devices(SOURCE)
