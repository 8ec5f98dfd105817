"""Kubernetes quantities, exactly."""

from __future__ import annotations

import re
from decimal import Decimal

_FORM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(n|u|m|k|[MGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,3})?")
_FACTORS = {"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_FACTORS |= {unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)}
_FACTORS |= {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)}


def quantity(text: object) -> Decimal:
    """``500m`` is 0.5, ``1Gi`` is 1073741824, ``1e3`` is 1000; ValueError where it is no quantity."""
    match = _FORM.fullmatch(str(text))
    if match is None:
        raise ValueError(f"expected a quantity such as 2, 500m or 16Gi, got {text!r}")
    number, unit = match[1], match[2] or ""
    return Decimal(number) * (_FACTORS[unit] if unit in _FACTORS else Decimal(f"1{unit}"))
