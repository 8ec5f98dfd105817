"""What the scaler is told of the demand to come."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from spillway.model import Forecast
from spillway.runs.services import Services


def forecasts(services: Services, now: datetime) -> Mapping[tuple[str, str], Forecast]:
    """By (cluster, pool), or of all demand; nothing where the rules go by none."""
    return {}
