"""What a cluster's GPUs do, as its Prometheus knows it from NVIDIA's DCGM exporter."""

from __future__ import annotations

import json
import math
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode

from spillway.errors import AccessDenied, RequestRefused, Unreachable
from spillway.model import DeviceUse, PrometheusRef

FRESH = timedelta(seconds=90)
"""An older figure does not count: its exporter is gone, or nobody scrapes it any more."""
TIMEOUT_SECONDS = 10.0
LARGEST_ANSWER = 64 << 20

UTILISATION, USED, FREE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
POWER, TEMPERATURE = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP"
_SENSIBLE = {UTILISATION: 100.0, USED: 1e9, FREE: 1e9, POWER: 1e5, TEMPERATURE: 1e3}
"""The most that each may be (percent, MiB, W, degrees Celsius): what DCGM does not know it gives as a huge number."""
_DEVICE = ("UUID", "GPU_I_ID", "gpu", "device")
"""The labels that tell one device of a node from another."""

Figures = Mapping[str, float]


class Prometheus:
    """The HTTP API of one server.

    Every method raises Unreachable (5xx, no or no proper answer, a partial one), AccessDenied (401, 403) or
    RequestRefused.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        login: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
        credentials: str = "its credentials",
    ) -> None:
        """A ``password`` without ``login`` is a bearer token; ``credentials`` is how messages call the two."""
        self.endpoint = f"Prometheus of cluster '{name}' at {url}"
        self._url, self._credentials = url.rstrip("/"), credentials
        self._authorization = _authorization(login, password)
        context = ssl.create_default_context(cafile=ca_file) if url.startswith("https") else None
        handlers = [] if context is None else [urllib.request.HTTPSHandler(context=context)]
        self._opener = urllib.request.build_opener(*handlers)

    def devices(self, source: PrometheusRef) -> Mapping[str, DeviceUse]:
        """What the GPUs of each node told last, by its name; a node of which there is nothing fresh is not there."""
        told: dict[str, dict[tuple[str, ...], dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        for labels, figure in self._vector(_query(source)):
            node, metric = labels.get(source.node_label), labels.get("__name__", "")
            if node and 0 <= figure <= _SENSIBLE.get(metric, -1):  # NaN is neither
                device = tuple(labels.get(label, "") for label in _DEVICE)
                told[node][device][metric] = figure
        return {node: _use(list(devices.values())) for node, devices in told.items()}

    def _vector(self, query: str) -> Iterator[tuple[Mapping[str, str], float]]:
        """Labels and value of each series of an instant query, of this moment by the server's clock."""
        answer = self._json("/api/v1/query", {"query": query, "timeout": f"{TIMEOUT_SECONDS:.0f}s"})
        try:
            if answer["status"] != "success" or answer["data"]["resultType"] != "vector":
                raise ValueError(f"{answer.get('errorType')}: {answer.get('error')}")
            if answer.get("warnings"):
                raise ValueError(f"it is not whole: {'; '.join(map(str, answer['warnings']))}")
            found = [(dict(series["metric"]), float(series["value"][1])) for series in answer["data"]["result"]]
        except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError) as problem:
            raise Unreachable(self.endpoint, f"its answer cannot be used: {str(problem)[:200]}") from problem
        yield from found

    def _json(self, path: str, query: Mapping[str, str]) -> Any:
        request = urllib.request.Request(f"{self._url}{path}", data=urlencode(query).encode())
        if self._authorization:
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                body = answer.read(LARGEST_ANSWER + 1)
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise self._refused(refusal) from refusal
        except urllib.error.URLError as problem:
            raise Unreachable(self.endpoint, str(problem.reason)) from problem
        except (OSError, HTTPException) as problem:
            raise Unreachable(self.endpoint, f"{type(problem).__name__}: {problem}".rstrip(": ")) from problem
        if len(body) > LARGEST_ANSWER:
            problem_seen = f"it answered with more than {LARGEST_ANSWER >> 20} MiB; narrow it by prometheus.labels"
            raise Unreachable(self.endpoint, problem_seen)
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as problem:
            seen = f"it did not answer with JSON, or not with all of it: {body[:80]!r}"
            raise Unreachable(self.endpoint, seen) from problem

    def _refused(self, refusal: urllib.error.HTTPError) -> AccessDenied | RequestRefused | Unreachable:
        said = f"HTTP {refusal.code} {refusal.reason}".strip()
        if refusal.code in {401, 403}:
            return AccessDenied(self.endpoint, said, fix=f"correct {self._credentials}")
        if refusal.code == 429 or refusal.code >= 500:
            return Unreachable(self.endpoint, said)
        try:
            why = str(json.loads(refusal.read(10_000))["error"])[:300]
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            why = "it does not say why"
        return RequestRefused(self.endpoint, "the query", f"{said}: {why}")


def _query(source: PrometheusRef) -> str:
    """Each metric's series with a fresh value, all in one answer.

    Prometheus itself goes on giving the last value of a series for minutes after nobody scrapes it any more.
    """
    chosen = "".join(
        f",{name}={json.dumps(value, ensure_ascii=False)}" for name, value in sorted(source.labels.items())
    )
    parts = []
    for metric in _SENSIBLE:
        series = f'{{__name__="{metric}"{chosen}}}'
        parts.append(f"({series} and timestamp({series}) > time() - {FRESH.total_seconds():.0f})")
    return " or on(__name__) ".join(parts)


def _authorization(login: str | None, password: str | None) -> str | None:
    if login:
        return "Basic " + b64encode(f"{login}:{password or ''}".encode()).decode()
    return f"Bearer {password}" if password else None


def _use(devices: Iterable[Figures]) -> DeviceUse:
    """The mean of what the devices told; of their memory all together."""
    known = list(devices)
    whole = [figures for figures in known if USED in figures and FREE in figures]
    size = sum(figures[USED] + figures[FREE] for figures in whole)
    utilisation = _mean(known, UTILISATION)
    return DeviceUse(
        gpus=len(known),
        utilisation=None if utilisation is None else utilisation / 100,
        memory=sum(figures[USED] for figures in whole) / size if size else None,
        power_watts=_mean(known, POWER),
        temperature_celsius=max((figures[TEMPERATURE] for figures in known if TEMPERATURE in figures), default=None),
    )


def _mean(devices: Iterable[Figures], metric: str) -> float | None:
    told = [figures[metric] for figures in devices if metric in figures]
    return math.fsum(told) / len(told) if told else None
