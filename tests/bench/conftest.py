"""Fixtures of the movers' figures."""

from spillway.testing.image_sites import image_sites
from spillway.testing.movement_sites import memory, movement_sites

__all__ = ["image_sites", "memory", "movement_sites"]
