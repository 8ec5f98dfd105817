"""Which images, repositories and datasets belong at which site, so that they are there before a run needs them."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.model import Tier
from spillway.runs.residency import core_images, movable_tier
from spillway.runs.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Something (an image, a repository, a dataset) that belongs at a site."""

    name: str
    site: str
    tier: Tier


def image_routes(services: Services) -> tuple[Route, ...]:
    """Every image of the declared jobs at every site that may hold its tier, its home left out.

    Raises:
        ConfigError: a job file cannot be read, so that nobody knows the tiers.
    """
    images = sorted({use.image for use in services.image_uses()})
    core = core_images(services, images)
    routes = (
        Route(name=image, site=name, tier=tier)
        for image in images
        for tier in [Tier.CORE if image in core else Tier.PUBLIC]
        for name, cluster in sorted(services.configuration.clusters.items())
        if name != services.image_home and cluster.may_hold(tier)
    )
    return tuple(routes)


def repository_routes(services: Services) -> tuple[Route, ...]:
    """Every declared repository at every site that it is declared for and that may hold its tier, its home left out."""
    routes = (
        Route(name=name, site=site, tier=wanted.tier)
        for name, wanted in sorted(services.configuration.repositories.items())
        for site, cluster in sorted(services.configuration.clusters.items())
        if site != services.image_home and cluster.may_hold(wanted.tier) and site in (wanted.sites or (site,))
    )
    return tuple(routes)


def dataset_routes(services: Services) -> tuple[Route, ...]:
    """Every dataset at every other site that may hold any object of it."""
    routes = (
        Route(name=dataset.name, site=name, tier=tier)
        for _, dataset in sorted(services.configuration.datasets.items())
        for name, cluster in sorted(services.configuration.clusters.items())
        for tier in [movable_tier(dataset, cluster)]
        if name != dataset.home and cluster.may_hold(tier)
    )
    return tuple(routes)
