"""Whether a node's driver can run a program that was built with a version of CUDA."""

from __future__ import annotations

from spillway.model import NodeState

LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
"""The oldest branch of the driver for each major version of CUDA.

Source: NVIDIA, CUDA Compatibility, minor version compatibility, table 1.
"""


def driver_problem(cuda: str, node: NodeState) -> str | None:
    """Why programs of this CUDA cannot run on the node; None where they can, or where its labels leave that open."""
    major = _major(cuda)
    if major is None:
        return None
    least, driver = LEAST_DRIVER.get(major), _major(node.driver)
    if least is not None and driver is not None:
        return (
            f"CUDA {cuda} needs driver {least} or newer, node {node.name} has {node.driver}" if driver < least else None
        )
    supported = _major(node.driver_cuda)
    if supported is not None and supported < major:
        return f"needs CUDA {cuda}, the driver of node {node.name} supports {node.driver_cuda}"
    return None


def _major(version: str | None) -> int | None:
    first = (version or "").partition(".")[0]
    return int(first) if first.isdecimal() else None
