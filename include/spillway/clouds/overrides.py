"""A job's ``pod_overrides``, merged into the pod that the platform built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spillway.clouds.facts import gpus_of, needs_of
from spillway.errors import ConfigError
from spillway.model import GPU_RESOURCE

_IDENTITY_KEYS = ("name", "mountPath")
"""What tells the items of a list apart; an item without one is added."""
_DECLARED = ("spec.containers[].resources[cpu]", "spec.containers[].resources[memory]")
"""What all containers together ask for, which the job has keys of its own for."""


def merge_overrides(
    pod: Mapping[str, Any],
    overrides: Mapping[str, Any],
    *,
    job: str,
    container: str,
    gpu_resource: str = GPU_RESOURCE,
) -> Mapping[str, Any]:
    """The pod with the overrides merged in; ``container`` names the one whose image is the platform's.

    ``gpu_resource`` is what the pod asks its GPUs by. What all containers together ask for of GPUs, CPU and memory
    stays what the job declares: that is promised, budgeted and booked.

    Mappings merge key by key. Lists of objects merge by name (or mount path), other objects are added at the end;
    lists of plain values are replaced. None removes a key.

    Raises:
        ConfigError: an override has another shape than the field, or changes a field that placement, accounting or
            clean-up rely on; the field is named.
    """
    merged: Mapping[str, Any] = _merge_mapping(pod, overrides, "pod_overrides", job)
    fixed = _fixed(pod, container, gpu_resource)
    try:
        kept = _fixed(merged, container, gpu_resource)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise ConfigError(f"job '{job}'", "pod_overrides", f"expected the shape of a Pod, got {problem!r}") from problem
    for field, value in fixed.items():
        if kept.get(field) != value:
            instead = "; declare cpu_cores and memory_gib instead" if field in _DECLARED else ""
            raise ConfigError(
                f"job '{job}'",
                f"pod_overrides.{field}",
                f"expected no override, got {kept.get(field)!r}: the platform sets it to {value!r} and relies on it"
                f"{instead}",
            )
    grace = merged["spec"].get("terminationGracePeriodSeconds")
    if not isinstance(grace, int) or grace < pod["spec"]["terminationGracePeriodSeconds"]:
        raise ConfigError(
            f"job '{job}'",
            "pod_overrides.spec.terminationGracePeriodSeconds",
            f"expected at least {pod['spec']['terminationGracePeriodSeconds']}, which the last checkpoint needs, "
            f"got {grace!r}; declare the job's grace instead",
        )
    return merged


def _fixed(pod: Mapping[str, Any], container: str, gpu_resource: str) -> dict[str, Any]:
    """What no override may change, by its path."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    fixed = {"apiVersion": pod.get("apiVersion"), "kind": pod.get("kind")}
    fixed |= {f"metadata.{key}": metadata.get(key) for key in ("name", "namespace", "generateName")}
    fixed |= {f"metadata.labels[{key}]": value for key, value in (metadata.get("labels") or {}).items()}
    fixed |= {f"spec.{key}": spec.get(key) for key in ("restartPolicy", "nodeName", "resources")}
    fixed |= {f"spec.nodeSelector[{key}]": value for key, value in (spec.get("nodeSelector") or {}).items()}
    for item in spec.get("containers") or []:
        if item.get("name") == container:
            fixed[f"spec.containers[{container}].image"] = item.get("image")
            fixed |= {f"spec.containers[{container}].env[{entry['name']}]": entry.get("value") for entry in item["env"]}
    fixed |= {f"spec.containers[].resources[{name}]": gpus_of(spec, name) for name in {GPU_RESOURCE, gpu_resource}}
    needs = needs_of(spec)
    return fixed | dict(zip(_DECLARED, (f"{needs.cpu_millicores}m", f"{needs.memory_mib}Mi"), strict=True))


def _merge(base: Any, override: Any, path: str, job: str) -> Any:
    if isinstance(base, Mapping):
        if not isinstance(override, Mapping):
            raise ConfigError(f"job '{job}'", path, f"expected a mapping, got {override!r}")
        return _merge_mapping(base, override, path, job)
    if isinstance(base, list):
        if not isinstance(override, Sequence) or isinstance(override, str):
            raise ConfigError(f"job '{job}'", path, f"expected a list, got {override!r}")
        return _merge_list(base, override, path, job)
    return override


def _merge_mapping(base: Mapping[str, Any], override: Mapping[str, Any], path: str, job: str) -> dict[str, Any]:
    merged = dict(base)
    for key, value in override.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged[key], value, f"{path}.{key}", job) if key in merged else value
    return merged


def _merge_list(base: Sequence[Any], override: Sequence[Any], path: str, job: str) -> list[Any]:
    if not all(isinstance(item, Mapping) for item in [*base, *override]):
        if any(isinstance(item, Mapping) for item in [*base, *override]):
            raise ConfigError(f"job '{job}'", path, f"expected a list of mappings, got {override!r}")
        return list(override)
    merged = list(base)
    for item in override:
        place = next((place for place, known in enumerate(merged) if _same(known, item)), None)
        if place is None:
            merged.append(item)
        else:
            merged[place] = _merge_mapping(merged[place], item, f"{path}[{place}]", job)
    return merged


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return any(key in one and one.get(key) == other.get(key) for key in _IDENTITY_KEYS)
